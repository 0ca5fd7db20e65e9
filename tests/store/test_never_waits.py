"""The engine side never waits and never raises, whatever the store does; the trouble shows, and the log tells of it."""

import os
import queue
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger
from tests.lockholder import lock_held
from tests.scheduler import make_hash
from tests.stores import (
    PATIENCE_S,
    describe,
    findings,
    kinds,
    make_store,
    reading,
    session_on,
    settle,
    store_chunk,
)
from tracker.session import Session

CALLS = 10_000
#: Each call makes two events, so half as many calls fit.
ROOM = 1_000


class Told:
    """What the writer says of its troubles, for a test to wait for."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.warn = self._said.put

    def next(self) -> str:
        """The next thing that it says."""
        return self._said.get(timeout=PATIENCE_S)

    def next_while_storing(self, session: Session, first: int) -> tuple[str, int]:
        """The same, storing chunks from number `first` on until it is said; and the number of the next chunk."""
        for number in range(first, first + 3_000):
            store_chunk(session.tracker, number, PRIMARY)
            try:
                return self._said.get(timeout=0.01), number + 1
            except queue.Empty:
                continue
        raise AssertionError("nothing was said")


def stored_hashes(out: list[Any]) -> list[int]:
    return [one for made in out for one in made.block_hashes]


def hashes_of(numbers: range) -> list[int]:
    return [int.from_bytes(make_hash(number)[-8:], "big") for number in numbers]


def lost_by_the_log(path: Path) -> list[int]:
    with reading(path) as (connection, _):
        return list(connection.exec_driver_sql("SELECT lost FROM gaps ORDER BY seq").scalars())


def test_ten_thousand_calls_return_while_another_process_holds_the_lock(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path))
    with session_on(engine, outbox_events=ROOM) as session, lock_held(path) as holder:
        for number in range(CALLS):
            store_chunk(session.tracker, number, PRIMARY)
        assert holder.holds()
        assert session.tracker.outbox.committed_events == 0
    engine.dispose()


@pytest.mark.parametrize("patience_ms", [5_000, 20], ids=["waiting_for_the_lock", "asking_again"])
def test_after_the_lock_the_log_has_what_fitted_and_the_right_gap(tmp_path: Path, patience_ms: int) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path), busy_timeout_ms=patience_ms)
    out: list[Any] = []
    with session_on(engine, outbox_events=ROOM) as session, lock_held(path) as holder:
        for number in range(CALLS):
            out += store_chunk(session.tracker, number, PRIMARY)
        holder.let_go()
        out += settle(session)
    engine.dispose()
    assert kinds(path) == ["epoch_started", *["chunk_described", "chunk_stored"] * (ROOM // 2), "gap"]
    assert lost_by_the_log(path) == [2 * CALLS - ROOM]
    assert findings(path) == []
    # What the log has lost was published all the same, once and in order.
    assert stored_hashes(out) == hashes_of(range(CALLS))
    (shown,) = kvledger("status", "--store", path, "--json").json()["streams"]
    assert (shown["gaps"], shown["lost"]) == (1, 2 * CALLS - ROOM)


def test_a_stopped_holder_of_the_lock_stops_nobody_else(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path), busy_timeout_ms=20)
    told = Told()
    with session_on(engine, outbox_events=ROOM, warn=told.warn) as session:
        with lock_held(path) as holder:
            holder.stop()
            for number in range(CALLS):
                store_chunk(session.tracker, number, PRIMARY)
            assert holder.holds()
            assert "another process holds its lock" in told.next()
        settle(session)
        assert "takes commits again" in told.next()
        assert session.writer.trouble == ""
    engine.dispose()
    assert lost_by_the_log(path) == [2 * CALLS - ROOM]


def limit_pages(engine: Engine) -> dict[str, int]:
    """A disk that ends: connections opened from now on may fill the database up to "most" pages."""
    limit = {"most": 0}

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        if limit["most"]:
            connection.execute(f"PRAGMA max_page_count = {limit['most']}")

    return limit


def test_a_full_disk_costs_a_gap_and_the_writer_goes_on_once_there_is_room(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path))
    limit = limit_pages(engine)
    told, out = Told(), list[Any]()
    with session_on(engine, outbox_events=ROOM, warn=told.warn) as session:
        with engine.connect() as connection:
            limit["most"] = connection.exec_driver_sql("PRAGMA page_count").scalar_one() + 20
        for number in range(CALLS):
            out += store_chunk(session.tracker, number, PRIMARY)
        assert "no room left" in told.next()
        limit["most"] = 0
        out += settle(session)
        assert "takes commits again" in told.next()
    engine.dispose()
    logged = kinds(path)
    assert logged[0] == "epoch_started"
    assert logged[-1] == "gap"
    facts = [kind for kind in logged if kind not in ("epoch_started", "gap")]
    assert len(facts) >= ROOM
    assert len(facts) + sum(lost_by_the_log(path)) == 2 * CALLS
    assert findings(path) == []
    assert stored_hashes(out) == hashes_of(range(CALLS))


def test_a_file_that_is_moved_away_is_noticed_and_nothing_is_lost_once_it_is_back(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path))
    told = Told()
    with session_on(engine, warn=told.warn) as session:
        store_chunk(session.tracker, 0, PRIMARY)
        settle(session)
        path.rename(tmp_path / "elsewhere.db")
        said, stored = told.next_while_storing(session, 1)
        assert "removed or replaced" in said
        (tmp_path / "elsewhere.db").rename(path)
        settle(session)
        assert "takes commits again" in told.next()
    engine.dispose()
    assert kinds(path) == ["epoch_started", *["chunk_described", "chunk_stored"] * stored]
    assert findings(path) == []


def test_a_removed_file_leaves_the_tracker_going_in_memory(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path))
    told = Told()
    with session_on(engine, outbox_events=ROOM, degraded_after_ms=0, warn=told.warn) as session:
        store_chunk(session.tracker, 0, PRIMARY)
        settle(session)
        for part in tmp_path.glob("k.db*"):
            part.unlink()
        _, stored = told.next_while_storing(session, 1)
        for number in range(stored, stored + CALLS):
            out = store_chunk(session.tracker, number, PRIMARY)
        assert stored_hashes(out)[-1:] == hashes_of(range(stored + CALLS - 1, stored + CALLS))
        assert session.tracker.outbox.lost_events > 0
        assert session.writer.trouble
        session.abandon(deadline_s=0)
    engine.dispose()
    assert list(tmp_path.iterdir()) == []


def test_a_file_put_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    path, other = make_store(tmp_path / "k.db"), make_store(tmp_path / "other.db")
    content = other.read_bytes()
    engine, _ = open_for_writing(str(path))
    told = Told()
    with session_on(engine, degraded_after_ms=0, warn=told.warn) as session:
        store_chunk(session.tracker, 0, PRIMARY)
        settle(session)
        os.replace(other, path)
        said, stored = told.next_while_storing(session, 1)
        assert "removed or replaced" in said
        failures = session.writer.failures
        for number in range(stored, stored + 100_000):
            assert stored_hashes(store_chunk(session.tracker, number, PRIMARY)) == hashes_of(range(number, number + 1))
            if session.writer.failures >= failures + 2:
                break
        assert session.writer.failures >= failures + 2
        session.abandon(deadline_s=0)
    engine.dispose()
    assert path.read_bytes() == content


def test_closing_gives_up_at_its_deadline_while_the_lock_is_held(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path), busy_timeout_ms=20)
    with session_on(engine) as session, lock_held(path) as holder:
        store_chunk(session.tracker, 0, PRIMARY)
        assert session.close(deadline_s=0.05) is False
        assert holder.holds()
        assert session.tracker.outbox.backlog > 0
    engine.dispose()


def test_closing_with_a_full_outbox_ends_the_epoch_after_the_gap(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    engine, _ = open_for_writing(str(path))
    with session_on(engine, outbox_events=2) as session, lock_held(path) as holder:
        for number in range(3):
            store_chunk(session.tracker, number, PRIMARY)
        describe(session.tracker, 3)
        holder.let_go()
        assert session.close() is True
    engine.dispose()
    assert kinds(path)[:3] == ["epoch_started", "chunk_described", "chunk_stored"]
    assert kinds(path)[-1] == "epoch_ended"
    assert findings(path) == []
