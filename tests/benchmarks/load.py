"""Made-up load: requests, groups and events as an engine would make them, from a seed."""

import random
from collections.abc import Iterator
from typing import NamedTuple


class Spec(NamedTuple):
    kv_cache_spec_kind: str | None = "full_attention"
    kv_cache_spec_sliding_window: int | None = None


class Group(NamedTuple):
    """vLLM's GroupOffloadConfig, as far as a tracker reads it."""

    group_idx: int
    tokens_per_block: int
    tokens_per_chunk: int
    hashes_per_chunk: int
    kv_event_group_spec: Spec = Spec()
    sliding_window_size_in_chunks: int | None = None


class Request:
    """A request of `chunks` chunks with random tokens and hashes."""

    lora_request = None

    def __init__(self, rnd: random.Random, group: Group, chunks: int) -> None:
        self.block_hashes = [rnd.randbytes(32) for _ in range(chunks * group.hashes_per_chunk)]
        self.all_token_ids = [rnd.randrange(150_000) for _ in range(chunks * group.tokens_per_chunk)]
        count = group.hashes_per_chunk
        self.keys = [self.block_hashes[(i + 1) * count - 1] + bytes(4) for i in range(chunks)]


class RawEvent(NamedTuple):
    """A tier's event under vLLM's names."""

    keys: list[bytes]
    medium: object
    removed: bool
    locality: object = None
    ownership: str | None = None
    removal_expected: bool = False
    metadata_only: bool = False


def group(blocks: int, tokens: int = 16) -> Group:
    """A full-attention group with `blocks` blocks of `tokens` tokens a chunk."""
    return Group(0, tokens, tokens * blocks, blocks)


def requests(seed: int, made: Group, chunks_each: int, count: int) -> Iterator[Request]:
    """`count` requests."""
    rnd = random.Random(seed)
    return (Request(rnd, made, chunks_each) for _ in range(count))
