"""One writer a stream on a host: who waits, who is refused, and when the stream is free again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.stores import PATIENCE_S
from tracker.lock import StreamLock, StreamTaken

_HOLD = """
import sys
from pathlib import Path
from tracker.lock import StreamLock
lock = StreamLock(Path(sys.argv[1]), sys.argv[2], 0)
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(store: Path, stream: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process writes the stream until it is killed or the block ends."""
    command = [sys.executable, "-c", _HOLD, str(store), stream]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_stream_that_a_live_process_writes_is_refused_in_one_line_that_names_it(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    with held(store, "a") as process, pytest.raises(StreamTaken) as refusal:
        StreamLock(store, "a", 0)
    told = str(refusal.value)
    assert told.startswith(f"stream 'a' is being written by another live process (process {process.pid}); waited 0 s.")
    assert "kvledger.stream" in told
    assert "\n" not in told


def test_a_stream_is_taken_over_once_its_process_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    waits: list[str] = []
    with held(store, "a") as process:

        def kill(said: str) -> None:
            waits.append(said)
            process.kill()

        StreamLock(store, "a", PATIENCE_S, kill).release()
    # One word of the wait, however long it is.
    assert waits == [f"stream 'a' is held by a live process (process {process.pid}); waiting up to 60 s for its end"]


def test_another_stream_of_the_same_store_is_free(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    with held(store, "a"):
        StreamLock(store, "b", 0).release()


def test_a_released_stream_is_free(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    StreamLock(store, "a", 0).release()
    with held(store, "a"):
        pass


def test_a_child_that_outlives_its_parents_lock_does_not_keep_it(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    lock = StreamLock(store, "a", 0)
    born, live = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(born[1], b"!")
        # Lives until the parent says so.
        os.read(live[0], 1)
        os._exit(0)
    os.read(born[0], 1)
    lock.release()
    StreamLock(store, "a", 0).release()
    os.write(live[1], b"!")
    os.waitpid(child, 0)
    for end in born + live:
        os.close(end)


def test_a_child_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    lock = StreamLock(store, "a", 0)
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(StreamTaken):
        StreamLock(store, "a", 0)
    lock.release()
