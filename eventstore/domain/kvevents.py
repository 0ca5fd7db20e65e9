"""The KV events that consumers read, byte for byte as vLLM encodes them; changes with vLLM's wire format.

Fields, order and defaults are those of `vllm/distributed/kv_events.py` (0.32, 0.33). Our own classes exist because
replays and audits run without vLLM; the tracker builds either kind, by position.
"""

from typing import Any

import msgspec

#: A block hash on the wire: its low 64 bits, or all of it where VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES is off.
WireHash = int | bytes


class KVEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """Base of the three events."""


class BlockStored(KVEvent):
    """Blocks became available at a place."""

    block_hashes: list[WireHash]
    parent_block_hash: WireHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    #: Since 0.33, on the GPU's events.
    lookahead_token_ids: list[list[int]] | None = None


class BlockRemoved(KVEvent):
    """Blocks are no longer available at a place."""

    block_hashes: list[WireHash]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(KVEvent):
    """The publisher cleared its GPU prefix cache."""


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """One frame of the publisher: wall time in seconds, events, data-parallel rank."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None
