"""Our classes of KV events against vLLM's: the same fields, the same bytes.

`python -m tests.vllm.wire_format` runs it with the vLLM that is first on the path, and prints what it compared.
"""

import argparse
import json
import random
from typing import Any

import msgspec
import vllm
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from vllm.distributed import kv_events as theirs

from eventstore.domain import kvevents as ours

_hashes = st.integers(0, 2**64 - 1) | st.binary(max_size=40)
_words = st.text(max_size=12)
_numbers = st.integers(-(2**31), 2**63 - 1)
_key = st.tuples(_words | st.tuples(_words, _numbers) | st.binary(max_size=8))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "block_hashes": st.lists(_hashes, max_size=5),
    "parent_block_hash": st.none() | _hashes,
    "token_ids": st.lists(st.integers(0, 2**32 - 1), max_size=20),
    "block_size": _numbers,
    "lora_id": st.none() | _numbers,
    "lora_name": st.none() | _words,
    "medium": st.none() | _words,
    "extra_keys": st.none() | st.lists(st.none() | _key, max_size=3),
    "group_idx": st.none() | st.integers(0, 2**31),
    "kv_cache_spec_kind": st.none() | _words,
    "kv_cache_spec_sliding_window": st.none() | _numbers,
    "locality": st.none() | _words,
    "ownership": st.none() | _words,
    "session_id": st.none() | _words,
    "lookahead_token_ids": st.none() | st.lists(st.lists(_numbers, max_size=3), max_size=3),
}
_EVENTS = ("BlockStored", "BlockRemoved", "AllBlocksCleared")


def _fields(name: str) -> tuple[str, ...]:
    return tuple(getattr(theirs, name).__struct_fields__)


def _event(name: str) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(name), st.tuples(*(_VALUES[field] for field in _fields(name))))


def compare(count: int, seed_: int) -> dict[str, list[str]]:
    """Compare `count` batches of events with random fields, built by position; returns the fields that each has."""

    @seed(seed_)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        ts=st.floats(allow_nan=False),
        events=st.lists(st.one_of(*map(_event, _EVENTS)), max_size=4),
        rank=st.none() | st.integers(0, 512),
    )
    def run(ts: float, events: list[tuple[str, tuple[Any, ...]]], rank: int | None) -> None:
        encoded = [
            msgspec.msgpack.encode(
                module.KVEventBatch(ts, [getattr(module, name)(*values) for name, values in events], rank)
            )
            for module in (ours, theirs)
        ]
        assert encoded[0] == encoded[1]
        assert (
            msgspec.msgpack.Encoder().encode(msgspec.msgpack.decode(encoded[1], type=ours.KVEventBatch)) == encoded[1]
        )

    run()
    return {name: list(_fields(name)) for name in _EVENTS}


def main() -> None:
    """Compare, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.vllm.wire_format", description=__doc__)
    parser.add_argument("--batches", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given_ = parser.parse_args()
    fields = compare(given_.batches, given_.seed)
    print(json.dumps({"vllm": vllm.__version__, "batches": given_.batches, "seed": given_.seed, "fields": fields}))


if __name__ == "__main__":
    main()
