"""The views of a driven store equal its log: verified, rebuilt, and asked about any moment."""

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventstore.cli.reading import reading_stream
from eventstore.views.residency import residency
from tests.facts import NAMES
from tests.traces.conftest import Drives
from tests.traces.driving import Driven, Mode, document, kvledger
from tests.traces.log_fold import Folded
from tests.traces.test_counts import VARIANTS

STORES = [
    *((name, Mode()) for name in NAMES),
    *((name, Mode("at_once", "closes", crash=True)) for name in NAMES),
    *VARIANTS,
]
#: The tables that hold the views.
TABLES = {"residency": "open_residency", "lifecycle": "closed_residency"}


def replayed(drive: Driven, folder: Path) -> list[dict[str, Any]]:
    """The log's events as `kvledger replay` gives them."""
    code, _ = kvledger("replay", "--store", drive.store, "--output", folder / "log.jsonl")
    assert code == 0
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]
    return [line for line in lines if "kind" in line]


def view_rows(store: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(store)) as database:
        return {table: list(database.execute(f"SELECT * FROM {table}")) for table in [*TABLES.values(), "position"]}


@pytest.fixture
def copy(driven: Drives, tmp_path: Path) -> Path:
    """A driven store that a test may damage."""
    path = tmp_path / "copy.db"
    with closing(sqlite3.connect(driven("two_tier", Mode()).store)) as source, closing(sqlite3.connect(path)) as made:
        source.backup(made)
    return path


@pytest.mark.parametrize(("which", "mode"), STORES, ids=str)
def test_a_driven_store_verifies(driven: Drives, which: str, mode: Mode) -> None:
    found = document("verify", "--store", driven(which, mode).store)
    assert (found["ok"], [one["findings"] for one in found["streams"]]) == (True, [[]])


@pytest.mark.parametrize(("which", "mode"), STORES, ids=str)
def test_a_rebuild_changes_no_row_of_a_driven_store(driven: Drives, which: str, mode: Mode) -> None:
    drive = driven(which, mode)
    before = view_rows(drive.store)
    assert document("rebuild", "--store", drive.store)["changed"] == 0
    assert view_rows(drive.store) == before


@pytest.mark.parametrize("table", TABLES.values())
def test_a_rebuild_puts_damaged_view_rows_right_and_says_how_many(copy: Path, table: str) -> None:
    before = view_rows(copy)
    with closing(sqlite3.connect(copy)) as database:
        first_ten = f"SELECT DISTINCT chunk, place FROM {table} ORDER BY chunk, place LIMIT 10"
        places = database.execute(first_ten).fetchall()

        def damage(what: str, first: int, last: int) -> int:
            return database.executemany(f"{what} WHERE chunk = ? AND place = ?", places[first:last]).rowcount

        damaged = [
            damage(f"UPDATE {table} SET opened_ns = opened_ns + 1", 0, 3),
            damage(f"UPDATE {table} SET flags = flags + 4, stores = 7", 3, 5),
            damage(f"DELETE FROM {table}", 5, 9),
            # Gone where it was, and too many where it is.
            2 * damage(f"UPDATE {table} SET chunk = chunk + 1000000", 9, 10),
        ]
        database.commit()
    assert min(damaged) > 0
    assert document("rebuild", "--store", copy)["changed"] == sum(damaged)
    assert view_rows(copy) == before


def test_a_rebuild_restores_the_seq_that_a_view_has_reached(copy: Path) -> None:
    before = view_rows(copy)
    with closing(sqlite3.connect(copy)) as database:
        database.execute("DELETE FROM position WHERE \"view\" = 'residency'")
        database.execute("UPDATE position SET seq = seq - 7")
        database.commit()
    document("rebuild", "--store", copy)
    assert view_rows(copy) == before


def folds(lines: list[dict[str, Any]], points: list[int]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """What is resident after each of `points`, in order."""
    folded, at = Folded(), 0
    for point in points:
        folded.take(lines[at:point])
        at = point
        yield point, folded.rows()


@pytest.mark.parametrize("which", [*NAMES, "two_tier/killed/1", "two_tier/described_late/1"])
def test_residency_at_any_seq_equals_a_fold_of_the_events_so_far(driven: Drives, which: str, tmp_path: Path) -> None:
    drive = driven(which, Mode())
    lines = replayed(drive, tmp_path)
    points = sorted({0, len(lines), *random.Random(which).sample(range(len(lines)), 200)})
    with reading_stream(str(drive.store), None) as (connection, stream):
        assert stream.last_seq == len(lines)
        for point, rows in folds(lines, points):
            found = {
                (one.key.hex(), one.medium, one.ownership, one.opened_seq, one.opened_ns)
                for one in residency(connection, stream, point)
            }
            names = ("key", "medium", "ownership", "opened_seq", "opened_ns")
            assert found == {tuple(row[name] for name in names) for row in rows}, f"after seq {point}"


@pytest.mark.parametrize("which", ["hybrid", "two_tier/described_late/1"])
def test_the_command_shows_residency_at_any_seq(driven: Drives, which: str, tmp_path: Path) -> None:
    drive = driven(which, Mode())
    lines = replayed(drive, tmp_path)
    for point, rows in folds(lines, sorted({*random.Random(which).sample(range(len(lines)), 12), len(lines)})):
        found = document("residency", "--store", drive.store, "--at", point)
        shown = [{name: one[name] for name in rows[0]} for one in found["residencies"]]
        assert (found["at_seq"], sorted(shown, key=str)) == (point, sorted(rows, key=str))
