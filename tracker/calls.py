"""The shapes of what vLLM hands to the tracker, so that no file here imports it; changes with upstream's calls.

Each is structural: vLLM's own objects fit (`vllm/v1/request.py`, `.../offloading/scheduler.py`,
`vllm/v1/kv_offload/base.py`), and so do those of a recorded trace.
"""

from collections.abc import Sequence
from typing import Any, Protocol


class LoRARequest(Protocol):
    """The adapter of a request."""

    @property
    def adapter_id(self) -> int: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102


class Request(Protocol):
    """What the record calls read of a request: hashes at hash granularity, tokens of the whole prompt and output."""

    @property
    def block_hashes(self) -> Sequence[bytes]: ...  # noqa: D102
    @property
    def all_token_ids(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def lora_request(self) -> LoRARequest | None: ...  # noqa: D102


class GroupSpec(Protocol):
    """What events say of a group's cache: `full_attention` and the like, and a sliding window in tokens."""

    @property
    def kv_cache_spec_kind(self) -> str | None: ...  # noqa: D102
    @property
    def kv_cache_spec_sliding_window(self) -> int | None: ...  # noqa: D102


class Group(Protocol):
    """A KV-cache group's layout: tokens a block and a chunk, hashes a chunk, the window in chunks or None."""

    @property
    def group_idx(self) -> int: ...  # noqa: D102
    @property
    def tokens_per_block(self) -> int: ...  # noqa: D102
    @property
    def tokens_per_chunk(self) -> int: ...  # noqa: D102
    @property
    def hashes_per_chunk(self) -> int: ...  # noqa: D102
    @property
    def kv_event_group_spec(self) -> GroupSpec: ...  # noqa: D102
    @property
    def sliding_window_size_in_chunks(self) -> int | None: ...  # noqa: D102


class OffloadingEvent(Protocol):
    """A raw event of a tier. `medium` and `locality` are vLLM's enums or their words. vLLM 0.33 adds
    `metadata_only`."""

    @property
    def keys(self) -> Sequence[bytes]: ...  # noqa: D102
    @property
    def medium(self) -> Any: ...  # noqa: D102
    @property
    def removed(self) -> bool: ...  # noqa: D102
    @property
    def locality(self) -> Any: ...  # noqa: D102
    @property
    def ownership(self) -> str | None: ...  # noqa: D102
    @property
    def removal_expected(self) -> bool: ...  # noqa: D102
