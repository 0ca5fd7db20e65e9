"""Where a replay goes: lines, a callable, an asynchronous iterator, Parquet."""

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from eventstore.log.cursor import beginning
from eventstore.replay.follow import contents, follow
from eventstore.replay.kvsteps import KVSteps
from eventstore.replay.lines import LogLines
from eventstore.replay.pace import Pace
from eventstore.replay.reader import Reader
from eventstore.replay.run import replay
from eventstore.replay.sinks import Callback
from eventstore.storage.asynchronous import open_for_following
from eventstore.storage.store import open_for_reading
from tests.replay.conftest import Drives
from tests.replay.driving import done
from tests.replay.tables import rows_of


def _reader(name: str, last: int, form: str = "log") -> Reader:
    return Reader(KVSteps() if form == "kv" else LogLines(1, last), beginning(name), last)


def test_a_callable_is_called_once_for_each_line_in_order(driven: Drives) -> None:
    store = driven("cpu_only").store
    lines = done("replay", "--store", store).lines()
    engine, called = open_for_reading(str(store)), list[Any]()
    assert replay(engine, _reader("cpu_only", len(lines)), Callback(called.append))
    engine.dispose()
    assert msgspec.to_builtins(called) == lines


def test_a_callable_that_raises_ends_the_replay_with_what_it_raised(driven: Drives) -> None:
    engine, called = open_for_reading(str(driven("cpu_only").store)), list[Any]()

    def third_time_fails(line: Any) -> None:
        called.append(line["seq"])
        if len(called) == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        replay(engine, _reader("cpu_only", 1_000), Callback(third_time_fails))
    engine.dispose()
    assert called == [1, 2, 3]


def test_a_wish_to_stop_ends_even_a_long_wait_and_says_that_the_end_was_not_reached(driven: Drives) -> None:
    engine, stop, called = open_for_reading(str(driven("cpu_only").store)), Event(), list[Any]()

    def first(line: Any) -> None:
        called.append(line["seq"])
        stop.set()

    # At this pace the second moment would be due in years.
    assert not replay(engine, _reader("cpu_only", 1_000), Callback(first), pace=Pace(1e-9), stop=stop)
    engine.dispose()
    assert called == [1]


@pytest.mark.asyncio
async def test_an_asynchronous_iterator_gives_the_same_as_the_command(driven: Drives) -> None:
    store = driven("cpu_only").store
    steps = done("replay", "--store", store, "--form", "kv").lines()
    engine = await open_for_following(str(store))
    pages = follow(engine, beginning("cpu_only"), KVSteps(), upto=10_001)
    found = [msgspec.to_builtins(step) async for step in contents(pages)]
    await engine.dispose()
    assert found == steps


@pytest.mark.asyncio
async def test_an_asynchronous_iterator_keeps_the_pace_that_it_is_given(driven: Drives) -> None:
    store = driven("cpu_only").store
    times = [line["time_ns"] for line in done("replay", "--store", store, "--to", 500).lines()]
    slept: list[float] = []
    now = 0

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += round(seconds * 1e9)

    engine = await open_for_following(str(store))
    pages = follow(engine, beginning("cpu_only"), upto=500)
    count = 0
    async for line in contents(pages, Pace(10, lambda: now), sleep):
        assert abs(now - (times[count] - times[0]) / 10) <= 1
        assert line["time_ns"] == times[count]
        count += 1
    await engine.dispose()
    assert count == 500
    assert len(slept) == len(set(times)) - 1


@pytest.mark.parametrize("form", ["log", "kv"])
def test_a_parquet_file_has_a_row_for_each_event_and_says_what_the_lines_say(
    form: str, driven: Drives, tmp_path: Path
) -> None:
    store, file = driven("hybrid").store, tmp_path / "replay.parquet"
    done("replay", "--store", store, "--form", form, "--sink", "parquet", "--output", file)
    lines = done("replay", "--store", store, "--form", form).lines()
    rows = rows_of(file)
    times = [row["time"] for row in rows]
    if form == "kv":
        expected = [(step, event) for step in lines for event in step["events"]]
        assert times == [step["time_ns"] for step, _ in expected]
        for row, (step, event) in zip(rows, expected, strict=True):
            assert {name: row[name] for name in event} == event
            assert (row["epoch"], row["first_seq"], row["last_seq"]) == (
                step["epoch"],
                step["first_seq"],
                step["last_seq"],
            )
    else:
        assert times == [line["time_ns"] for line in lines]
        same = ("seq", "kind", "key", "medium", "ownership", "locality", "placeholder", "matched")
        for row, line in zip(rows, lines, strict=True):
            assert {name: row[name] for name in same} == {name: line.get(name) for name in same}
            meta = line.get("metadata") or {}
            assert (row["token_ids"], row["block_hashes"]) == (meta.get("token_ids"), meta.get("block_hashes"))
            assert ("ends" in msgspec.json.decode(row["body"])) == ("ends" in line) if row["body"] else "key" in line


def test_without_pyarrow_parquet_is_refused_in_one_line_that_says_what_to_install(
    driven: Drives, tmp_path: Path
) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; sys.argv[0] = 'kvledger'\n"
        "from eventstore.cli.app import main; main()"
    )
    command = ["replay", "--store", str(driven("cpu_only").store), "--sink", "parquet", "-o", str(tmp_path / "x")]
    ran = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == "kvledger: Parquet needs pyarrow, which is not installed: pip install 'kvledger[parquet]'\n"
    assert not (tmp_path / "x").exists()
