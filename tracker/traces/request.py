"""A recorded line as the object that the tracker's call takes; changes with what those calls read.

A record line holds one chunk's hashes and tokens. The tracker reads them out of a whole request by position, so each
is shown at the position that it had.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import msgspec

from tracker.traces.calls import EventLine, GroupLine, LoRALine, Record, RecordLookup, RecordStore

T = TypeVar("T")


class Window(Sequence[T]):
    """`items` at position `offset` of a longer sequence."""

    def __init__(self, items: list[T], offset: int) -> None:
        self._items, self._offset = items, offset

    def __len__(self) -> int:
        return self._offset + len(self._items)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self._items[(at.start or 0) - self._offset : at.stop - self._offset]
        return self._items[at - self._offset]


class TraceGroup(msgspec.Struct, frozen=True):
    """A recorded group under vLLM's names. Recorded hashes are one a block already."""

    group_idx: int
    tokens_per_block: int
    tokens_per_chunk: int
    hashes_per_chunk: int
    sliding_window_size_in_chunks: int | None
    kv_cache_spec_kind: str | None
    kv_cache_spec_sliding_window: int | None

    @property
    def kv_event_group_spec(self) -> "TraceGroup":
        """What events say of the group."""
        return self


class TraceRequest(msgspec.Struct, frozen=True):
    """A recorded request, as far as one chunk of it is known."""

    block_hashes: Sequence[bytes]
    all_token_ids: Sequence[int]
    lora_request: LoRALine | None


class TraceEvent(msgspec.Struct, frozen=True):
    """A recorded raw event with its keys as bytes."""

    keys: list[bytes]
    medium: str
    removed: bool
    locality: str | None
    ownership: str | None
    removal_expected: bool
    metadata_only: bool


def group_of(line: GroupLine) -> TraceGroup:
    """The group of a record line."""
    return TraceGroup(
        line.idx,
        line.tokens_per_block,
        line.tokens_per_chunk,
        line.tokens_per_chunk // line.tokens_per_block,
        line.sliding_window_chunks,
        line.spec_kind,
        line.spec_sliding_window,
    )


def request_of(line: Record, group: TraceGroup) -> TraceRequest:
    """The request of a record line."""
    hashes = [bytes.fromhex(one) for one in line.block_hashes]
    if isinstance(line, RecordStore | RecordLookup):
        first, start = line.chunk_idx * group.hashes_per_chunk, line.chunk_idx * group.tokens_per_chunk
    else:
        start = line.boundary_tokens - len(line.token_ids)
        first = start // group.tokens_per_block
    if line.parent is not None:
        hashes.insert(0, bytes.fromhex(line.parent))
        first -= 1
    return TraceRequest(Window(hashes, first), Window(line.token_ids, start), line.lora)


def event_of(line: EventLine) -> TraceEvent:
    """The raw event of an event line."""
    return TraceEvent(
        [bytes.fromhex(key) for key in line.keys],
        line.medium,
        line.removed,
        line.locality,
        line.ownership,
        line.removal_expected,
        line.metadata_only,
    )
