"""What was where at any point: function, command and a fold of the lines agree, and the live views at the end."""

import random
from typing import Any

import pytest

from eventstore.log.stream import one_stream
from eventstore.views.residency import residency
from tests.audit.answers import iso
from tests.audit.conftest import Tellings, Told
from tests.audit.lives import Life
from tests.cli.command import kvledger
from tests.facts import NAMES

POINTS = 300
#: At so many of them the command is asked too.
COMMANDS = 6

Shown = tuple[str, str, str | None, int, int]


def shown(lives: list[Life]) -> set[Shown]:
    return {(*life.at, life.opened["seq"], life.opened["time_ns"]) for life in lives}


def asked(told: Told, *arguments: object) -> dict[str, Any]:
    ran = kvledger("residency", "--store", told.store, "--json", *arguments)
    assert ran.code == 0, ran.err
    return ran.json()


def rows_of(document: dict[str, Any]) -> set[Shown]:
    names = ("key", "medium", "ownership", "opened_seq", "opened_ns")
    return {tuple(row[name] for name in names) for row in document["residencies"]}


@pytest.mark.parametrize("name", NAMES)
def test_residency_at_any_seq_is_what_a_fold_of_the_lines_gives(told: Tellings, name: str) -> None:
    one = told(name)
    last = one.lives.lines[-1]["seq"]
    points = sorted({0, last, *random.Random(name).sample(range(last), POINTS)})
    with one.connect() as connection:
        stream = one_stream(connection, None)
        for point in points:
            found = residency(connection, stream, point)
            assert {
                (row.key.hex(), row.medium, row.ownership, row.opened_seq, row.opened_ns) for row in found
            } == shown(one.lives.open_after(point)), f"after seq {point}"


@pytest.mark.parametrize("name", NAMES)
def test_residency_at_the_end_is_the_live_view(told: Tellings, name: str) -> None:
    one = told(name)
    with one.connect() as connection:
        stream = one_stream(connection, None)
        now = list(residency(connection, stream))
        assert list(residency(connection, stream, stream.last_seq)) == now
        view = connection.exec_driver_sql('SELECT "key", medium, ownership, opened_seq, opened_ns FROM residency').all()
    assert {tuple(row) for row in view} == shown(list(one.lives.open.values()))
    assert len(now) == len(one.lives.open) > 0


@pytest.mark.parametrize("name", NAMES)
def test_residency_comes_in_order_of_chunk_and_place(told: Tellings, name: str) -> None:
    one = told(name)
    middle = one.lives.lines[-1]["seq"] // 2
    with one.connect() as connection:
        found = [(row.chunk, row.place) for row in residency(connection, one_stream(connection, None), middle)]
    assert found == sorted(found)
    assert len(set(found)) == len(found) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_command_shows_the_same_at_a_seq(told: Tellings, name: str) -> None:
    one = told(name)
    for point in random.Random(name).sample(range(one.lives.lines[-1]["seq"]), COMMANDS):
        found = asked(one, "--at", point)
        assert (found["at_seq"], rows_of(found)) == (point, shown(one.lives.open_after(point)))


@pytest.mark.parametrize("name", NAMES)
def test_the_command_shows_at_a_time_what_was_there_before_the_first_later_event(told: Tellings, name: str) -> None:
    one, rnd = told(name), random.Random(name)
    for line in rnd.sample(one.lives.lines, COMMANDS):
        moment = line["time_ns"] + rnd.randrange(10**6)
        before = [other["seq"] for other in one.lives.lines if other["time_ns"] <= moment]
        for said in (f"@{moment}", line["time"]):
            found = asked(one, "--at", said)
            assert (found["at_seq"], rows_of(found)) == (before[-1], shown(one.lives.open_after(before[-1])))


def test_the_command_says_when_a_residency_opened_in_both_ways(told: Tellings) -> None:
    one = told("cpu_only")
    for row in asked(one)["residencies"]:
        assert row["opened"].startswith(iso(row["opened_ns"]).removesuffix("Z"))


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        ("99999999", "no seq 99999999"),
        ("yesterday", "'yesterday' is no point of a stream"),
        ("2026-13-01", "'2026-13-01' is no point of a stream"),
        ("@12x", "'@12x' is no point of a stream"),
        ("9999-01-01", "out of the range of times"),
    ],
)
def test_a_point_that_is_none_ends_in_one_line(told: Tellings, at: str, problem: str) -> None:
    ran = kvledger("residency", "--store", told("cpu_only").store, "--at", at)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert problem in ran.err
