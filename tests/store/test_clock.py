"""Wall clocks step back, start in 1970 and run ahead to 2100; order, recovery and the tail do not depend on them."""

from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from eventstore.domain import clock
from eventstore.domain.place import PRIMARY, Medium, Place
from tests.cli.command import kvledger
from tests.scheduler import removed, stored
from tests.stores import chunk, describe, findings, reading, session_on, settle, store_chunk, take
from tracker.session import Session

SECOND = 1_000_000_000
DISK = Place(Medium.STORAGE, "disk")
IN_2100 = 4_102_444_800 * SECOND

CLOCKS: dict[str, Callable[[], Iterator[int]]] = {
    "right": lambda: count(1_700_000_000 * SECOND, SECOND),
    "steps_back": lambda: count(1_700_000_000 * SECOND, -3_600 * SECOND),
    "stands_in_1970": lambda: count(0, 0),
    "jumps_between_1970_and_2100": lambda: cycle((1, IN_2100)),
}


@pytest.fixture(params=CLOCKS, ids=str)
def wall(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The wall clock of the whole process."""
    times = CLOCKS[request.param]()
    monkeypatch.setattr(clock, "wall_ns", lambda: next(times))
    return clock.wall_ns


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The steady clock of the whole process: it stands at "now" until a test moves it."""
    time = {"now": 0}
    monkeypatch.setattr(clock, "steady_ns", lambda: time["now"])
    return time


def store_on_disk(session: Session, number: int) -> None:
    """Describe chunk `number` and store it at a tier that announces removals and survives a restart."""
    describe(session.tracker, number)
    take(session.tracker, stored(DISK, chunk(number), flag=True))
    settle(session)


def told_of(out: list[Any], kind: str) -> list[int]:
    """The chunks that events of one kind name: a chunk's wire hash is its number (tests/scheduler.py)."""
    return [number for made in out if type(made).__name__ == kind for number in made.block_hashes]


def test_the_log_is_in_the_order_of_the_calls(engine: Engine, path: Path, wall: Callable[[], int]) -> None:
    with session_on(engine, now_ns=wall) as session:
        for number in range(20):
            store_chunk(session.tracker, number, PRIMARY)
            settle(session)
    with reading(path) as (connection, _):
        keys = connection.exec_driver_sql("SELECT key FROM events WHERE kind = 'chunk_stored' ORDER BY seq").scalars()
        assert list(keys) == [chunk(number).hex() for number in range(20)]
    assert findings(path) == []


def test_recovery_finds_what_is_resident(engine: Engine, wall: Callable[[], int]) -> None:
    with session_on(engine, now_ns=wall) as session:
        for number in range(4):
            store_on_disk(session, number)
        take(session.tracker, removed(DISK, chunk(2)))
        settle(session)
    with session_on(engine, now_ns=wall) as again:
        resident = [number for number in range(4) if again.tracker.is_resident(chunk(number), DISK)]
    assert resident == [0, 1, 3]


def test_the_tail_is_measured_in_steady_time(engine: Engine, wall: Callable[[], int], steady: dict[str, int]) -> None:
    with session_on(engine, now_ns=wall, announce="closes") as session:
        for number in range(6):
            steady["now"] = number * SECOND
            store_on_disk(session, number)
    with session_on(engine, now_ns=wall, announce="closes") as again:
        told = settle(again)
    # Two seconds before the last commit, at 3, the stores of 0, 1 and 2 had been handed out.
    assert told_of(told, "BlockRemoved") == [3, 4, 5]
    assert told_of(told, "BlockStored") == [3, 4, 5]


def test_every_command_shows_such_a_store(engine: Engine, path: Path, wall: Callable[[], int]) -> None:
    with session_on(engine, now_ns=wall) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        take(session.tracker, removed(PRIMARY, chunk(1)))
        store_chunk(session.tracker, 2, PRIMARY)
        settle(session)
    commands = ("status", "residency", "verify", "replay", "rebuild", ("history", chunk(1).hex()))
    codes = [kvledger(*([one] if isinstance(one, str) else one), "--store", path).code for one in commands]
    assert codes == [0] * len(commands)
