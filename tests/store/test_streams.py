"""Many engines in one store: each is a stream of its own."""

from contextlib import ExitStack
from pathlib import Path

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.scheduler import removed
from tests.stores import chunk, findings, reading, session_on, settle, store_chunk, take

RANKS = [f"host/dp{rank}" for rank in range(8)]


def test_a_removal_on_one_of_eight_data_parallel_ranks_leaves_the_others(path: Path) -> None:
    with ExitStack() as stack:
        sessions = []
        for name in RANKS:
            engine, _ = open_for_writing(str(path))
            stack.callback(engine.dispose)
            sessions.append(stack.enter_context(session_on(engine, name)))
        for number in range(5):
            for session in sessions:
                store_chunk(session.tracker, number, PRIMARY)
        take(sessions[3].tracker, removed(PRIMARY, chunk(2)))
        for session in sessions:
            settle(session)
    with reading(path, RANKS[0]) as (connection, _):
        there = {(stream, key) for stream, key in connection.exec_driver_sql("SELECT stream, key FROM residency")}
    everywhere = {(name, chunk(number).hex()) for name in RANKS for number in range(5)}
    assert there == everywhere - {(RANKS[3], chunk(2).hex())}


def test_eight_ranks_that_write_at_once_leave_eight_whole_logs(path: Path) -> None:
    with ExitStack() as stack:
        sessions = []
        for name in RANKS:
            engine, _ = open_for_writing(str(path))
            stack.callback(engine.dispose)
            sessions.append(stack.enter_context(session_on(engine, name)))
        for number in range(200):
            for session in sessions:
                store_chunk(session.tracker, number, PRIMARY)
        for session in sessions:
            settle(session)
    for name in RANKS:
        assert findings(path, name) == []
        with reading(path, name) as (_, row):
            assert row.last_seq == 1 + 2 * 200
