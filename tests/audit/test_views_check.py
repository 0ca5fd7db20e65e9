"""The check `views` finds every row in which a view and a fold of the log differ, and changes none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.audit.auditing import audit, change

DAMAGES = {
    "residency changed": (
        "UPDATE open_residency SET opened_seq = opened_seq + 1"
        " WHERE chunk IN (SELECT chunk FROM open_residency LIMIT 3)",
        "opened_seq is",
    ),
    "residency lacks rows": (
        "DELETE FROM open_residency WHERE chunk = (SELECT max(chunk) FROM open_residency)",
        "the log says so, the view does not",
    ),
    "residency has a row too many": (
        "INSERT INTO open_residency SELECT stream, chunk, 9, opened_seq, opened_ns, flags, stores, confirmed"
        " FROM open_residency LIMIT 1",
        "the view says so, the log does not",
    ),
    "residency forgets a store": (
        "UPDATE open_residency SET stores = stores + 1 WHERE chunk = (SELECT min(chunk) FROM open_residency)",
        "stores is",
    ),
    "residency is unconfirmed": (
        "UPDATE open_residency SET confirmed = 0 WHERE chunk = (SELECT min(chunk) FROM open_residency)",
        "confirmed is 0, by the log 1",
    ),
    "lifecycle changed": (
        "UPDATE closed_residency SET reason = 9 WHERE closed_seq = (SELECT max(closed_seq) FROM closed_residency)",
        "reason is 9, by the log",
    ),
    "lifecycle lacks rows": (
        "DELETE FROM closed_residency WHERE closed_seq IN (SELECT closed_seq FROM closed_residency LIMIT 8)",
        "the log says so, the view does not",
    ),
    "lifecycle has an end that the log does not": (
        "INSERT INTO closed_residency SELECT stream, closed_seq + 1000000, chunk, place, opened_seq, opened_ns, flags,"
        " stores, closed_ns, reason FROM closed_residency LIMIT 2",
        "the view says so, the log does not",
    ),
    "lifecycle has an end before all": (
        "INSERT INTO closed_residency SELECT stream, -1, chunk, place, opened_seq, opened_ns, flags, stores, closed_ns,"
        " reason FROM closed_residency LIMIT 1",
        "the view says so, the log does not",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_view_that_is_not_what_the_log_gives_is_a_finding(copy: Path, damage: str) -> None:
    statement, problem = DAMAGES[damage]
    rows = change(copy, statement)
    found = audit(copy, "--check", "views", exits=1)["views"]
    assert (found["level"], found["count"]) == ("finding", rows)
    assert all(problem in example["problem"] for example in found["examples"])


def test_an_end_that_the_log_does_not_bear_out_any_more_is_a_finding(copy: Path) -> None:
    change(copy, "UPDATE event SET kind = 3 WHERE seq = (SELECT max(closed_seq) FROM closed_residency)")
    found = audit(copy, "--check", "views", exits=1)["views"]
    # The residency that ended stands in `lifecycle`, by the log it is still open.
    assert {(example["view"], example["problem"]) for example in found["examples"]} == {
        ("lifecycle", "the view says so, the log does not"),
        ("residency", "the log says so, the view does not"),
    }


def test_only_the_first_few_differences_are_shown_and_all_are_counted(copy: Path) -> None:
    change(copy, "UPDATE closed_residency SET opened_ns = opened_ns + 1")
    with closing(sqlite3.connect(copy)) as database:
        (rows,) = database.execute("SELECT count(*) FROM closed_residency").fetchone()
    found = audit(copy, "--check", "views", exits=1)["views"]
    assert (found["count"], len(found["examples"])) == (rows, 5)


def test_an_example_names_the_chunk(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as database:
        (chunk,) = database.execute(
            'SELECT lower(hex("key")) FROM chunk WHERE chunk IN (SELECT max(chunk) FROM open_residency)'
        ).fetchone()
    change(
        copy, "UPDATE open_residency SET flags = 0 WHERE chunk = (SELECT max(chunk) FROM open_residency) AND flags > 0"
    )
    (example,) = audit(copy, "--check", "views", exits=1)["views"]["examples"]
    assert (example["view"], example["key"]) == ("residency", chunk)


def test_an_audit_changes_nothing(copy: Path) -> None:
    change(copy, "UPDATE closed_residency SET reason = 9", "UPDATE position SET seq = seq - 1")
    with closing(sqlite3.connect(copy)) as database:
        before = list(database.iterdump())
    audit(copy, exits=1)
    with closing(sqlite3.connect(copy)) as database:
        assert list(database.iterdump()) == before
