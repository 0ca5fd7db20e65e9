"""`kvledger export`: every residency from opening to end, for trace viewers and notebooks."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventstore.domain.events import PLACEHOLDER, End, Kind, Reason, StreamBody, locality_flag
from eventstore.domain.place import Locality
from tests.facts import NAMES
from tests.replay.conftest import Drives
from tests.replay.driving import done, kvledger
from tests.replay.handmade import BEGINS, CPU, SECOND, A, B, Handmade, described, key
from tests.replay.history import History, Life
from tests.replay.tables import rows_of


def _lives(row: dict[str, Any]) -> Life:
    closed = row["closed_seq"]
    return Life(
        row["key"],
        row["medium"],
        row["ownership"] or None,
        int(row["opened_seq"]),
        int(closed) if closed not in ("", None) else None,
        row["reason"] or None,
    )


def _told(store: Path) -> list[Life]:
    return History().read(done("replay", "--store", store).lines()).all_lives()


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_each_residency_of_the_log_with_why_it_ended(name: str, driven: Drives, tmp_path: Path) -> None:
    store = driven(name).store
    expected = _told(store)
    text = done("export", "--store", store, "--format", "csv").out.decode()
    assert sorted(map(_lives, csv.DictReader(io.StringIO(text))), key=lambda one: (one.key, one.opened_seq)) == expected
    done("export", "--store", store, "--format", "parquet", "--output", tmp_path / "lives.parquet")
    rows = rows_of(tmp_path / "lives.parquet")
    assert sorted(map(_lives, rows), key=lambda one: (one.key, one.opened_seq)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_has_a_process_a_place_a_lane_a_chunk_and_a_bar_a_residency(name: str, driven: Drives) -> None:
    store = driven(name).store
    trace = json.loads(done("export", "--store", store, "--format", "chrome").out)
    named = {one["pid"]: one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "process_name"}
    lanes = {
        (one["pid"], one["tid"]): one["args"]["name"] for one in trace["traceEvents"] if one["name"] == "thread_name"
    }
    bars = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    for bar in bars:
        args = bar["args"]
        assert named[bar["pid"]] == args["medium"] + (f"/{args['ownership']}" if args["ownership"] else "")
        assert lanes[bar["pid"], bar["tid"]] == args["key"]
        assert bar["ts"] >= 0 <= bar["dur"]
    assert Counter(_lives(bar["args"]) for bar in bars) == Counter(_told(store))
    assert len(lanes) == len({(life.key, life.medium, life.ownership) for life in _told(store)})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Handmade:
    """Chunk 1 on CPU from 1 s to 3 s and at A from 2 s on, chunk 2 on CPU from 1 s to the reset at 4 s."""
    with Handmade(tmp_path_factory.mktemp("export") / "made.db") as made:
        made.describe(key(1), described(1))
        made.describe(key(2), b"")
        made.step()
        made.store(key(1), CPU)
        made.store(key(2), CPU, PLACEHOLDER | locality_flag(Locality.LOCAL))
        made.step()
        made.store(key(1), A)
        made.store(key(1), B)
        made.store(key(1), B)
        made.step()
        made.remove(key(1), CPU)
        made.step()
        made.about_stream(Kind.CACHE_RESET, StreamBody(ends=[End(CPU, Reason.CACHE_RESET)]))
        made.commit()
        return made


def test_a_row_says_when_how_long_why_and_how_often(log: Handmade) -> None:
    text = done("export", "--store", log.path, "--format", "csv").out.decode()
    begin = "2023-11-14T22:13:"
    one, two = key(1).hex(), key(2).hex()
    assert text.splitlines() == [
        "stream,key,medium,ownership,locality,opened_seq,opened,closed_seq,closed,seconds,reason,placeholder,stores",
        f"handmade,{one},CPU,,,4,{begin}22.000000Z,9,{begin}24.000000Z,2.0,demoted,False,1",
        f"handmade,{one},STORAGE,a,,6,{begin}23.000000Z,,,,,False,1",
        f"handmade,{one},STORAGE,b,,7,{begin}23.000000Z,,,,,False,2",
        f"handmade,{two},CPU,,LOCAL,5,{begin}22.000000Z,10,{begin}25.000000Z,3.0,cache_reset,True,1",
    ]


def test_bars_count_from_the_first_event_and_what_is_open_goes_on_to_the_last(log: Handmade) -> None:
    trace = json.loads(done("export", "--store", log.path, "--format", "chrome").out)
    bars = {
        (one["args"]["key"], one["pid"]): (one["ts"], one["dur"]) for one in trace["traceEvents"] if one["ph"] == "X"
    }
    assert bars == {
        (key(1).hex(), CPU): (2e6, 2e6),
        (key(1).hex(), A): (3e6, 2e6),
        (key(1).hex(), B): (3e6, 2e6),
        (key(2).hex(), CPU): (2e6, 3e6),
    }
    marks = [(one["name"], one["ts"]) for one in trace["traceEvents"] if one["ph"] == "i"]
    assert marks == [("epoch_started", 0), ("cache_reset", 5e6)]
    assert trace["otherData"]["began_ns"] == BEGINS


@pytest.mark.parametrize(
    ("options", "opened"),
    [
        (("--from", 9), [4, 5, 6, 7]),
        (("--from", 10), [5, 6, 7]),
        (("--to", 5), [4, 5]),
        (("--to", f"@{BEGINS + 2 * SECOND}"), [4, 5]),
        (("--medium", "CPU"), [4, 5]),
        (("--medium", "STORAGE", "--to", 6), [6]),
        (("--group", 1), []),
        (("--epoch", 1), [4, 5, 6, 7]),
    ],
)
def test_a_slice_has_what_was_resident_at_some_time_in_it(
    log: Handmade, options: tuple[object, ...], opened: list[int]
) -> None:
    text = done("export", "--store", log.path, "--format", "csv", *options).out.decode()
    assert sorted(int(row["opened_seq"]) for row in csv.DictReader(io.StringIO(text))) == opened


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "'--format'"),
        (("--format", "xml"), "'xml'"),
        (("--format", "parquet"), "a Parquet file needs a name"),
        (("--format", "csv", "--from", 99), "has no seq 99"),
        (("--format", "csv", "--medium", "TAPE"), "unknown medium 'TAPE'"),
        (("--format", "csv", "--output", "/nowhere/x"), "/nowhere/x: No such file or directory"),
        (("--format", "parquet", "--output", "/nowhere/x"), "/nowhere/x: cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(log: Handmade, options: tuple[object, ...], problem: str) -> None:
    ran = kvledger("export", "--store", log.path, *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert problem in ran.err


def test_a_trace_of_nothing_is_still_a_whole_document(log: Handmade) -> None:
    trace = json.loads(done("export", "--store", log.path, "--format", "chrome", "--group", 7).out)
    assert [one["ph"] for one in trace["traceEvents"]] == ["M", "i", "i"]
