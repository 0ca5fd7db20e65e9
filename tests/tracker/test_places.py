"""How places are told apart, named and found to announce removals."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eventstore.domain.errors import BadInput
from eventstore.domain.place import Medium, Place
from eventstore.domain.policy import PolicyTable, TierPolicy
from tests.scheduler import RawEvent, removed, stored
from tests.tracker import seen
from tests.tracker.process import Start
from tests.tracker.published import full_store, placeholder, removal
from tests.tracker.samples import A0, A1, B0, LORA, PEER, PRIMARY, STORE_ONLY, TIER_A, TIER_B
from tracker.settings import Settings


def test_two_owners_in_one_medium_are_two_places(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True), stored(TIER_B, A0.key, flag=True), removed(TIER_A, A0.key))
    process.drain()
    assert process.tracker.places(A0.key) == {TIER_B}
    assert process.handed_out == [
        full_store(TIER_A, A0),
        full_store(TIER_B, A0),
        removal(TIER_A, A0.hashes, A0),
    ]
    assert seen.lives(store) == ["a0 at STORAGE/a: demoted", "a0 at STORAGE/b: open"]


def test_an_owner_in_the_primary_medium_is_not_the_primary(start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(PEER, A0.key, flag=True), removed(PRIMARY, A0.key))
    assert process.tracker.places(A0.key) == {PEER}


@pytest.mark.parametrize("word", ["STORAGE", "FS", "OBJ", "DISK"])
def test_words_of_other_versions_name_storage_and_are_kept(store: Path, start: Start, word: str) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(RawEvent([A0.key], word, False, None, "a", True))
    process.take(stored(TIER_A, A0.key, flag=True))
    process.drain()
    assert process.tracker.places(A0.key) == {TIER_A}
    (event,) = process.handed_out
    assert (event.medium, event.ownership) == (word, "a")
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT medium, ownership, word FROM place WHERE ownership = 'a'").fetchall()
    assert rows == [("STORAGE", "a", word)]


def test_a_medium_that_nobody_knows_is_refused(start: Start) -> None:
    process = start()
    with pytest.raises(BadInput, match="unknown medium 'TAPE'"):
        process.take(RawEvent([A0.key], "TAPE", False))


def test_a_locality_travels_with_its_event(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True, locality="REMOTE"), removed(TIER_A, A0.key, locality="LOCAL"))
    process.drain()
    assert [event.locality for event in process.handed_out] == ["REMOTE", "LOCAL"]
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT locality FROM events WHERE medium = 'STORAGE' ORDER BY seq").fetchall()
    assert rows == [("REMOTE",), ("LOCAL",)]


def test_the_primary_is_in_the_log_where_the_first_calls_brought_no_event(store: Path, start: Start) -> None:
    process = start()
    process.take()
    process.take()
    A0.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key))
    process.drain()
    assert seen.lives(store) == ["a0 at CPU: open"]


def test_a_place_announces_removals_from_the_first_store_that_says_so(start: Start) -> None:
    process = start()
    process.take(stored(TIER_A, A0.key))
    assert process.tracker.places(A0.key) == set()
    process.take(stored(TIER_A, B0.key, flag=True))
    process.take(stored(TIER_A, A1.key))
    assert process.tracker.places(B0.key) == process.tracker.places(A1.key) == {TIER_A}


def test_a_place_that_once_announced_removals_does_so_in_the_next_process(start: Start) -> None:
    first = start()
    first.take(stored(TIER_A, A0.key, flag=True))
    first.drain()
    first.kill()
    second = start()
    assert second.tracker.places(A0.key) == {TIER_A}
    second.take(stored(TIER_A, B0.key))
    assert second.tracker.places(B0.key) == {TIER_A}


def test_what_was_stored_before_the_place_announced_removals_is_removed_by_name(store: Path, start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key))
    process.take(stored(TIER_A, B0.key, flag=True))
    process.take(removed(TIER_A, A0.key))
    process.drain()
    assert process.handed_out[-1] == removal(TIER_A, A0.hashes, A0)
    assert process.tracker.unmatched_removals == 0
    assert seen.log(store)[-1] == "removed a0 at STORAGE/a: evicted"


def test_what_never_was_at_a_place_is_unmatched_though_the_log_knew_the_place_before(store: Path, start: Start) -> None:
    first = start()
    first.take(removed(TIER_A, A1.key))
    first.drain()
    first.kill()
    second = start(Settings(announce="none"))
    second.take(stored(TIER_A, B0.key, flag=True), removed(TIER_A, A0.key))
    second.drain()
    assert second.handed_out == [placeholder(TIER_A, B0)]
    assert second.tracker.unmatched_removals == 1
    assert seen.log(store)[-1] == "removed a0 at STORAGE/a: unmatched"


def test_a_survivor_that_memory_does_not_know_is_not_announced_once_it_is_gone(start: Start) -> None:
    # Stored before the place said that it announces removals; its turn to be announced comes after its removal.
    first = start()
    for sample in (A1, LORA, A0):
        first.take(stored(TIER_A, sample.key))
    first.drain()
    # One more commit, which says that those before were handed out.
    first.take(removed(PRIMARY, A0.key))
    first.drain()
    first.kill()
    second = start(Settings(survivors_a_call=1), tail_ns=0)
    second.settle()
    second.take(stored(TIER_A, B0.key, flag=True), removed(TIER_A, A0.key))
    second.drain()
    of_a0 = [type(event).__name__ for event in second.handed_out if event.block_hashes == [A0.own_hash]]
    assert of_a0[-1] == "BlockRemoved"


def test_a_policy_beats_the_flag(start: Start) -> None:
    policies = PolicyTable({TIER_A: TierPolicy(announces_removals=False), TIER_B: TierPolicy(announces_removals=True)})
    process = start(Settings(policies=policies))
    process.take(stored(TIER_A, A0.key, flag=True), stored(TIER_B, B0.key))
    assert process.tracker.places(A0.key) == set()
    assert process.tracker.places(B0.key) == {TIER_B}


@pytest.mark.parametrize(
    ("place", "announces", "flag", "disagreements"),
    [
        (TIER_A, True, True, 0),
        (TIER_A, True, False, 1),
        (TIER_A, False, True, 1),
        (TIER_A, False, False, 0),
        (STORE_ONLY, True, False, 1),
        (STORE_ONLY, False, True, 1),
        (TIER_A, None, True, 0),
        (PRIMARY, None, False, 0),
        (PRIMARY, None, True, 0),
    ],
)
def test_a_flag_that_disagrees_with_a_policy_is_counted(
    start: Start, place: Place, announces: bool | None, flag: bool, disagreements: int
) -> None:
    policies = PolicyTable({place: TierPolicy(announces_removals=announces)}) if announces is not None else None
    process = start(Settings(policies=policies or PolicyTable()))
    process.take(stored(place, A0.key, flag=flag))
    assert process.tracker.places_known.policy_disagreements == disagreements


def test_a_stream_has_room_for_1023_places(start: Start) -> None:
    process = start()
    process.take(*(removed(Place(Medium.STORAGE, f"tier-{number}"), A0.key) for number in range(1022)))
    with pytest.raises(BadInput, match="at most 1023 places"):
        process.take(removed(Place(Medium.STORAGE, "one too many"), A0.key))
