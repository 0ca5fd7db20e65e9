"""From a chunk's packed description to the KV events that consumers read; changes with the form of those events."""

from collections.abc import Iterable

from eventstore.domain.events import PlaceRow
from eventstore.domain.key import block_hash, group_index, wire_hash
from eventstore.domain.kvevents import BlockRemoved, BlockStored, WireHash
from eventstore.domain.metadata import unpack
from eventstore.domain.place import Locality
from eventstore.replay.ends import Credited

#: A removal names at most this many chunks, so that no frame grows without bound.
CHUNKS_A_REMOVAL = 1_024


def stored(key: bytes, packed: bytes, place: PlaceRow, locality: Locality | None) -> BlockStored:
    """The store of a chunk at `place`: full where it is described, else a placeholder with its last hash."""
    medium, owner, word = place.word, place.place.ownership, locality.value if locality else None
    if not packed:
        own: list[WireHash] = [wire_hash(block_hash(key))]
        group = group_index(key)
        return BlockStored(own, None, [], 0, None, medium, None, group_idx=group, locality=word, ownership=owner)
    meta = unpack(key, packed)
    parent = meta.parent_block_hash
    return BlockStored(
        block_hashes=[wire_hash(one) for one in meta.block_hashes],
        parent_block_hash=wire_hash(parent) if parent is not None else None,
        token_ids=list(meta.token_ids),
        block_size=meta.block_size,
        lora_id=meta.lora_id,
        medium=medium,
        lora_name=meta.lora_name,
        extra_keys=meta.extra_keys,
        group_idx=meta.group_idx,
        kv_cache_spec_kind=meta.kind,
        kv_cache_spec_sliding_window=meta.sliding_window,
        locality=word,
        ownership=owner,
    )


def removed(gone: Iterable[Credited], place: PlaceRow) -> list[BlockRemoved]:
    """Removals of chunks at `place`, gathered by group and locality, each member hash as often as it was credited."""
    made: list[BlockRemoved] = []
    growing: dict[tuple[int, Locality | None], tuple[BlockRemoved, int]] = {}
    for one in gone:
        group = group_index(one.key)
        removal, chunks = growing.get((group, one.locality), (None, 0))
        if removal is None or chunks >= CHUNKS_A_REMOVAL:
            word = one.locality.value if one.locality else None
            removal, chunks = BlockRemoved([], place.word, group, word, place.place.ownership), 0
            made.append(removal)
        members = unpack(one.key, one.packed).block_hashes if one.packed else (block_hash(one.key),)
        removal.block_hashes += [wire_hash(member) for member in members] * one.stores
        growing[group, one.locality] = removal, chunks + 1
    return made
