"""Several real processes and one store: takeovers, forks, forgotten sessions."""

import queue
import sqlite3
import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.stores import PATIENCE_S, findings, kinds, reading, session_on, settle, store_chunk

ROOT = Path(__file__).parent.parent.parent


def scene(name: str, path: Path) -> "subprocess.Popen[str]":
    """Start a scene of `tests.store.engines`."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.store.engines", name, str(path)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_a_process_whose_stream_was_taken_over_appends_nothing_more(engine: Engine, path: Path) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with session_on(engine, warn=told.put) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
        newer = scene("takes_over", path)
        assert newer.stdout is not None
        assert newer.stdout.readline() == "stored\n"
        store_chunk(session.tracker, 2, PRIMARY)
        assert "epoch 1 of stream 1 is over" in told.get(timeout=PATIENCE_S)
        assert session.writer.wait_idle(PATIENCE_S) is False
        newer.communicate("go on\nend\n", timeout=PATIENCE_S)
    assert newer.returncode == 0
    assert kinds(path) == [
        *("epoch_started", "chunk_described", "chunk_stored"),
        *("epoch_started", "chunk_described", "chunk_stored", "chunk_described", "chunk_stored"),
    ]
    assert findings(path) == []


def test_a_process_whose_stream_was_taken_over_still_publishes(engine: Engine, path: Path) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with session_on(engine, warn=told.put) as session:
        with session_on(engine):
            store_chunk(session.tracker, 1, PRIMARY)
            told.get(timeout=PATIENCE_S)
        out = session.tracker.take_events(())
        assert len(out) == 1


def test_a_process_that_forgets_to_close_ends_by_itself(path: Path) -> None:
    done = scene("forgets_to_close", path)
    _, err = done.communicate(timeout=PATIENCE_S)
    assert (done.returncode, err) == (0, "")
    assert kinds(path) == ["epoch_started", "chunk_described", "chunk_stored"]
    assert findings(path) == []


def test_parent_and_child_of_a_fork_go_on_and_the_store_is_whole(path: Path) -> None:
    family = scene("forks", path)
    out, err = family.communicate(timeout=PATIENCE_S)
    assert (family.returncode, err) == (0, "")
    # The child has the parent's events published at once, since nobody in it commits any.
    assert out.splitlines() == ["handed out 1", "kept open True", "child ended with 0"]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    # The epoch's beginning, two events a chunk, and the parent's clean end.
    for stream, events in (("parent", 1 + 2 * 102 + 1), ("child", 1 + 2 * 100)):
        assert findings(path, stream) == []
        with reading(path, stream) as (_, row):
            assert row.last_seq == events


def test_a_child_that_outlives_its_parent_loses_nothing_to_a_third_process(path: Path) -> None:
    family = scene("outlives_its_parent", path)
    assert family.stdout is not None
    assert family.stdin is not None
    assert family.stdout.readline() == "stored\n"
    assert family.wait(PATIENCE_S) == 0
    # Were this the last to have the store open, it would take the write-ahead log away from under the child.
    open_for_writing(str(path))[0].dispose()
    family.stdin.write("go on\n")
    family.stdin.flush()
    assert family.stdout.readline() == "stored\n"
    family.communicate(timeout=PATIENCE_S)
    assert kinds(path, "child") == ["epoch_started", *["chunk_described", "chunk_stored"] * 2]
