"""What changed between two points is the difference of two folds of the lines."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.audit.conftest import Tellings, Told
from tests.cli.command import kvledger
from tests.facts import NAMES
from tests.replay.handmade import CPU, A, Handmade, described, key


def diff(store: Path, a: object, b: object) -> dict[str, Any]:
    ran = kvledger("diff", a, b, "--store", store, "--json")
    assert ran.code == 0, ran.err
    return ran.json()


def place_of(medium: str, ownership: str | None) -> str:
    return f"{medium}/{ownership}" if ownership else medium


def at(told: Told, seq: int) -> dict[str, set[str]]:
    """Where each chunk is after event `seq`."""
    found: dict[str, set[str]] = {}
    for life in told.lives.open_after(seq):
        found.setdefault(life.at[0], set()).add(place_of(*life.at[1:]))
    return found


def last_reasons(told: Told, a: int, b: int) -> dict[tuple[str, str], str | None]:
    """Why a chunk left a place after `a` and up to `b`, the last time."""
    ends = sorted((life.closed["seq"], life.at, life.reason) for life in told.lives.ended if life.closed)
    return {(where[0], place_of(*where[1:])): reason for seq, where, reason in ends if a < seq <= b}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("round_", range(4))
def test_each_chunk_that_is_elsewhere_now_is_told_with_where_it_was_and_why_it_left(
    told: Tellings, name: str, round_: int
) -> None:
    one, rnd = told(name), random.Random(f"{name} {round_}")
    last = one.lives.lines[-1]["seq"]
    a, b = sorted(rnd.sample(range(last + 1), 2)) if round_ else (0, last)
    before, after, reasons = at(one, a), at(one, b), last_reasons(one, a, b)
    expected = {}
    for chunk in before.keys() | after.keys():
        old, new = before.get(chunk, set()), after.get(chunk, set())
        if old != new:
            what = "came" if not old else "left" if not new else "moved"
            expected[chunk] = (what, old, new, {place: reasons[chunk, place] for place in old - new})
    found = diff(one.store, a, b)
    assert (found["from_seq"], found["to_seq"]) == (a, b)
    assert {
        change["key"]: (change["what"], set(change["before"]), set(change["after"]), change["reasons"])
        for change in found["changes"]
    } == expected
    words = [what for what, *_ in expected.values()]
    assert found["counts"] == {word: words.count(word) for word in ("came", "left", "moved")}


@pytest.fixture
def by_hand(tmp_path: Path) -> tuple[Path, int, int]:
    """Between the two points: 1 stays, 2 goes and comes back, 3 comes and goes, 4 moves."""
    with Handmade(tmp_path / "k.db") as made:
        for number in (1, 2, 4):
            made.describe(key(number), described(number))
            made.store(key(number), CPU)
        a = made.seq
        made.step()
        made.describe(key(3), described(3))
        made.store(key(3), CPU)
        made.store(key(4), A)
        for number in (2, 3, 4):
            made.remove(key(number), CPU)
        made.store(key(2), CPU)
        made.commit()
    return made.path, a, made.seq


def test_what_came_and_went_in_between_does_not_show(by_hand: tuple[Path, int, int]) -> None:
    assert diff(*by_hand)["changes"] == [
        {"what": "moved", "key": key(4).hex(), "before": ["CPU"], "after": ["STORAGE/a"], "reasons": {"CPU": "demoted"}}
    ]


def test_the_two_points_can_be_times(by_hand: tuple[Path, int, int]) -> None:
    store, a, b = by_hand
    by_seq, by_time = diff(store, a, b), diff(store, "2023-11-14T22:13:21Z", "2023-11-14T22:13:22Z")
    assert by_time == by_seq


def test_between_a_point_and_itself_nothing_changed(told: Tellings) -> None:
    assert diff(told("two_tier").store, 500, 500)["changes"] == []


def test_a_person_sees_what_each_chunk_did(by_hand: tuple[Path, int, int]) -> None:
    store, a, b = by_hand
    ran = kvledger("diff", a, b, "--store", store)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].split() == ["moved", key(4).hex(), "CPU", "STORAGE/a", "CPU", "demoted"]


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        ("20", "10", "from 20 to 10 goes backwards"),
        ("0", "99999999", "no seq 99999999"),
        ("noon", "10", "'noon' is no point"),
        ("0", "2026-03-99", "'2026-03-99' is no point"),
    ],
)
def test_points_that_make_no_sense_end_in_one_line(told: Tellings, a: str, b: str, problem: str) -> None:
    ran = kvledger("diff", a, b, "--store", told("cpu_only").store)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert problem in ran.err
