"""Transactions begin as writers, readers hold nobody up, and every connection is set as it was asked to be."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.pool import NullPool

from eventstore.domain.errors import StoreBusy, StoreUnusable
from eventstore.log.append import append
from eventstore.log.read import events
from eventstore.log.stream import one_stream
from eventstore.storage.engine import Synchronous, configure
from eventstore.storage.store import open_for_reading, open_for_writing
from tests.store.batches import append_alone, open_hand

#: Tries once, without waiting, to commit a write of its own.
_OTHER_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("UPDATE stream SET heartbeat_ns = 7")
    print("committed")
except sqlite3.OperationalError as error:
    print(error)
"""


def other_process_writes(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", _OTHER_WRITER, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nobody_else_commits_between_our_read_and_our_write(engine: Engine, path: Path) -> None:
    hand = open_hand(engine)
    with engine.begin() as connection:
        assert one_stream(connection, None).last_seq == 1
        # Had it committed, our write would fail at once, however long we are ready to wait.
        assert other_process_writes(path) == "database is locked"
        append(connection, hand.stores(1))
    assert other_process_writes(path) == "committed"


def test_a_second_writer_is_told_that_the_store_is_busy(engine: Engine, path: Path) -> None:
    hand = open_hand(engine)
    impatient, _ = open_for_writing(str(path), busy_timeout_ms=0)
    with engine.begin(), pytest.raises(StoreBusy, match="another process holds its lock"):
        append_alone(impatient, hand.stores(1))
    impatient.dispose()


def test_a_pinned_reader_holds_no_writer_up_and_sees_what_it_began_with(engine: Engine, path: Path) -> None:
    hand = open_hand(engine)
    reader = open_for_reading(str(path))
    with reader.begin() as pinned:
        assert one_stream(pinned, None).last_seq == 1
        for number in range(5):
            append_alone(engine, hand.done(hand.stores(number)))
        assert one_stream(pinned, None).last_seq == 1
    with reader.begin() as connection:
        assert one_stream(connection, None).last_seq == hand.last_seq
    reader.dispose()


def checkpoint(engine: Engine) -> tuple[int, ...]:
    """Copy the whole write-ahead log into the database: (1 where a reader was in the way, frames, frames copied)."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        return tuple(connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one())


def test_reading_page_by_page_pins_nothing_between_two_pages(path: Path) -> None:
    engine, _ = open_for_writing(str(path), busy_timeout_ms=0)
    hand = open_hand(engine)
    append_alone(engine, hand.done(hand.stores(*range(3_000))))
    reader = open_for_reading(str(path))
    with reader.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        pages = events(connection, hand.stream)
        assert next(pages).seq == 1
        append_alone(engine, hand.done(hand.stores(3_000)))
        assert checkpoint(engine) == (0, 0, 0)
        assert [event.seq for event in pages] == list(range(2, hand.last_seq + 1))
    reader.dispose()
    engine.dispose()


@pytest.mark.parametrize(("asked", "code"), [("normal", 1), ("full", 2)])
def test_synchronous_is_what_was_asked(path: Path, asked: Synchronous, code: int) -> None:
    engine, _ = open_for_writing(str(path), synchronous=asked)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == code
    engine.dispose()


def test_a_place_where_no_write_ahead_log_is_possible_is_refused(tmp_path: Path) -> None:
    # SQLite's locking by dot-files has no shared memory, as some network file systems have none.
    path = tmp_path / "k.db"
    query = {"vfs": "unix-dotfile", "uri": "true"}
    engine = create_engine(URL.create("sqlite", database=f"file:{path}", query=query), poolclass=NullPool)
    configure(engine, str(path), read_only=False, synchronous="normal")
    with pytest.raises(StoreUnusable, match="no write-ahead log is possible"):
        engine.connect()


def test_a_reader_cannot_write(path: Path, engine: Engine) -> None:
    open_hand(engine)
    reader = open_for_reading(str(path))
    with reader.begin() as connection, pytest.raises(StoreUnusable, match="is read-only"):
        connection.exec_driver_sql("DELETE FROM event")
    reader.dispose()


def test_a_reader_is_told_to_query_only(path: Path) -> None:
    reader = open_for_reading(str(path))
    with reader.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA query_only").scalar_one() == 1
    reader.dispose()


def test_a_reader_never_copies_the_write_ahead_log_into_the_database(path: Path, engine: Engine) -> None:
    with engine.connect():  # while this is open, nobody is the last to close
        open_hand(engine)
        before = path.read_bytes()
        reader = open_for_reading(str(path))
        with pytest.raises(StoreUnusable):
            checkpoint(reader)
        reader.dispose()
        assert path.read_bytes() == before
