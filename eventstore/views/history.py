"""The life of one chunk; changes with what is told of it."""

import msgspec
from sqlalchemy import Connection

from eventstore.domain.events import Kind, Reason


class Interval(msgspec.Struct, frozen=True):
    """One residency from opening to end; still open where `closed_seq` is None."""

    medium: str
    ownership: str | None
    opened_seq: int
    opened_ns: int
    stores: int
    closed_seq: int | None
    closed_ns: int | None
    reason: Reason | None


def intervals(connection: Connection, stream: int, chunk: int) -> list[Interval]:
    """Every residency that the chunk ever had, in the order in which they opened."""
    rows = connection.exec_driver_sql(
        "SELECT p.medium, p.ownership, r.opened_seq, r.opened_ns, r.stores, r.closed_seq, r.closed_ns, r.reason FROM ("
        "  SELECT place, opened_seq, opened_ns, stores, closed_seq, closed_ns, reason FROM closed_residency"
        "  WHERE stream = ?1 AND chunk = ?2"
        "  UNION ALL"
        "  SELECT place, opened_seq, opened_ns, stores, NULL, NULL, NULL FROM open_residency"
        "  WHERE stream = ?1 AND chunk = ?2"
        " ) AS r JOIN place AS p ON p.stream = ?1 AND p.place = r.place ORDER BY r.opened_seq, r.place",
        (stream, chunk),
    )
    return [
        Interval(medium, owner, seq, ns, stores, closed, closed_ns, Reason(reason) if reason is not None else None)
        for medium, owner, seq, ns, stores, closed, closed_ns, reason in rows
    ]


def descriptions(connection: Connection, stream: int, chunk: int) -> list[tuple[int, bytes]]:
    """(seq, packed metadata) of every description of the chunk, oldest first; empty bytes: named, not described."""
    rows = connection.exec_driver_sql(
        "SELECT seq, body FROM payload WHERE stream = ? AND chunk = ? ORDER BY seq", (stream, chunk)
    )
    return [(seq, body) for seq, body in rows]


#: The kinds of event that are about one chunk.
CHUNK_KINDS = (
    Kind.CHUNK_DESCRIBED,
    Kind.CHUNK_STORED,
    Kind.CHUNK_REMOVED,
    Kind.RESIDENCY_CLOSED,
    Kind.RESIDENCY_CONFIRMED,
)
