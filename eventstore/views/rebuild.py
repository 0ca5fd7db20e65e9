"""Computes the views anew from the log; changes with what a view holds.

The live views are kept by triggers, in SQL; here the same rows come from the rule itself (`domain.residency`), so that
a rebuild that changes nothing shows the two to be one.
"""

from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection

from eventstore.domain.residency import Fold
from eventstore.log.read import events
from eventstore.log.stream import VIEWS, StreamRow

_ROWS_A_STATEMENT = 10_000

_TABLES = {"residency": "open_residency", "lifecycle": "closed_residency"}
_KEYS = {"residency": "chunk, place", "lifecycle": "closed_seq, chunk, place"}


class Rebuilt(msgspec.Struct, frozen=True):
    """What a rebuild found: rows a view, and how many rows were wrong, missing or too many before."""

    stream: str
    seq: int
    rows: dict[str, int]
    changed: dict[str, int]


def rebuild(connection: Connection, stream: StreamRow) -> Rebuilt:
    """Replace the stream's view rows by those that its log gives. The caller's transaction makes it true."""
    number = stream.stream
    for view, table in _TABLES.items():
        connection.exec_driver_sql(f"CREATE TEMP TABLE rebuilt_{view} AS SELECT * FROM {table} WHERE 0")
    fold = Fold()
    pending: list[tuple[int, ...]] = []
    ended = 0
    for event in events(connection, number, stream.floor_seq - 1):
        for closed in fold.apply(event):
            r = closed.residency
            opened = (r.chunk, r.place, r.opened_seq, r.opened_ns, r.flags, r.stores)
            pending.append((number, closed.closed_seq, *opened, closed.closed_ns, int(closed.reason)))
        if len(pending) >= _ROWS_A_STATEMENT:
            ended += _insert(connection, "lifecycle", pending)
            pending = []
    ended += _insert(connection, "lifecycle", pending)
    open_now = _insert(
        connection,
        "residency",
        [(number, r.chunk, r.place, r.opened_seq, r.opened_ns, r.flags, r.stores, r.confirmed) for r in fold],
    )
    changed = {view: _replace(connection, view, number) for view in _TABLES}
    connection.exec_driver_sql(
        'INSERT INTO position (stream, "view", seq) VALUES (?, ?, ?)'
        ' ON CONFLICT (stream, "view") DO UPDATE SET seq = excluded.seq',
        [(number, view, stream.last_seq) for view in VIEWS],
    )
    return Rebuilt(stream.name, stream.last_seq, {"residency": open_now, "lifecycle": ended}, changed)


def _insert(connection: Connection, view: str, rows: Iterable[tuple[int, ...]]) -> int:
    rows = list(rows)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"INSERT INTO rebuilt_{view} VALUES ({marks})", rows)
    return len(rows)


def _replace(connection: Connection, view: str, stream: int) -> int:
    """Put the rebuilt rows in place; returns how many rows differed."""
    table = _TABLES[view]
    key = _KEYS[view]
    # Rows are told apart by their key: one that holds something else is one row, not a wrong and a missing one.
    different: int = connection.exec_driver_sql(
        "SELECT count(*) FROM ("
        f"SELECT {key} FROM (SELECT * FROM {table} WHERE stream = ?1 EXCEPT SELECT * FROM rebuilt_{view})"
        f" UNION SELECT {key} FROM (SELECT * FROM rebuilt_{view} EXCEPT SELECT * FROM {table} WHERE stream = ?1))",
        (stream,),
    ).scalar_one()
    if different:
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE stream = ?", (stream,))
        connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM rebuilt_{view}")
    connection.exec_driver_sql(f"DROP TABLE rebuilt_{view}")
    return different
