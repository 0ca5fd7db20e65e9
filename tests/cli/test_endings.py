"""How a command ends as a process: interrupted, its reader gone, its output closed or full."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger_process
from tests.lockholder import lock_held
from tests.openfiles import has_open
from tests.stores import make_store, session_on, settle, store_chunk

#: More than fits into a pipe that nobody reads.
CHUNKS = 2_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a few thousand events."""
    path = tmp_path_factory.mktemp("store") / "k.db"
    engine, _ = open_for_writing(str(path))
    with session_on(engine) as session:
        for number in range(CHUNKS):
            store_chunk(session.tracker, number, PRIMARY)
        settle(session)
    engine.dispose()
    return path


def first_byte(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait until the process writes."""
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 1)


@pytest.fixture(params=["replay", "residency", "residency --json", "residency --at 4000"])
def talkative(request: pytest.FixtureRequest, store: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that is writing more than a pipe holds."""
    process = kvledger_process(*request.param.split(), "--store", store)
    yield process
    process.kill()
    process.communicate()


def test_a_reader_that_has_seen_enough_ends_a_command_quietly(talkative: "subprocess.Popen[bytes]") -> None:
    assert first_byte(talkative)
    assert talkative.stdout is not None
    talkative.stdout.close()
    assert talkative.stderr is not None
    assert (talkative.wait(60), talkative.stderr.read()) == (0, b"")


def test_ctrl_c_ends_a_command_that_only_reads_with_130(store: Path) -> None:
    process = kvledger_process("residency", "--store", store)
    assert first_byte(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert (process.wait(60), process.stderr.read()) == (130, b"")
    process.communicate()


def test_ctrl_c_ends_a_command_that_waits_for_the_store_with_130(tmp_path: Path) -> None:
    path = make_store(tmp_path / "k.db")
    with lock_held(path):
        process = kvledger_process("rebuild", "--store", path)
        # It has its write-ahead log open when it is about to wait for the lock.
        while not has_open(process.pid, f"{path}-wal"):
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


def test_a_full_device_behind_the_output_is_one_line(store: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = kvledger_process("status", "--store", store, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == b"kvledger: the output: No space left on device\n"


def test_a_closed_output_is_no_error(store: Path) -> None:
    process = kvledger_process("status", "--store", store, stdout=None, preexec_fn=lambda: os.close(1))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_a_name_that_the_terminal_cannot_show_is_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    engine, _ = open_for_writing(str(path))
    with session_on(engine, "möwe"):
        pass
    engine.dispose()
    process = kvledger_process("status", "--store", path, environment={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert rb"m\xf6we" in out
