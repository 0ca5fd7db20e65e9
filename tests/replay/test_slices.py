"""Slices: by seq, time, epoch, medium and group."""

from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import Drives
from tests.replay.driving import done, kvledger
from tests.replay.handmade import BEGINS, CPU, SECOND, Handmade, described, key


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Handmade:
    """Two epochs; a second between steps, but for the last, whose clock was stepped back by ten.

    seq 1: epoch 1, at 0 s; 2, 3: at 1 s; 4, 5: at 2 s; 6: epoch 2, at 3 s; 7, 8: at 4 s; 9: at -6 s.
    """
    with Handmade(tmp_path_factory.mktemp("slices") / "made.db") as made:
        for number in (1, 2):
            made.describe(key(number), described(number))
            made.store(key(number), CPU)
            made.step()
        made.commit()
        made.now = BEGINS + 3 * SECOND
        made.open()
        made.describe(key(3), described(3))
        made.store(key(3), CPU)
        made.step(-10 * SECOND)
        made.remove(key(1), CPU)
        made.commit()
        return made


def _seqs(log: Handmade, *options: object) -> list[int]:
    return [line["seq"] for line in done("replay", "--store", log.path, *options).lines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (("--from", 4), [4, 5, 6, 7, 8, 9]),
        (("--to", 3), [1, 2, 3]),
        (("--from", 4, "--to", 4), [4]),
        (("--from", 10), []),
        (("--from", 5, "--to", 4), []),
        (("--from", f"@{BEGINS + SECOND}"), [2, 3, 4, 5, 6, 7, 8, 9]),
        (("--from", f"@{BEGINS + SECOND + 1}"), [4, 5, 6, 7, 8, 9]),
        (("--to", f"@{BEGINS + 2 * SECOND}"), [1, 2, 3, 4, 5]),
        (("--to", f"@{BEGINS + 2 * SECOND - 1}"), [1, 2, 3]),
        (("--from", "2023-11-14T22:13:21Z", "--to", "2023-11-14T23:13:22+01:00"), [2, 3, 4, 5]),
        (("--from", "2000-01-01"), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (("--from", "2100-01-01"), []),
        (("--epoch", 1), [1, 2, 3, 4, 5]),
        (("--epoch", 2), [6, 7, 8, 9]),
        (("--epoch", 2, "--from", 8), [8, 9]),
        (("--epoch", 1, "--from", f"@{BEGINS + 2 * SECOND}"), [4, 5]),
        # Order is never decided by time: what a stepped clock dated back still comes where it came.
        (("--from", f"@{BEGINS + 4 * SECOND}"), [7, 8, 9]),
    ],
)
def test_a_slice_is_the_events_that_it_names(log: Handmade, options: tuple[object, ...], expected: list[int]) -> None:
    assert _seqs(log, *options) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--from", 0), "has no seq 0: it goes from 1 to 9"),
        (("--from", 11), "has no seq 11"),
        (("--to", 10), "has no seq 10"),
        (("--from", 5, "--to", 3), "no slice from 5 to 3; it ends before it begins"),
        (("--from", "yesterday"), "'yesterday' is no point of a stream"),
        (("--to", "@12x"), "'@12x' is no point of a stream"),
        (("--epoch", 3), "has no epoch 3: its last one is 2"),
        (("--epoch", 0), "has no epoch 0"),
        (("--medium", "TAPE"), "unknown medium 'TAPE'"),
        (("--group", "first"), "'--group'"),
        (("--form", "csv"), "'csv'"),
        (("--sink", "kafka"), "'kafka'"),
        (("--sink", "parquet"), "a Parquet file needs a name: give --output FILE"),
        (("--pace", 0), "pace 0.0: give a number above 0"),
        (("--pace", "fast"), "'--pace'"),
        (("--from-state", 10), "has no seq 10"),
        (("--from-state", 5, "--to", 4), "no slice from the state at 5 to 4"),
        (("--from-state", 5, "--from", 4), "--from-state says where to begin"),
        (("--from-state", 5, "--epoch", 1), "--from-state says where to begin"),
        (("--follow", "--to", 4), "--follow has no end"),
        (("--stream", "other"), "no stream 'other' in this store"),
        (("--output", "/nowhere/at/all"), "/nowhere/at/all: No such file or directory"),
    ],
)
def test_a_slice_that_is_none_is_refused_in_one_line(log: Handmade, options: tuple[object, ...], problem: str) -> None:
    ran = kvledger("replay", "--store", log.path, *options)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("kvledger: ")
    assert ran.err.count("\n") == 1
    assert problem in ran.err


@pytest.mark.parametrize("form", ["log", "kv"])
def test_what_was_pruned_is_refused_with_the_floor_and_the_state_there_can_be_had(form: str, tmp_path: Path) -> None:
    with Handmade(tmp_path / "pruned.db") as made:
        for number in (1, 2):
            made.describe(key(number), described(number))
            made.store(key(number), CPU)
        made.commit()
        with made.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM event WHERE seq < 4")
            connection.exec_driver_sql("UPDATE stream SET floor_seq = 4")
    for options in (("--from", 3), ("--from-state", 2)):
        ran = kvledger("replay", "--store", made.path, "--form", form, *options)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "was pruned, the floor is 4" in ran.err
    ran = kvledger("export", "--store", made.path, "--format", "csv", "--from", 3)
    assert (ran.code, ran.out) == (2, b"")
    (state, *after) = done("replay", "--store", made.path, "--form", form, "--from-state", 3).lines()
    told = state["events"][0]["block_hashes"] if form == "kv" else [int(state["key"][:-8], 16)]
    assert (state["state"], told) == (True, [1])
    assert len(after) == len(done("replay", "--store", made.path, "--form", form).lines())


def test_a_slice_by_medium_has_its_events_and_those_that_happen_at_no_place(driven: Drives) -> None:
    store = driven("two_tier").store
    everything = done("replay", "--store", store).lines()
    part = done("replay", "--store", store, "--medium", "FS").lines()
    expected = [line["seq"] for line in everything if line.get("medium") in (None, "STORAGE")]
    assert [line["seq"] for line in part] == expected


def test_a_slice_by_group_has_its_chunks_and_the_events_of_the_stream(driven: Drives) -> None:
    store = driven("hybrid").store
    everything = done("replay", "--store", store).lines()

    def group(line: dict[str, Any]) -> int | None:
        return int(line["key"][-8:], 16) if "key" in line else None

    for wanted in (0, 1):
        part = done("replay", "--store", store, "--group", wanted).lines()
        assert [line["seq"] for line in part] == [line["seq"] for line in everything if group(line) in (None, wanted)]
