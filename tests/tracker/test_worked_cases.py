"""The worked cases of the design, each by hand: what is published, what is held, what log and views say.

`D` is a record call of a store, `S` a store and `R` a removal that a tier reports.
"""

from pathlib import Path

import pytest

from tests.scheduler import removed, stored
from tests.tracker import seen
from tests.tracker.process import Process, Start
from tests.tracker.published import full_store, placeholder, removal
from tests.tracker.samples import A0, B0, FOUR, PRIMARY, STORE_ONLY, TIER_A, TIER_B, Sample
from tracker.settings import Settings

CPU, AT_A = ("CPU", None), ("STORAGE", "a")


def held(process: Process, sample: Sample) -> set[tuple[str, str | None]]:
    """The chunk's holds, as upstream's callers read them."""
    pending = process.tracker.pending
    return set(pending[sample.key].active_residencies) if sample.key in pending else set()


def test_a_chunk_demoted_to_storage_keeps_its_metadata(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key))
    process.take(stored(TIER_A, A0.key, flag=True))
    process.take(removed(PRIMARY, A0.key))
    process.drain()
    assert process.handed_out == [full_store(PRIMARY, A0), full_store(TIER_A, A0), removal(PRIMARY, A0.hashes, A0)]
    assert held(process, A0) == {AT_A}
    assert process.tracker.metadata(A0.key) == A0.metadata
    assert seen.log(store) == [
        "described a0",
        "stored a0 at CPU",
        "stored a0 at STORAGE/a",
        "removed a0 at CPU: demoted",
    ]
    assert seen.lives(store) == ["a0 at CPU: demoted", "a0 at STORAGE/a: open"]


@pytest.mark.parametrize("call", ["record_store", "record_partial_store"])
def test_offloading_again_keeps_the_residency_elsewhere(store: Path, start: Start, call: str) -> None:
    process = start()
    record = getattr(process.tracker, call)
    at = A0.at if call == "record_store" else 8
    record(A0.prompt, A0.group, at, A0.key)
    process.take(stored(PRIMARY, A0.key), stored(TIER_A, A0.key, flag=True), removed(PRIMARY, A0.key))
    record(A0.prompt, A0.group, at, A0.key)
    process.take(stored(PRIMARY, A0.key))
    assert held(process, A0) == {CPU, AT_A}
    process.take(removed(TIER_A, A0.key))
    process.drain()
    assert held(process, A0) == {CPU}
    assert process.handed_out[-1] == removal(TIER_A, A0.hashes, A0)
    assert seen.lives(store) == ["a0 at CPU: demoted", "a0 at STORAGE/a: demoted", "a0 at CPU: open"]


def test_a_store_after_the_removal_in_the_same_batch_is_full(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key))
    process.take(removed(PRIMARY, A0.key), stored(TIER_A, A0.key, flag=True))
    process.drain()
    assert process.handed_out[1:] == [removal(PRIMARY, A0.hashes, A0), full_store(TIER_A, A0)]
    assert held(process, A0) == {AT_A}
    assert seen.lives(store) == ["a0 at CPU: evicted", "a0 at STORAGE/a: open"]


def test_a_store_in_a_batch_after_the_last_removal_is_full(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key))
    process.take(removed(PRIMARY, A0.key))
    assert held(process, A0) == set()
    process.take(stored(PRIMARY, A0.key))
    process.drain()
    assert process.handed_out[-1] == full_store(PRIMARY, A0)
    assert held(process, A0) == {CPU}
    assert seen.lives(store) == ["a0 at CPU: evicted", "a0 at CPU: open"]


def test_a_removal_after_the_second_record_does_not_cost_the_store_its_metadata(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key))
    A0.record_store(process.tracker)
    process.take(removed(PRIMARY, A0.key))
    process.take(stored(PRIMARY, A0.key))
    process.drain()
    full = full_store(PRIMARY, A0)
    assert process.handed_out == [full, removal(PRIMARY, A0.hashes, A0), full]
    assert held(process, A0) == {CPU}
    assert seen.lives(store) == ["a0 at CPU: evicted", "a0 at CPU: open"]


def test_a_tier_that_stores_again_what_it_holds_is_published_once(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True))
    process.take(stored(TIER_A, A0.key, flag=True))
    process.take(removed(TIER_A, A0.key), removed(PRIMARY, A0.key))
    process.drain()
    assert process.handed_out == [full_store(TIER_A, A0), removal(TIER_A, A0.hashes, A0)]
    assert held(process, A0) == set()
    assert seen.log(store) == [
        "described a0",
        "stored a0 at STORAGE/a",
        "stored a0 at STORAGE/a repeated",
        "removed a0 at STORAGE/a: evicted",
        "removed a0 at CPU: unmatched",
    ]
    assert seen.lives(store) == ["a0 at STORAGE/a: evicted"]


def test_a_store_only_tier_pins_nothing(store: Path, start: Start) -> None:
    process = start(Settings(retained_bytes=0))
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key), stored(STORE_ONLY, A0.key))
    process.take(removed(PRIMARY, A0.key))
    process.drain()
    assert process.handed_out[1] == full_store(STORE_ONLY, A0)
    assert (held(process, A0), process.tracker.metadata(A0.key)) == (set(), None)
    assert seen.lives(store) == ["a0 at CPU: demoted", "a0 at STORAGE: open"]


def test_a_store_only_chunk_that_memory_forgot_keeps_its_residency_and_its_number(store: Path, start: Start) -> None:
    process = start(Settings(retained_bytes=0))
    A0.record_store(process.tracker)
    process.take(stored(STORE_ONLY, A0.key), removed(PRIMARY, A0.key))
    process.drain()
    assert process.tracker.metadata(A0.key) is None
    A0.record_store(process.tracker)
    process.take(stored(STORE_ONLY, A0.key))
    process.drain()
    assert seen.lives(store) == ["a0 at STORAGE: open"]
    assert seen.numbers(store) == [("a0", 1)]
    assert process.handed_out == [full_store(STORE_ONLY, A0)] * 2


def test_a_removal_at_a_tier_that_does_not_hold_the_chunk_changes_nothing(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    B0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True), stored(TIER_B, B0.key, flag=True))
    process.take(removed(TIER_B, A0.key))
    process.drain()
    assert process.handed_out == [full_store(TIER_A, A0), full_store(TIER_B, B0)]
    assert process.tracker.places(A0.key) == {TIER_A}
    assert process.tracker.unmatched_removals == 1
    assert seen.log(store)[-1] == "removed a0 at STORAGE/b: unmatched"
    assert seen.lives(store) == ["a0 at STORAGE/a: open", "b0 at STORAGE/b: open"]


def test_a_removal_of_a_chunk_that_the_log_never_heard_of_is_logged_and_not_published(
    store: Path, start: Start
) -> None:
    process = start()
    process.take(stored(TIER_A, B0.key, flag=True))
    process.take(removed(TIER_A, A0.key))
    process.drain()
    assert process.handed_out == [placeholder(TIER_A, B0)]
    assert process.tracker.unmatched_removals == 1
    assert seen.log(store)[2:] == ["named a0", "removed a0 at STORAGE/a: unmatched"]
    assert seen.lives(store) == ["b0 at STORAGE/a: open"]


def test_a_placeholder_is_announced_again_once_its_chunk_is_described(store: Path, start: Start) -> None:
    process = start()
    process.take(stored(TIER_A, FOUR.key, flag=True))
    FOUR.record_store(process.tracker)
    process.take(stored(TIER_A, FOUR.key, flag=True))
    process.drain()
    assert process.handed_out == [
        placeholder(TIER_A, FOUR),
        removal(TIER_A, [FOUR.own_hash], FOUR),
        full_store(TIER_A, FOUR),
    ]
    assert seen.log(store) == [
        "named four",
        "stored four at STORAGE/a placeholder",
        "described four",
        "stored four at STORAGE/a repeated",
    ]
    assert seen.lives(store) == ["four at STORAGE/a: open"]


def test_a_hash_that_two_chunks_carry_stays_credited_after_a_restart_and_one_removal(start: Start) -> None:
    first = start()
    A0.record_store(first.tracker)
    B0.record_store(first.tracker)
    first.take(stored(TIER_A, A0.key, B0.key, flag=True))
    told = first.drain()
    first.kill()
    second = start()
    told += second.take(removed(TIER_A, A0.key)) + second.drain()
    (shared,) = set(A0.hashes) & set(B0.hashes)
    stores = sum(event.block_hashes.count(shared) for event in told if type(event).__name__ == "BlockStored")
    removals = sum(event.block_hashes.count(shared) for event in told if type(event).__name__ == "BlockRemoved")
    assert stores - removals == 1


def test_every_member_is_named_by_a_removal_after_a_crash(store: Path, start: Start) -> None:
    first = start()
    FOUR.record_store(first.tracker)
    first.take(stored(TIER_A, FOUR.key, flag=True))
    first.drain()
    first.kill()
    second = start(Settings(announce="none"))
    second.take(removed(TIER_A, FOUR.key))
    second.drain()
    assert second.handed_out == [removal(TIER_A, [1, 2, 3, 4], FOUR)]
    assert seen.lives(store) == ["four at STORAGE/a: evicted"]


def test_a_reset_ends_what_is_in_memory_and_keeps_what_is_on_storage(store: Path, start: Start) -> None:
    process = start()
    for sample in (A0, B0, FOUR):
        sample.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key, B0.key, FOUR.key), stored(TIER_A, A0.key, B0.key, flag=True))
    process.drain()
    process.tracker.reset()
    told = process.drain()
    ended = [one for one in told if one.medium == "CPU"]
    assert ended == [removal(PRIMARY, A0.hashes + B0.hashes, A0), removal(PRIMARY, FOUR.hashes, FOUR)]
    # Survivors: removals for both, since they share a hash, then stores.
    survivors = [one for one in told if one.medium == "STORAGE"]
    assert survivors == [removal(TIER_A, A0.hashes + B0.hashes, A0), full_store(TIER_A, A0), full_store(TIER_A, B0)]
    assert held(process, A0) == {AT_A}
    assert held(process, FOUR) == set()
    assert seen.log(store)[-1] == "cache_reset"
    assert seen.lives(store) == [
        "a0 at CPU: cache_reset",
        "b0 at CPU: cache_reset",
        "four at CPU: cache_reset",
        "a0 at STORAGE/a: open",
        "b0 at STORAGE/a: open",
    ]


def test_a_removal_uses_up_the_hold_of_a_lookup_until_the_next_hit(start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    A0.record_lookup(process.tracker)
    assert held(process, A0) == {CPU}
    process.take(removed(PRIMARY, A0.key))
    assert held(process, A0) == set()
    A0.record_lookup(process.tracker)
    assert held(process, A0) == {CPU}
    assert process.tracker.metadata(A0.key) == A0.metadata


def test_lookups_that_miss_hold_nothing(start: Start) -> None:
    # A miss makes no call at all: what the tracker is asked about meanwhile leaves no trace.
    process = start()
    for number in range(100_000):
        assert not process.tracker.places(number.to_bytes(36, "big"))
    assert len(process.tracker.pending) == len(process.tracker.index.chunks) == 0
