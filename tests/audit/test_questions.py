"""The documented questions: each answers as plain Python does, and none goes through the log for it."""

import random
import re
from typing import Any

import pytest

from tests.audit.answers import ANSWERS, Row
from tests.audit.conftest import Tellings, Told
from tests.documented import DOCS, ask, plan, questions, scans_of_residencies, scans_of_the_log
from tests.facts import NAMES

BY_KEY = (2, 6)


def asked(told: Told) -> dict[str, Any]:
    """What each parameter is given: a chunk with the longest prefix, points from a seed."""
    lives, rnd = told.lives, random.Random(told.name)
    last = lives.lines[-1]["seq"]
    deep = max(lives.described, key=lambda key: len(ANSWERS[6](lives, "", {"key": key})))
    a, b = sorted(rnd.sample(range(last), 2))
    return {
        "ownership": "nvme0",
        "key": deep,
        "since": last // 4,
        "recent": last // 3,
        "epoch": 1,
        "a": a,
        "b": b,
        "seq": lives.epochs()[2].first["seq"] + 8,
    }


def comparable(number: int, rows: list[Row]) -> list[Row]:
    """Rows that SQL may give in any order are sorted, and places joined in any order are a set."""
    if number == 6:
        return [
            (*row[:3], set((row[3] or "").split(", ")) - {""} if not isinstance(row[3], set) else row[3])
            for row in rows
        ]
    if number in (1, 9, 10):
        return sorted(rows, key=str)
    return rows


def test_there_are_at_least_ten_and_each_has_an_answer_to_be_held_against() -> None:
    assert len(ANSWERS) >= 10
    assert set(questions()) == set(ANSWERS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_a_question_answers_what_plain_python_counts_from_the_lines(told: Tellings, name: str, number: int) -> None:
    one = told(name)
    given = asked(one)
    with one.connect() as connection:
        found = ask(connection, questions()[number], given)
    expected = ANSWERS[number](one.lives, name, given)
    assert comparable(number, found) == comparable(number, expected)


@pytest.mark.parametrize("number", sorted(set(ANSWERS) - {12}))
def test_some_recorded_engine_gives_each_question_something_to_answer(told: Tellings, number: int) -> None:
    answered = [name for name in NAMES if ANSWERS[number](told(name).lives, name, asked(told(name)))]
    assert answered


@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_no_question_goes_through_the_log(told: Tellings, number: int) -> None:
    one = told("cpu_only")
    with one.connect() as connection:
        steps = plan(connection, questions()[number].sql, asked(one))
    assert scans_of_the_log(steps) == []


@pytest.mark.parametrize("number", BY_KEY)
def test_a_question_about_one_key_goes_through_no_table(told: Tellings, number: int) -> None:
    one = told("cpu_only")
    with one.connect() as connection:
        steps = plan(connection, questions()[number].sql, asked(one))
    assert scans_of_residencies(steps) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT kind FROM events WHERE \"key\" = 'ab'",
        "SELECT count(*) FROM events WHERE stream = 'cpu_only'",
        "SELECT seq FROM events WHERE time > '2026'",
    ],
)
def test_a_question_that_does_go_through_the_log_is_noticed(told: Tellings, sql: str) -> None:
    with told("cpu_only").connect() as connection:
        assert scans_of_the_log(plan(connection, sql, {}))


@pytest.mark.parametrize("view", ["residency", "lifecycle", "ended", "chunks"])
def test_a_question_that_reads_every_row_of_a_view_is_noticed(told: Tellings, view: str) -> None:
    with told("cpu_only").connect() as connection:
        assert scans_of_residencies(plan(connection, f"SELECT chunk FROM {view} WHERE stream = 'cpu_only'", {}))


def test_the_log_has_no_other_alias_in_a_view_than_the_one_that_is_looked_for(told: Tellings) -> None:
    with told("cpu_only").connect() as connection:
        views = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'view'").scalars()
        text = " ".join(views)
    aliases = re.findall(r"\bevent AS (\w+)", text)
    assert len(aliases) == len(re.findall(r"\b(?:FROM|JOIN) event\b", text)) > 0
    assert set(aliases) == {"ev", "ev_last"}


def test_the_page_gives_the_command_that_its_figures_come_from() -> None:
    assert "python -m tests.benchmarks.questions --events 10000000" in (DOCS / "questions.md").read_text()
