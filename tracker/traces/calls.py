"""The lines of a call trace; changes with the format of recorded traces (docs/traces.md)."""

from typing import Any

import msgspec


class GroupLine(msgspec.Struct, frozen=True):
    """A KV-cache group as a record call saw it."""

    idx: int
    tokens_per_block: int
    tokens_per_chunk: int
    hashes_per_chunk: int
    sliding_window_chunks: int | None = None
    spec_kind: str | None = None
    spec_sliding_window: int | None = None


class LoRALine(msgspec.Struct, frozen=True):
    """The adapter of a request."""

    adapter_id: int
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
    token_ids: list[int]
    lora: LoRALine | None = None


class RecordStore(_Record, frozen=True, tag_field="call", tag="record_store", kw_only=True):
    """A full chunk is about to be stored."""

    chunk_idx: int


class RecordLookup(_Record, frozen=True, tag_field="call", tag="record_lookup", kw_only=True):
    """A lookup hit a full chunk at the primary place."""

    chunk_idx: int


class RecordPartialStore(_Record, frozen=True, tag_field="call", tag="record_partial_store", kw_only=True):
    """A partial tail is about to be stored."""

    boundary_tokens: int


class RecordPartialLookup(_Record, frozen=True, tag_field="call", tag="record_partial_lookup", kw_only=True):
    """A lookup hit a partial tail."""

    boundary_tokens: int


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
