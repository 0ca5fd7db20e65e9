"""What keeps metadata in memory beyond its last hold, and for how long."""

import pytest

from eventstore.domain.metadata import pack
from tests.scheduler import Layout, Prompt, make_hash, make_key, removed, stored
from tests.tracker.process import Process, Start
from tests.tracker.published import placeholder
from tests.tracker.samples import A0, PRIMARY, STORE_ONLY
from tracker.index import OVERHEAD, Chunk, Index
from tracker.settings import Settings

LAYOUT = Layout(tokens_per_block=4, tokens_per_chunk=4, hashes_per_chunk=1)
KEYS = [make_key(make_hash(number)) for number in range(1, 10)]
assert A0.metadata is not None
PACKED = pack(A0.key, A0.metadata)
ONE = len(PACKED) + OVERHEAD


def record(process: Process, key: bytes) -> None:
    """The chunk with `key` is about to be stored."""
    process.tracker.record_store(Prompt([key[:-4]], [1, 2, 3, 4]), LAYOUT, 0, key)


def known(process: Process) -> list[bytes]:
    """The keys that memory has a description of."""
    return [key for key in KEYS if process.tracker.metadata(key) is not None]


def test_the_retained_set_loses_its_oldest_first() -> None:
    index = Index(retained_bytes=2 * ONE, record_window=10)
    for key in KEYS[:4]:
        index.chunks[key] = chunk = Chunk(PACKED)
        index.release(key, chunk)
    index.trim()
    assert list(index.chunks) == KEYS[2:4]
    assert index.retained_size == 2 * ONE


def test_what_is_held_again_leaves_the_retained_set_and_comes_back_as_its_newest() -> None:
    index = Index(retained_bytes=2 * ONE, record_window=10)
    chunks = [Chunk(PACKED), Chunk(PACKED), Chunk(PACKED)]
    for key, chunk in zip(KEYS, chunks, strict=False):
        index.chunks[key] = chunk
        index.release(key, chunk)
    index.record(KEYS[0], chunks[0])
    chunks[0].recorded = 0
    index.release(KEYS[0], chunks[0])
    index.trim()
    assert list(index.retained) == [KEYS[2], KEYS[0]]


def test_the_retained_set_is_trimmed_to_its_bound_at_the_end_of_a_call(start: Start) -> None:
    process = start()
    record(process, KEYS[0])
    process.take(removed(PRIMARY, KEYS[0]))
    size = process.tracker.index.retained_size
    small = start(Settings(retained_bytes=3 * size))
    for key in KEYS:
        record(small, key)
    small.take(removed(PRIMARY, *KEYS))
    assert known(small) == KEYS[-3:]
    assert small.tracker.index.retained_size == 3 * size


@pytest.mark.parametrize("window", [1, 3])
def test_holds_of_record_calls_lapse_oldest_first(start: Start, window: int) -> None:
    process = start(Settings(record_window=window))
    for key in KEYS:
        record(process, key)
    assert list(process.tracker.pending) == KEYS[-window:]
    assert known(process) == KEYS


def test_a_second_record_call_renews_the_hold(start: Start) -> None:
    process = start(Settings(record_window=2))
    for key in (KEYS[0], KEYS[1], KEYS[0], KEYS[2]):
        record(process, key)
    assert set(process.tracker.pending) == {KEYS[0], KEYS[2]}


def test_a_store_makes_a_hold_that_no_window_bounds(start: Start) -> None:
    process = start(Settings(record_window=1))
    for key in KEYS:
        record(process, key)
        process.take(stored(PRIMARY, key))
    assert list(process.tracker.pending) == KEYS


def test_a_lapsed_hold_without_room_to_retain_costs_the_description(start: Start) -> None:
    process = start(Settings(record_window=1, retained_bytes=0))
    record(process, KEYS[0])
    record(process, KEYS[1])
    process.take()
    process.take(stored(PRIMARY, KEYS[0]))
    process.drain()
    assert [event.token_ids for event in process.handed_out] == [[]]
    assert known(process) == [KEYS[1]]


def test_chunks_of_a_store_only_tier_grow_memory_to_the_bound_and_no_further(start: Start) -> None:
    process = start(Settings(retained_bytes=50_000, record_window=100))
    sizes = []
    for first in range(0, 20_000, 100):
        keys = [make_key(make_hash(number)) for number in range(first, first + 100)]
        for key in keys:
            record(process, key)
        process.take(stored(PRIMARY, *keys), stored(STORE_ONLY, *keys))
        process.take(removed(PRIMARY, *keys))
        sizes.append(len(process.tracker.index.chunks))
    assert len(process.tracker.pending) == 0
    assert process.tracker.index.retained_size <= 50_000
    assert max(sizes) == sizes[-1] == sizes[2]


def test_recovery_fills_the_retained_set_newest_first(start: Start) -> None:
    first = start()
    for key in KEYS:
        record(first, key)
        first.take(removed(PRIMARY, key))
    one = first.tracker.index.retained_size // len(KEYS)
    first.drain()
    first.kill()
    second = start(Settings(retained_bytes=3 * one))
    assert known(second) == KEYS[-3:]
    record(second, make_key(make_hash(99)))
    second.take(removed(PRIMARY, make_key(make_hash(99))))
    assert known(second) == KEYS[-2:]


def test_recovery_fills_holds_whatever_the_bound(start: Start) -> None:
    first = start()
    for key in KEYS:
        record(first, key)
    first.take(stored(STORE_ONLY, *KEYS, flag=True))
    first.drain()
    first.kill()
    second = start(Settings(retained_bytes=0))
    assert known(second) == KEYS
    assert set(second.tracker.pending) == set(KEYS)


def test_a_chunk_never_described_leaves_memory_with_its_last_residency(start: Start) -> None:
    process = start()
    process.take(stored(PRIMARY, A0.key))
    assert A0.key in process.tracker.index.chunks
    process.take(removed(PRIMARY, A0.key))
    process.drain()
    assert A0.key not in process.tracker.index.chunks
    assert process.handed_out[0] == placeholder(PRIMARY, A0)
