"""What the SQL views show of a stream, as words that a test can write by hand; changes with the views for people."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.tracker.samples import BY_KEY


def log(store: Path) -> list[str]:
    """The stream's events in order, after the one that began its first epoch."""
    size = "(SELECT length(body) FROM payload AS b WHERE b.chunk > 0 AND b.seq = events.seq)"
    return [_event(row) for row in _rows(store, f"SELECT *, {size} AS size FROM events ORDER BY seq")][1:]


def lives(store: Path) -> list[str]:
    """Every residency that there ever was, in the order in which they opened, with how it ended."""
    rows = _rows(store, "SELECT * FROM lifecycle ORDER BY opened_seq")
    return [f"{_chunk(row)} at {_place(row)}: {row['reason'] or 'open'}" for row in rows]


def numbers(store: Path) -> list[tuple[str, int]]:
    """Every chunk that the stream knows and how many numbers it has."""
    rows = _rows(store, 'SELECT lower(hex("key")) AS key, count(*) AS numbers FROM chunk GROUP BY "key"')
    return sorted((_chunk(row), row["numbers"]) for row in rows)


def _rows(store: Path, query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def _event(row: dict[str, Any]) -> str:
    kind = row["kind"]
    if kind == "chunk_described":
        return f"{'described' if row['size'] else 'named'} {_chunk(row)}"
    if kind == "chunk_stored":
        flags = [name for name in ("repeated", "placeholder") if row[name]]
        return " ".join([f"stored {_chunk(row)} at {_place(row)}", *flags])
    if kind == "chunk_removed":
        end = row["reason"] if row["matched"] and row["reason"] else "unmatched"
        return f"removed {_chunk(row)} at {_place(row)}: {end}"
    return str(kind)


def _chunk(row: dict[str, Any]) -> str:
    return BY_KEY[bytes.fromhex(row["key"])].name


def _place(row: dict[str, Any]) -> str:
    return str(row["medium"]) if row["ownership"] is None else f"{row['medium']}/{row['ownership']}"
