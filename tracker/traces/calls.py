"""The lines of a call trace; changes with the format of recorded traces (docs/traces.md)."""

from typing import Annotated, Any

import msgspec

# As wide as what is made of them: packed metadata (eventstore/domain/metadata.py) and KV events.
_Small = Annotated[int, msgspec.Meta(ge=1, le=2**16 - 1)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
_Unsigned = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Token = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class GroupLine(msgspec.Struct, frozen=True):
    """A KV-cache group as a record call saw it."""

    idx: Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
    tokens_per_block: _Size
    tokens_per_chunk: _Size
    hashes_per_chunk: _Small
    sliding_window_chunks: _Size | None = None
    spec_kind: str | None = None
    spec_sliding_window: _Unsigned | None = None


class LoRALine(msgspec.Struct, frozen=True):
    """The adapter of a request."""

    adapter_id: _Unsigned
    name: str


class Open(msgspec.Struct, frozen=True, tag_field="call", tag="open"):
    """A process starts, with an empty memory."""

    self_describing: bool


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    req: str
    group: GroupLine
    key: str
    parent: str | None
    block_hashes: list[str]
    token_ids: list[_Token]
    lora: LoRALine | None = None


class RecordStore(_Record, frozen=True, tag_field="call", tag="record_store", kw_only=True):
    """A full chunk is about to be stored."""

    chunk_idx: _Unsigned


class RecordLookup(_Record, frozen=True, tag_field="call", tag="record_lookup", kw_only=True):
    """A lookup hit a full chunk at the primary place."""

    chunk_idx: _Unsigned


class RecordPartialStore(_Record, frozen=True, tag_field="call", tag="record_partial_store", kw_only=True):
    """A partial tail is about to be stored."""

    boundary_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class RecordPartialLookup(_Record, frozen=True, tag_field="call", tag="record_partial_lookup", kw_only=True):
    """A lookup hit a partial tail."""

    boundary_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class EventLine(msgspec.Struct, frozen=True):
    """A raw event of a tier, keys in hex."""

    keys: list[str]
    medium: str
    removed: bool
    locality: str | None = None
    ownership: str | None = None
    removal_expected: bool = False
    metadata_only: bool = False


class TakeEvents(msgspec.Struct, frozen=True, tag_field="call", tag="take_events"):
    """The scheduler took events. `out` is what upstream's tracker published for them."""

    step: int
    events: list[EventLine]
    out: list[dict[str, Any]] = []


class Reset(msgspec.Struct, frozen=True, tag_field="call", tag="reset"):
    """The scheduler reset the cache."""


Record = RecordStore | RecordLookup | RecordPartialStore | RecordPartialLookup
Call = Open | Record | TakeEvents | Reset
