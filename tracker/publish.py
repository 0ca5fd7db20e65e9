"""From packed metadata to the KV events that consumers read; changes with the form of those events.

The classes are given from outside: vLLM's own inside an engine, `eventstore.domain.kvevents` elsewhere. Both are
built by position, in the field order of `vllm/distributed/kv_events.py`.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from eventstore.domain.key import GROUP_BYTES, OWN_WIRE, block_hash, group_index, wire_hash
from eventstore.domain.kvevents import BlockRemoved, BlockStored, WireHash
from eventstore.domain.metadata import HAS_EXTRAS, HAS_LAST, HAS_PARENT, HEADER_BYTES, KINDS, unpack

#: A removal names at most this many chunks where we make it up ourselves, so that no frame grows without bound.
CHUNKS_A_REMOVAL = 1_024


class _Layout(msgspec.Struct, frozen=True):
    """How to take apart the packed metadata of all chunks with one header."""

    header: bytes
    size: int
    #: Gives the parent where there is one, the hashes but for the key's own, the tokens.
    unpack: Callable[[bytes], tuple[Any, ...]]
    #: Gives the hashes alone, but for the key's own.
    unpack_hashes: Callable[[bytes], tuple[Any, ...]]
    #: How many parents `unpack` gives, 0 or 1, and where the tokens begin.
    parents: int
    at: int
    block_size: int
    group_idx: int
    kind: str | None


class Publisher:
    """Builds events. `group_specs` is vLLM 0.33's: what placeholders say of their group's cache."""

    def __init__(
        self,
        stored: Callable[..., Any] = BlockStored,
        removed: Callable[..., Any] = BlockRemoved,
        *,
        integer_hashes: bool = True,
        group_specs: Mapping[int, Any] | None = None,
    ) -> None:
        self._stored, self._removed = stored, removed
        self._integers = integer_hashes
        self._layouts: dict[bytes, _Layout | None] = {}
        self._group_specs = dict(group_specs or {})

    def store(self, key: bytes, packed: bytes, medium: str, owner: str | None, locality: str | None) -> Any:
        """The store of one chunk: full where it is described, else a placeholder with its last hash."""
        return self.stores((key,), (packed,), medium, owner, locality)[0]

    def stores(
        self, keys: Sequence[bytes], packed: Sequence[bytes], medium: str, owner: str | None, locality: str | None
    ) -> list[Any]:
        """The stores of many chunks at one place, each as `store` has it."""
        made: list[Any] = []
        stored, integers, from_bytes = self._stored, self._integers, int.from_bytes
        # Chunks of one event mostly have one header, so its layout is looked up when the header changes.
        header, size = b"none", 0
        for key, one in zip(keys, packed, strict=True):
            if len(one) != size or not one.startswith(header):
                layout = self._layouts.get(one[:HEADER_BYTES])
                if layout is None or layout.size != len(one):
                    made.append(self._unusual(key, one, medium, owner, locality))
                    continue
                header, size, take_apart = layout.header, layout.size, layout.unpack
                parents, at = layout.parents, layout.at
                block_size, group, kind = layout.block_size, layout.group_idx, layout.kind
            values = take_apart(one)
            own = from_bytes(key[OWN_WIRE]) if integers else key[:-GROUP_BYTES]
            # fmt: off
            made.append(stored(
                [*values[parents:at], own] if at > parents else [own], values[0] if parents else None,
                list(values[at:]), block_size, None, medium, None, None, group, kind, None, locality, owner,
            ))
            # fmt: on
        return made

    def members(self, key: bytes, packed: bytes) -> list[WireHash]:
        """The chunk's member hashes, as events carry them; the key's own for a chunk that is not described."""
        return self.all_members((key,), (packed,))

    def all_members(self, keys: Sequence[bytes], packed: Sequence[bytes]) -> list[WireHash]:
        """The member hashes of many chunks, one chunk after the other."""
        made: list[WireHash] = []
        integers, from_bytes = self._integers, int.from_bytes
        header, others = b"none", False
        take_apart: Callable[[bytes], tuple[Any, ...]] = tuple
        for key, one in zip(keys, packed, strict=True):
            if not one.startswith(header):
                layout = self._layout(one) if one else None
                if layout is None:
                    made += self._unusual_members(key, one)
                    continue
                header, others, take_apart = layout.header, layout.at > layout.parents, layout.unpack_hashes
            if others:
                made += take_apart(one)
            made.append(from_bytes(key[OWN_WIRE]) if integers else key[:-GROUP_BYTES])
        return made

    def remove(self, hashes: list[WireHash], medium: str, group: int, owner: str | None, locality: str | None) -> Any:
        """One removal of blocks of one group."""
        return self._removed(hashes, medium, group, locality, owner)

    def removals(
        self, chunks: Iterable[tuple[bytes, bytes, int]], medium: str, owner: str | None, locality: str | None
    ) -> list[Any]:
        """Removals of (key, packed, times) chunks, gathered by group, in frames of bounded size."""
        made, by_group = [], dict[int, list[WireHash]]()
        counts: dict[int, int] = {}
        for key, packed, times in chunks:
            group = group_index(key)
            by_group.setdefault(group, []).extend(self.members(key, packed) * times)
            counts[group] = counts.get(group, 0) + 1
            if counts[group] >= CHUNKS_A_REMOVAL:
                made.append(self.remove(by_group.pop(group), medium, group, owner, locality))
                counts[group] = 0
        made += [self.remove(hashes, medium, group, owner, locality) for group, hashes in by_group.items()]
        return made

    def _wire(self, hash_bytes: bytes) -> WireHash:
        return int.from_bytes(hash_bytes[-8:], "big") if self._integers else hash_bytes

    def _placeholder(self, key: bytes, medium: str, owner: str | None, locality: str | None) -> Any:
        group = group_index(key)
        spec = self._group_specs.get(group)
        kind = spec.kv_cache_spec_kind if spec is not None else None
        window = spec.kv_cache_spec_sliding_window if spec is not None else None
        hashes = [self._wire(block_hash(key))]
        return self._stored(hashes, None, [], 0, None, medium, None, None, group, kind, window, locality, owner)

    def _unusual(self, key: bytes, packed: bytes, medium: str, owner: str | None, locality: str | None) -> Any:
        """For the rare shapes, and the first chunk of each header."""
        if not packed:
            return self._placeholder(key, medium, owner, locality)
        layout = self._layout(packed)
        if layout is not None and layout.size == len(packed):
            return self.store(key, packed, medium, owner, locality)
        meta = unpack(key, packed)
        parent = meta.parent_block_hash
        # fmt: off
        return self._stored(
            [self._wire(one) for one in meta.block_hashes], self._wire(parent) if parent is not None else None,
            list(meta.token_ids), meta.block_size, meta.lora_id, medium, meta.lora_name, meta.extra_keys,
            meta.group_idx, meta.kind, meta.sliding_window, locality, owner,
        )
        # fmt: on

    def _unusual_members(self, key: bytes, packed: bytes) -> list[WireHash]:
        if not packed:
            return [self._wire(key[:-GROUP_BYTES])]
        return [self._wire(one) for one in unpack(key, packed).block_hashes]

    def _layout(self, packed: bytes) -> _Layout | None:
        """How chunks with this header are taken apart; None where it has LoRA, extra keys, a window, or the like."""
        header = packed[:HEADER_BYTES]
        if header not in self._layouts:
            self._layouts[header] = self._make_layout(packed)
        return self._layouts[header]

    def _make_layout(self, packed: bytes) -> _Layout | None:
        flags, size, code = packed[1], packed[2], packed[3]
        if flags & (HAS_EXTRAS | HAS_LAST) or code >= len(KINDS) or size < 8:
            return None
        others, parents = int.from_bytes(packed[6:8], "little") - 1, 1 if flags & HAS_PARENT else 0
        tokens = (len(packed) - HEADER_BYTES - (others + parents) * size) // 4
        one = f"{size - 8}xQ" if self._integers else f"{size}s"
        whole = struct.Struct(f">{HEADER_BYTES}x{one * (others + parents)}{tokens}I")
        return _Layout(
            header=packed[:HEADER_BYTES],
            size=whole.size,
            unpack=whole.unpack,
            unpack_hashes=struct.Struct(f">{HEADER_BYTES + parents * size}x{one * others}").unpack_from,
            parents=parents,
            at=parents + others,
            block_size=int.from_bytes(packed[8:12], "little"),
            group_idx=int.from_bytes(packed[4:6], "little"),
            kind=KINDS[code],
        )


def wire_of(key: bytes) -> int:
    """A key's own hash on the wire."""
    return wire_hash(block_hash(key))
