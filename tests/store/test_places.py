"""What the store says of places: why a residency ended, which medium a word means, whose chunk it was."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from eventstore.domain.place import PRIMARY, Medium, Place
from tests.scheduler import RawEvent, removed, stored
from tests.stores import chunk, describe, reading, session_on, settle, store_chunk, take
from tracker.session import Session

DISK, OTHER_DISK = Place(Medium.STORAGE, "disk"), Place(Medium.STORAGE, "other")


def reasons(path: Path) -> list[tuple[str, str, str | None, str]]:
    """(key, medium, owner, reason) of every residency that ended, in the order of the ends."""
    with reading(path) as (connection, _):
        rows = connection.exec_driver_sql(
            "SELECT key, medium, ownership, reason FROM lifecycle WHERE closed_seq IS NOT NULL ORDER BY closed_seq, key"
        )
        return [tuple(row) for row in rows]


def store_at(session: Session, number: int, place: Place) -> None:
    describe(session.tracker, number)
    take(session.tracker, stored(place, chunk(number), flag=place.ownership is not None))


def test_a_removal_of_the_only_copy_is_an_eviction(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        take(session.tracker, removed(PRIMARY, chunk(1)))
        settle(session)
    assert reasons(path) == [(chunk(1).hex(), "CPU", None, "evicted")]


def test_a_removal_of_one_copy_of_several_is_a_demotion(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_at(session, 1, PRIMARY)
        store_at(session, 1, DISK)
        take(session.tracker, removed(PRIMARY, chunk(1)))
        settle(session)
    assert reasons(path) == [(chunk(1).hex(), "CPU", None, "demoted")]


def test_a_removal_of_metadata_alone_says_so(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_at(session, 1, DISK)
        take(session.tracker, removed(DISK, chunk(1), metadata_only=True))
        settle(session)
    assert reasons(path) == [(chunk(1).hex(), "STORAGE", "disk", "metadata_only")]


def test_a_reset_ends_the_primary_alone(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_at(session, 1, PRIMARY)
        store_at(session, 2, DISK)
        session.tracker.reset()
        settle(session)
    assert reasons(path) == [(chunk(1).hex(), "CPU", None, "cache_reset")]


def test_what_was_stored_before_a_reset_is_ended_by_it(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        # The manager's pending events, taken in right before the reset as its caller must.
        store_at(session, 1, PRIMARY)
        session.tracker.reset()
        take(session.tracker, stored(PRIMARY, chunk(2)))
        settle(session)
    with reading(path) as (connection, _):
        kinds = list(connection.exec_driver_sql("SELECT kind FROM events ORDER BY seq").scalars())
    assert kinds.index("chunk_stored") < kinds.index("cache_reset")
    assert reasons(path) == [(chunk(1).hex(), "CPU", None, "cache_reset")]


def test_a_restart_ends_what_dies_with_the_process(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_at(session, 1, PRIMARY)
        store_at(session, 2, DISK)
        settle(session)
    with session_on(engine):
        pass
    assert reasons(path) == [(chunk(1).hex(), "CPU", None, "engine_restart")]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"engine": "m1"}, {"engine": "m2"}, ["config_changed", "config_changed"]),
        ({"STORAGE/disk": 1, "STORAGE/other": 1}, {"STORAGE/disk": 1, "STORAGE/other": 2}, ["config_changed"]),
        ({"STORAGE/disk": 1, "STORAGE/other": 1}, {"STORAGE/disk": 1}, ["tier_removed"]),
        ({"STORAGE/disk": 1, "STORAGE/other": 1}, {"STORAGE/disk": 1, "STORAGE/other": 1}, []),
    ],
    ids=["another_model", "another_folder", "no_such_tier_any_more", "all_the_same"],
)
def test_a_changed_configuration_ends_what_it_concerns(
    engine: Engine, path: Path, before: dict[str, object], after: dict[str, object], expected: list[str]
) -> None:
    with session_on(engine, opening={"fingerprint": before}) as session:
        store_at(session, 1, DISK)
        store_at(session, 2, OTHER_DISK)
        settle(session)
    with session_on(engine, opening={"fingerprint": after}):
        pass
    assert [reason for _, _, _, reason in reasons(path)] == expected


@pytest.mark.parametrize("word", ["STORAGE", "FS", "OBJ"])
def test_every_version_s_word_for_storage_is_one_medium_and_is_kept(engine: Engine, path: Path, word: str) -> None:
    with session_on(engine) as session:
        describe(session.tracker, 1)
        take(session.tracker, RawEvent([chunk(1)], word, removed=False, ownership="disk"))
        settle(session)
    with reading(path) as (connection, _):
        places = connection.exec_driver_sql("SELECT medium, ownership, word FROM place WHERE ownership = 'disk'")
        assert [tuple(row) for row in places] == [("STORAGE", "disk", word)]


def test_two_owners_in_one_medium_are_two_places(engine: Engine, path: Path) -> None:
    with session_on(engine) as session:
        store_at(session, 1, DISK)
        store_at(session, 1, OTHER_DISK)
        take(session.tracker, removed(DISK, chunk(1)))
        settle(session)
    with reading(path) as (connection, _):
        rows = connection.exec_driver_sql("SELECT medium, ownership FROM residency")
        assert [tuple(row) for row in rows] == [("STORAGE", "other")]
