"""Who is where, now or at any seq; changes with what is asked of residency."""

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import BadInput
from eventstore.log.stream import StreamRow


class ResidencyRow(msgspec.Struct, frozen=True):
    """A chunk at a place, from `opened_seq` on. Times in nanoseconds UTC."""

    key: bytes
    medium: str
    ownership: str | None
    opened_seq: int
    opened_ns: int
    flags: int
    chunk: int
    place: int


PAGE_ROWS = 4_096

# Pages by (chunk, place), so that no cursor stays open while a caller prints.
_NOW = (
    'SELECT c."key", p.medium, p.ownership, r.opened_seq, r.opened_ns, r.flags, r.chunk, r.place'
    " FROM open_residency AS r"
    " JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk"
    " JOIN place AS p ON p.stream = r.stream AND p.place = r.place"
    " WHERE r.stream = ?1 AND (r.chunk, r.place) > (?2, ?3) ORDER BY r.chunk, r.place LIMIT ?4"
)
_THEN = (
    'SELECT c."key", p.medium, p.ownership, r.opened_seq, r.opened_ns, r.flags, r.chunk, r.place'
    " FROM ("
    "  SELECT stream, chunk, place, opened_seq, opened_ns, flags FROM open_residency"
    "  WHERE stream = ?1 AND opened_seq <= ?5"
    "  UNION ALL"
    "  SELECT stream, chunk, place, opened_seq, opened_ns, flags FROM closed_residency"
    "  WHERE stream = ?1 AND opened_seq <= ?5 AND closed_seq > ?5"
    " ) AS r"
    " JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk"
    " JOIN place AS p ON p.stream = r.stream AND p.place = r.place"
    " WHERE (r.chunk, r.place) > (?2, ?3) ORDER BY r.chunk, r.place LIMIT ?4"
)


def residency(connection: Connection, stream: StreamRow, at_seq: int | None = None) -> Iterator[ResidencyRow]:
    """Every residency open after event `at_seq` (default: now), in order of chunk and place.

    Raises `BadInput` for a seq that the log does not have.
    """
    if at_seq is not None and not 0 <= at_seq <= stream.last_seq:
        raise BadInput(f"stream {stream.name!r} has no seq {at_seq}: it goes from 0 (before all) to {stream.last_seq}")
    after = (0, 0)
    while True:
        parameters: tuple[int, ...] = (stream.stream, *after, PAGE_ROWS)
        if at_seq is not None:
            parameters += (at_seq,)
        found = [
            ResidencyRow(*row) for row in connection.exec_driver_sql(_NOW if at_seq is None else _THEN, parameters)
        ]
        if not found:
            return
        yield from found
        after = (found[-1].chunk, found[-1].place)


def resident_counts(connection: Connection, stream: int) -> dict[str, int]:
    """How many chunks are resident now, by medium."""
    rows = connection.exec_driver_sql(
        "SELECT p.medium, count(*) FROM open_residency AS r"
        " JOIN place AS p ON p.stream = r.stream AND p.place = r.place"
        " WHERE r.stream = ? GROUP BY p.medium",
        (stream,),
    )
    return {medium: count for medium, count in rows}


def positions(connection: Connection, stream: int) -> dict[str, int]:
    """The seq that each view has reached."""
    rows = connection.exec_driver_sql('SELECT "view", seq FROM position WHERE stream = ? ORDER BY "view"', (stream,))
    return {view: seq for view, seq in rows}
