"""`kvledger audit` as a test runs it, and stores that are damaged on purpose; changes with what an audit prints."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.cli.command import kvledger

Results = dict[str, dict[str, Any]]


def audit(store: Path, *arguments: object, exits: int = 0) -> Results:
    """Each check's result on the one stream."""
    ran = kvledger("audit", "--store", store, "--json", *arguments)
    assert ran.code == exits, ran.err or ran.out
    found = ran.json()
    assert found["ok"] is (exits == 0)
    return {result["check"]: result for result in found["results"]}


def counts(results: Results) -> dict[str, int]:
    """What was found, without the checks that found nothing."""
    return {name: result["count"] for name, result in results.items() if result["count"]}


def change(store: Path, *statements: str) -> int:
    """Damage a store; returns how many rows were changed, added or taken away."""
    with closing(sqlite3.connect(store)) as database:
        rows = [database.execute(statement).rowcount for statement in statements]
        database.commit()
    assert all(rows), "nothing to damage"
    return sum(rows)
