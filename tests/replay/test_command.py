"""`kvledger replay` as a process: how it ends, and what it leaves."""

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.children import PROGRAM, rest_of, start
from tests.replay.conftest import Drives
from tests.replay.driving import done
from tests.replay.handmade import CPU, SECOND, Handmade, described, key


def _slow(path: Path, steps: int = 50) -> Path:
    """A store whose steps lie an hour apart."""
    with Handmade(path) as log:
        for number in range(1, steps + 1):
            log.describe(key(number), described(number))
            log.store(key(number), CPU)
            log.step(3_600 * SECOND)
        log.commit()
    return path


@pytest.mark.parametrize("form", ["log", "kv"])
def test_ctrl_c_in_a_wait_ends_with_130_and_every_line_is_whole(form: str, tmp_path: Path) -> None:
    child = start("replay", "--store", _slow(tmp_path / "slow.db"), "--form", form, "--pace", 1)
    assert child.stdout is not None
    first = child.stdout.readline()
    child.send_signal(signal.SIGINT)
    rest, errors = rest_of(child)
    assert (child.returncode, errors) == (130, b"")
    assert [json.loads(line)["stream"] for line in (first + rest).splitlines()]
    assert (first + rest).endswith(b"\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_ctrl_c_at_full_speed_ends_after_a_whole_line_of_what_the_whole_is(unbuffered: str, driven: Drives) -> None:
    store = driven("hybrid").store
    whole = done("replay", "--store", store).out
    # What a page is written in is larger than a pipe: the child is in the middle of one when it is struck.
    child = start("replay", "--store", store, PYTHONUNBUFFERED=unbuffered)
    assert child.stdout is not None
    written = child.stdout.readline()
    child.send_signal(signal.SIGINT)
    rest, errors = rest_of(child)
    written += rest
    assert (child.returncode, errors) == (130, b"")
    assert written.endswith(b"\n")
    assert whole.startswith(written)
    assert len(written) < len(whole)


@pytest.mark.parametrize("options", [(), ("--form", "kv")])
def test_a_reader_that_has_seen_enough_ends_it_quietly(options: tuple[str, ...], driven: Drives) -> None:
    child = start("replay", "--store", driven("hybrid").store, *options)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 0


def test_a_reader_that_stops_in_the_middle_of_a_page_does_not_keep_the_log_from_being_checkpointed(
    driven: Drives, tmp_path: Path
) -> None:
    exported = tmp_path / "exported.jsonl"
    exported.write_bytes(done("replay", "--store", driven("hybrid").store).out)
    store = tmp_path / "copy.db"
    # A connection that stays keeps SQLite from doing the same at the last close.
    done("migrate", "--store", store)
    keeper = sqlite3.connect(store)
    keeper.execute("SELECT count(*) FROM event").fetchone()
    done("import", exported, "--store", store)
    assert Path(f"{store}-wal").stat().st_size > 1_000_000
    child = start("replay", "--store", store)
    assert child.stdout is not None
    child.stdout.readline()  # its first page is out, and more than fits the pipe
    busy, _, _ = keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy
    assert Path(f"{store}-wal").stat().st_size == 0
    child.kill()
    rest_of(child)
    keeper.close()


def test_follow_gives_what_is_there_then_what_comes_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        child = start("replay", "--store", log.path, "--follow")
        assert child.stdout is not None
        seen = [json.loads(child.stdout.readline())["seq"]]
        for number in range(1, 4):
            log.describe(key(number), described(number))
            log.store(key(number), CPU)
            log.commit()
            seen += [json.loads(child.stdout.readline())["seq"] for _ in range(2)]
        child.send_signal(signal.SIGINT)
        rest, errors = rest_of(child)
        assert seen == list(range(1, 8))
        assert (child.returncode, rest, errors) == (130, b"", b"")


def test_follow_from_a_state_gives_the_state_and_goes_on_from_the_next_seq(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        log.describe(key(1), described(1))
        log.store(key(1), CPU)
        log.commit()
        child = start("replay", "--store", log.path, "--form", "kv", "--from-state", 3, "--follow")
        assert child.stdout is not None
        state = json.loads(child.stdout.readline())
        log.remove(key(1), CPU)
        log.commit()
        live = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        rest_of(child)
        assert (state["last_seq"], state["state"], live["first_seq"]) == (3, True, 4)
        assert [event["block_hashes"] for event in state["events"] + live["events"]] == [[1], [1]]


def test_an_export_can_be_piped_into_an_import(driven: Drives, tmp_path: Path) -> None:
    store = tmp_path / "imported.db"
    source = start("replay", "--store", driven("cpu_only").store)
    command = [sys.executable, "-c", PROGRAM, "import", "-", "--store", str(store)]
    ran = subprocess.run(command, stdin=source.stdout, capture_output=True, check=False)
    rest_of(source)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert done("replay", "--store", store).out == done("replay", "--store", driven("cpu_only").store).out
