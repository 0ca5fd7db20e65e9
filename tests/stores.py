"""Stores on disk for tests: made by the migrations, written by real sessions; changes with how a store is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from eventstore.domain.place import Place
from eventstore.log.stream import StreamRow, one_stream
from eventstore.log.verify import Finding, verify
from eventstore.storage.store import open_for_reading, open_for_writing
from tests.scheduler import Layout, Prompt, RawEvent, make_hash, make_key, stored
from tracker.session import Session, this_process
from tracker.settings import Settings
from tracker.tracker import Tracker

#: One block a chunk, the smallest layout that describes.
LAYOUT = Layout(tokens_per_block=4, tokens_per_chunk=4, hashes_per_chunk=1)
#: How long a test waits for another thread or process that has nothing to wait for itself, in seconds.
PATIENCE_S = 60.0


def make_store(path: Path) -> Path:
    """A new, empty store at `path`."""
    open_for_writing(str(path))[0].dispose()
    return path


@contextmanager
def session_on(
    engine: Engine, stream: str = "engine", opening: Mapping[str, Any] | None = None, **chosen: Any
) -> Iterator[Session]:
    """A process's use of `stream`, left as a crash leaves it.

    `opening`: what the process says of itself. `chosen`: settings, and `warn` or `now_ns`.
    """
    given = {name: chosen.pop(name) for name in ("warn", "now_ns") if name in chosen}
    session = Session(engine, this_process(stream, **opening or {}), Settings(**chosen), **given)
    try:
        yield session
    finally:
        session.abandon()


@contextmanager
def reading(path: Path, stream: str | None = None) -> Iterator[tuple[Connection, StreamRow]]:
    """A snapshot of the store and the stream that is meant."""
    engine = open_for_reading(str(path))
    try:
        with engine.begin() as connection:
            yield connection, one_stream(connection, stream)
    finally:
        engine.dispose()


def chunk(number: int) -> bytes:
    """The key of chunk `number`."""
    return make_key(make_hash(number))


def describe(tracker: Tracker, number: int) -> None:
    """The scheduler is about to store chunk `number`, the first of its request."""
    tokens = [number % 1_000, 1, 2, 3]
    tracker.record_store(Prompt([make_hash(number)], tokens), LAYOUT, 0, chunk(number))


def store_chunk(tracker: Tracker, number: int, place: Place) -> list[Any]:
    """Describe chunk `number` and store it at `place`, in one step: two events. Returns what was handed out."""
    describe(tracker, number)
    return tracker.take_events([stored(place, chunk(number))])


def take(tracker: Tracker, *events: RawEvent) -> list[Any]:
    """One step of the scheduler."""
    return tracker.take_events(list(events))


def settle(session: Session) -> list[Any]:
    """Wait until everything is committed and handed out; returns what was handed out meanwhile."""
    out: list[Any] = []
    while True:
        assert session.settle(PATIENCE_S), session.writer.trouble
        out += session.tracker.take_events(())
        if session.tracker.is_quiet:
            return out


def findings(path: Path, stream: str | None = None) -> list[Finding]:
    """What `verify` has to say against a stream."""
    with reading(path, stream) as (connection, row):
        return verify(connection, row).findings


def kinds(path: Path, stream: str | None = None) -> list[str]:
    """The stream's events by kind, in order, as the SQL view `events` words them."""
    with reading(path, stream) as (connection, row):
        rows = connection.exec_driver_sql("SELECT kind FROM events WHERE stream = ? ORDER BY seq", (row.name,))
        return list(rows.scalars())
