"""Durations are exact, from the log, and mean what docs/audit.md says of them."""

import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eventstore.audit.quantiles import durations
from eventstore.domain.events import REMOVAL_EXPECTED, REPEATED, End, Kind, Reason, StreamBody
from tests.audit.conftest import Tellings
from tests.audit.lives import Lives
from tests.cli.command import kvledger
from tests.facts import NAMES
from tests.replay.handmade import CPU, SECOND, A, B, Handmade, described, key

Lane = tuple[str, str | None]


def stats(store: Path, *arguments: object) -> list[dict[str, Any]]:
    """The lanes of the one stream."""
    ran = kvledger("stats", "--store", store, "--json", *arguments)
    assert ran.code == 0, ran.err
    (stream,) = ran.json()["streams"]
    lanes: list[dict[str, Any]] = stream["lanes"]
    return lanes


def by_lane(store: Path, *arguments: object) -> dict[Lane, dict[str, Any]]:
    return {(lane["place"], lane["reason"]): lane for lane in stats(store, *arguments)}


@pytest.mark.parametrize(
    ("seconds", "p10", "p50", "p90", "p99"),
    [
        ([7], 7, 7, 7, 7),
        ([1, 2], 1, 1, 2, 2),
        ([3, 1, 2], 1, 2, 3, 3),
        ([5] * 99 + [1], 5, 5, 5, 5),
        (list(range(1, 101)), 10, 50, 90, 99),
        (list(range(100, 0, -1)), 10, 50, 90, 99),
        (list(range(1, 1_001)), 100, 500, 900, 990),
    ],
)
def test_a_quantile_is_the_smallest_that_so_many_do_not_exceed(
    seconds: list[int], p10: int, p50: int, p90: int, p99: int
) -> None:
    found = durations([one * SECOND for one in seconds])
    assert (found.p10, found.p50, found.p90, found.p99) == (p10, p50, p90, p99)
    assert (found.count, found.min, found.max) == (len(seconds), min(seconds), max(seconds))
    assert found.mean == pytest.approx(sum(seconds) / len(seconds))


def test_of_nothing_there_is_no_quantile() -> None:
    found = durations([])
    assert (found.count, found.mean, found.min, found.p50, found.max) == (0, None, None, None, None)


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """One chunk at A from second 0 to 20: repeated there at 5, stored on the CPU at 8, at A again from 26 on."""
    with Handmade(tmp_path / "k.db") as made:
        begins = made.now

        def at(second: int) -> None:
            made.step()
            made.now = begins + second * SECOND

        made.describe(key(1), described(1))
        made.store(key(1), A)
        at(5)
        made.store(key(1), A, REMOVAL_EXPECTED | REPEATED)
        at(8)
        made.store(key(1), CPU)
        at(9)
        made.store(key(1), B)
        at(20)
        made.remove(key(1), A)
        at(26)
        made.store(key(1), A)
        at(30)
        made.about_stream(Kind.CACHE_RESET, StreamBody(ends=[End(CPU, Reason.CACHE_RESET)]))
        made.commit()
    return made.path


def test_lifetime_is_from_the_store_that_opened_it_to_the_end(by_hand: Path) -> None:
    lanes = by_lane(by_hand)
    assert {lane: found["lifetime"]["max"] for lane, found in lanes.items() if lane[1]} == {
        ("STORAGE/a", "demoted"): 20.0,
        ("CPU", "cache_reset"): 22.0,
    }


def test_idle_time_begins_with_the_last_access_or_with_the_opening(by_hand: Path) -> None:
    lanes = by_lane(by_hand)
    # A was accessed last when its chunk came to the CPU, at 8; the CPU's copy never, and a store elsewhere is none.
    assert lanes["STORAGE/a", "demoted"]["idle_before_evict"]["max"] == 12.0
    assert lanes["CPU", "cache_reset"]["idle_before_evict"]["max"] == 22.0


def test_a_reuse_gap_lies_between_two_accesses_and_the_opening_is_none(by_hand: Path) -> None:
    lanes = by_lane(by_hand)
    gaps = lanes["STORAGE/a", "demoted"]["reuse_gap"]
    assert (gaps["count"], gaps["min"], gaps["max"]) == (1, 3.0, 3.0)
    assert lanes["CPU", "cache_reset"]["reuse_gap"]["count"] == 0


def test_what_comes_back_to_the_same_place_was_away_since_its_end(by_hand: Path) -> None:
    lane = by_lane(by_hand, "--within", "5.9", "--within", "6")["STORAGE/a", "demoted"]
    assert (lane["away"]["count"], lane["away"]["max"]) == (1, 6.0)
    assert lane["returned_within"] == {"5.9": 0, "6": 1}


def test_what_has_not_ended_is_counted_apart(by_hand: Path) -> None:
    lanes = by_lane(by_hand)
    assert {lane: found["residencies"] for lane, found in lanes.items() if lane[1] is None} == {
        ("STORAGE/a", None): 1,
        ("STORAGE/b", None): 1,
    }
    assert lanes["STORAGE/b", None]["lifetime"]["count"] == 0


def test_a_clock_that_steps_back_makes_no_negative_duration(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), described(1))
        made.store(key(1), CPU)
        made.step(-5 * SECOND)
        made.remove(key(1), CPU)
        made.commit()
    lane = by_lane(made.path)["CPU", "evicted"]
    assert (lane["lifetime"]["min"], lane["idle_before_evict"]["min"]) == (0, 0)


def place_of(medium: str, ownership: str | None) -> str:
    return f"{medium}/{ownership}" if ownership else medium


def counted(lives: Lives) -> dict[Lane, dict[str, list[int]]]:
    """All durations in nanoseconds, by lane, one life after the other."""
    found: dict[Lane, dict[str, list[int]]] = defaultdict(lambda: {"lifetime": [], "idle": [], "gap": [], "away": []})
    stores: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lives.lines:
        if line["kind"] == "chunk_stored":
            stores[line["key"]].append(line)
    for life in lives.all:
        key_, *place = life.at
        lane = (place_of(*life.at[1:]), life.reason)
        upto = life.closed["seq"] if life.closed else math.inf
        accesses = [
            line["time_ns"]
            for line in stores[key_]
            if life.opened["seq"] < line["seq"] < upto
            and ([line["medium"], line["ownership"]] == place or (line["medium"], line["ownership"]) == ("CPU", None))
        ]
        found[lane]["gap"] += [later - sooner for sooner, later in pairwise(accesses)]
        if life.closed is None:
            continue
        closed = life.closed["time_ns"]
        found[lane]["lifetime"].append(closed - life.opened["time_ns"])
        found[lane]["idle"].append(closed - (accesses[-1] if accesses else life.opened["time_ns"]))
        again = [line for line in stores[key_] if line["seq"] > upto and [line["medium"], line["ownership"]] == place]
        if again:
            found[lane]["away"].append(again[0]["time_ns"] - closed)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_duration_of_a_recorded_engine_is_that_of_its_lines(told: Tellings, name: str) -> None:
    one = told(name)
    lanes, expected = by_lane(one.store, "--within", "60"), counted(one.lives)
    assert set(lanes) == set(expected)
    names = {"lifetime": "lifetime", "idle_before_evict": "idle", "reuse_gap": "gap", "away": "away"}
    for lane, found in lanes.items():
        for said, ours in names.items():
            times = sorted(expected[lane][ours])
            shown = found[said]
            assert shown["count"] == len(times), (lane, said)
            if times:
                assert (shown["min"], shown["max"]) == (times[0] / 1e9, times[-1] / 1e9)
                assert shown["p50"] == times[math.ceil(len(times) / 2) - 1] / 1e9
                assert shown["mean"] == pytest.approx(sum(times) / len(times) / 1e9)
        back = sum(away <= 60 * SECOND for away in expected[lane]["away"])
        assert found["returned_within"] == {"60": back}


@pytest.mark.parametrize("measure", ["lifetime", "idle_before_evict", "reuse_gap", "away"])
def test_some_recorded_engine_has_each_kind_of_duration(told: Tellings, measure: str) -> None:
    assert any(lane[measure]["count"] for name in NAMES for lane in stats(told(name).store))


def test_a_person_sees_a_line_for_each_place_and_reason(told: Tellings) -> None:
    ran = kvledger("stats", "--store", told("two_tier").store)
    words = [line.split() for line in ran.out.splitlines()]
    assert ran.code == 0
    assert {("CPU", "demoted"), ("STORAGE/nvme0", "evicted")} <= {(line[0], line[1]) for line in words if len(line) > 1}


@pytest.mark.parametrize("within", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_no_time_ends_in_one_line(told: Tellings, within: str) -> None:
    ran = kvledger("stats", "--store", told("cpu_only").store, "--within", within)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
