"""The KV events that must go out, written field by field; changes with what consumers are promised to read."""

from eventstore.domain.kvevents import BlockRemoved, BlockStored
from eventstore.domain.place import Place
from tests.tracker.samples import Sample


def full_store(place: Place, sample: Sample) -> BlockStored:
    """The store of a described chunk."""
    meta = sample.metadata
    assert meta is not None
    parent = meta.parent_block_hash
    return BlockStored(
        block_hashes=list(sample.hashes),
        parent_block_hash=int.from_bytes(parent[-8:], "big") if parent is not None else None,
        token_ids=list(meta.token_ids),
        block_size=meta.block_size,
        lora_id=meta.lora_id,
        medium=place.medium.value,
        lora_name=meta.lora_name,
        group_idx=meta.group_idx,
        kv_cache_spec_kind=meta.kind,
        ownership=place.ownership,
    )


def placeholder(place: Place, sample: Sample) -> BlockStored:
    """The store of a chunk that is not described."""
    return BlockStored(
        block_hashes=[sample.own_hash],
        parent_block_hash=None,
        token_ids=[],
        block_size=0,
        lora_id=None,
        medium=place.medium.value,
        lora_name=None,
        group_idx=sample.group.group_idx,
        ownership=place.ownership,
    )


def removal(place: Place, hashes: list[int], sample: Sample) -> BlockRemoved:
    """A removal in the sample's group."""
    return BlockRemoved(
        block_hashes=list(hashes),
        medium=place.medium.value,
        group_idx=sample.group.group_idx,
        ownership=place.ownership,
    )
