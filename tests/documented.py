"""Reads the questions out of docs/questions.md, and the plans that SQLite makes for them; changes with that page."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection

DOCS = Path(__file__).parent.parent / "docs"

_QUESTION = re.compile(r"^## (\d+)\. (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r":([a-z_]+)")


class Question(NamedTuple):
    """One documented question: its number on the page, its title, its SQL and the parameters that it takes."""

    number: int
    title: str
    sql: str
    parameters: frozenset[str]


def questions() -> dict[int, Question]:
    """Every question of the page, by number; each has exactly one block."""
    found = {}
    for number, title, text in _QUESTION.findall((DOCS / "questions.md").read_text(encoding="utf-8")):
        (sql,) = _BLOCK.findall(text)
        found[int(number)] = Question(int(number), title, sql, frozenset(_PARAMETER.findall(sql)))
    return found


def ask(connection: Connection, question: Question, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The answer, row by row, over the driver as any tool would run it."""
    parameters = {name: given[name] for name in question.parameters}
    return [tuple(row) for row in connection.exec_driver_sql(question.sql, parameters)]


def plan(connection: Connection, sql: str, given: Mapping[str, Any]) -> list[str]:
    """The steps of the query plan, in words."""
    parameters = {name: given[name] for name in _PARAMETER.findall(sql)}
    return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)]


def scans_of_the_log(steps: list[str]) -> list[str]:
    """The steps that go through a whole stream's events. `ev` is the log's alias in every view."""
    return [step for step in steps if re.match(r"(SCAN|SEARCH) (event|ev\w*)\b", step) and "seq" not in step]


def scans_of_residencies(steps: list[str]) -> list[str]:
    """The steps that go through all residencies, of now or ever, or through all chunks."""
    whole = re.compile(r"SCAN [rclpqd]\b|SEARCH [rclpqd]\b.*\((stream=\?|ANY\(stream\))\)")
    return [step for step in steps if whole.match(step)]
