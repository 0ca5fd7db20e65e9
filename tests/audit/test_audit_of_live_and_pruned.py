"""An audit of a store that is being written, or whose beginning is gone."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import Connection

from eventstore.audit.against_log import views_against_log
from eventstore.audit.stats import stats
from eventstore.domain.place import PRIMARY
from eventstore.log.stream import one_stream
from eventstore.storage.store import open_for_reading, open_for_writing
from tests.audit.conftest import Tellings
from tests.scheduler import removed
from tests.stores import chunk, session_on, settle, store_chunk, take

NAME = "two_tier"


def audited(store: Path) -> int:
    """How many differences there are."""
    engine = open_for_reading(str(store))
    try:
        with engine.connect() as connection:
            with connection.begin():
                stream = one_stream(connection, None)
            return views_against_log(connection, stream, lambda _seq: None).count
    finally:
        engine.dispose()


def test_what_is_written_during_an_audit_is_no_finding(copy: Path) -> None:
    writing, reading = open_for_writing(str(copy))[0], open_for_reading(str(copy))
    with session_on(writing, NAME) as session, reading.connect() as connection:
        settle(session)
        with connection.begin():
            stream = one_stream(connection, NAME)
        written: list[int] = []

        def meanwhile(seq: int) -> None:
            number = 1_000 + len(written)
            store_chunk(session.tracker, number, PRIMARY)
            if written:
                take(session.tracker, removed(PRIMARY, chunk(number - 1)))
            settle(session)
            written.append(seq)

        found = views_against_log(connection, stream, meanwhile)
        with connection.begin():
            assert one_stream(connection, NAME).last_seq > stream.last_seq
    reading.dispose()
    writing.dispose()
    assert (found.count, len(written) > 1) == (0, True)


def test_between_two_pages_no_transaction_is_open(told: Tellings) -> None:
    with told(NAME).connect() as connection:
        with connection.begin():
            stream = one_stream(connection, None)
        between: list[bool] = []

        def note(_seq: int) -> None:
            between.append(connection.in_transaction())

        views_against_log(connection, stream, note)
        stats(connection, stream, [1.0], note)
    assert len(between) > 4
    assert not any(between)


def prune(connection: Connection, floor: int) -> None:
    """Drop the events before `floor`, and what only they need."""
    connection.exec_driver_sql("DELETE FROM event WHERE seq < ?", (floor,))
    connection.exec_driver_sql("DELETE FROM payload WHERE chunk = 0 AND seq < ?", (floor,))
    connection.exec_driver_sql("DELETE FROM closed_residency WHERE closed_seq < ?", (floor,))
    connection.exec_driver_sql("UPDATE stream SET floor_seq = ?", (floor,))


@pytest.fixture
def pruned(copy: Path) -> Path:
    """Without its first process, and then some: residencies older than the floor still end and still stand."""
    engine, _ = open_for_writing(str(copy))
    with engine.begin() as connection:
        (floor,) = connection.exec_driver_sql("SELECT last_seq * 2 / 3 FROM streams").one()
        prune(connection, floor)
        older = connection.exec_driver_sql("SELECT count(*) FROM ended WHERE opened_seq < ?", (floor,)).scalar_one()
    engine.dispose()
    assert older > 0
    return copy


def test_a_log_without_its_beginning_agrees_with_its_views(pruned: Path) -> None:
    assert audited(pruned) == 0


def test_what_a_log_without_its_beginning_cannot_say_is_no_finding(told: Tellings, tmp_path: Path) -> None:
    # The disk of this engine stores again what it holds, and says so each time: how often is lost with the beginning.
    store = Path(shutil.copy(told("store_only").store, tmp_path / "k.db"))
    engine, _ = open_for_writing(str(store))
    with engine.begin() as connection:
        (floor,) = connection.exec_driver_sql("SELECT last_seq * 2 / 3 FROM streams").one()
        prune(connection, floor)
        often = "SELECT count(*) FROM residency WHERE stores > 1 AND opened_seq < ?"
        assert connection.exec_driver_sql(often, (floor,)).scalar_one() > 0
    engine.dispose()
    assert audited(store) == 0


@pytest.mark.parametrize("age", ["opened_seq < (SELECT floor_seq FROM stream)", "opened_seq > 9000"])
def test_a_wrong_end_is_found_in_a_log_without_its_beginning(pruned: Path, age: str) -> None:
    engine, _ = open_for_writing(str(pruned))
    with engine.begin() as connection:
        changed = connection.exec_driver_sql(f"UPDATE closed_residency SET reason = 9 WHERE {age}").rowcount
    engine.dispose()
    assert (audited(pruned), changed > 0) == (changed, True)


def test_durations_of_what_is_older_than_the_log_are_counted_too(told: Tellings, pruned: Path) -> None:
    engine = open_for_reading(str(pruned))
    with engine.connect() as connection:
        with connection.begin():
            stream = one_stream(connection, None)
        found = stats(connection, stream, [1.0])
    engine.dispose()
    lives = told(NAME).lives
    since = [life for life in lives.ended if life.closed and life.closed["seq"] >= stream.floor_seq]
    assert sum(lane.lifetime.count for lane in found.lanes) == len(since)
    longest = max(life.closed["time_ns"] - life.opened["time_ns"] for life in since if life.closed) / 1e9
    assert max(lane.lifetime.max for lane in found.lanes if lane.lifetime.max is not None) == longest
