"""What a scheduler hands to the tracker, small enough to write by hand; changes with upstream's calls.

The names of the fields are vLLM's (`vllm/v1/request.py`, `.../offloading/scheduler.py`, `vllm/v1/kv_offload/base.py`).
"""

from dataclasses import dataclass, field

from eventstore.domain.place import Place


@dataclass(frozen=True)
class LoRA:
    """An adapter."""

    adapter_id: int
    name: str


@dataclass(frozen=True)
class Prompt:
    """A request: one hash for every stretch of tokens that the engine hashes."""

    block_hashes: list[bytes]
    all_token_ids: list[int]
    lora_request: LoRA | None = None


@dataclass(frozen=True)
class GroupSpec:
    """What events say of a group's cache."""

    kv_cache_spec_kind: str | None = "full_attention"
    kv_cache_spec_sliding_window: int | None = None


@dataclass(frozen=True)
class Layout:
    """A KV-cache group."""

    group_idx: int = 0
    tokens_per_block: int = 4
    tokens_per_chunk: int = 8
    hashes_per_chunk: int = 2
    sliding_window_size_in_chunks: int | None = None
    kv_event_group_spec: GroupSpec = field(default_factory=GroupSpec)


@dataclass(frozen=True)
class RawEvent:
    """What a tier's manager reports."""

    keys: list[bytes]
    medium: str
    removed: bool
    locality: str | None = None
    ownership: str | None = None
    removal_expected: bool = False
    metadata_only: bool = False


def make_key(block_hash: bytes, group: int = 0) -> bytes:
    """vLLM's OffloadKey."""
    return block_hash + group.to_bytes(4, "big")


def make_hash(number: int, size: int = 32) -> bytes:
    """A block hash that is easy to tell: its low 64 bits, which are what events carry, are `number`."""
    return b"\xab" * (size - 8) + number.to_bytes(8, "big")


def stored(place: Place, *keys: bytes, flag: bool = False, locality: str | None = None) -> RawEvent:
    """The tier at `place` holds `keys` now."""
    return RawEvent(list(keys), place.medium.value, False, locality, place.ownership, flag)


def removed(place: Place, *keys: bytes, metadata_only: bool = False, locality: str | None = None) -> RawEvent:
    """The tier at `place` holds `keys` no longer."""
    return RawEvent(list(keys), place.medium.value, True, locality, place.ownership, metadata_only=metadata_only)
