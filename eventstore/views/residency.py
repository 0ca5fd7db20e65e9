"""Who is where, now or at any seq; changes with what is asked of residency."""

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import BadInput
from eventstore.domain.events import PLACEHOLDER
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
# Pages by chunk number: each row is visited once, however many pages it takes. What the log gains between two pages
# changes nothing, since a residency that is open after event N is in one of the two tables in every later snapshot.
CHUNKS_A_PAGE = 2_048
_UPTO = (
    "SELECT max(chunk) FROM (SELECT chunk FROM chunk WHERE stream = ? AND chunk > ? AND chunk <= ?"
    " ORDER BY chunk LIMIT ?)"
)
# A placeholder's flag is cleared once its chunk is described, so at an earlier seq the store that opened it says.
_THEN = (
    'SELECT c."key", p.medium, p.ownership, r.opened_seq, r.opened_ns, r.flags | CASE'
    f"  WHEN e.flags & {PLACEHOLDER} AND NOT EXISTS ("
    "    SELECT 1 FROM payload AS d WHERE d.stream = ?1 AND d.chunk = r.chunk"
    "    AND d.seq BETWEEN r.opened_seq AND ?4 AND length(d.body) > 0"
    f"  ) THEN {PLACEHOLDER} ELSE 0 END, r.chunk, r.place"
    " FROM ("
    "  SELECT stream, chunk, place, opened_seq, opened_ns, flags FROM open_residency"
    "  WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND opened_seq <= ?4"
    "  UNION ALL"
    "  SELECT stream, chunk, place, opened_seq, opened_ns, flags FROM closed_residency"
    "  INDEXED BY closed_residency_by_chunk"
    "  WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND closed_seq > ?4 AND opened_seq <= ?4"
    " ) AS r"
    " JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk"
    " JOIN place AS p ON p.stream = r.stream AND p.place = r.place"
    " LEFT JOIN event AS e ON e.stream = r.stream AND e.seq = r.opened_seq"
    " ORDER BY r.chunk, r.place"
)


def residency(connection: Connection, stream: StreamRow, at_seq: int | None = None) -> Iterator[ResidencyRow]:
    """Every residency open after event `at_seq` (default: now), in order of chunk and place.

    Raises `BadInput` for a seq that the log does not have.
    """
    if at_seq is not None:
        yield from _at(connection, stream, at_seq)
        return
    after = (0, 0)
    while found := _rows(connection, _NOW, (stream.stream, *after, PAGE_ROWS)):
        yield from found
        after = (found[-1].chunk, found[-1].place)


def _at(connection: Connection, stream: StreamRow, at_seq: int) -> Iterator[ResidencyRow]:
    if not stream.floor_seq - 1 <= at_seq <= stream.last_seq:
        first = "0 (before all)" if stream.floor_seq == 1 else str(stream.floor_seq - 1)
        raise BadInput(f"stream {stream.name!r} has no seq {at_seq}: it goes from {first} to {stream.last_seq}")
    after = 0
    # A chunk's number is the seq that named it, so none above `at_seq` was there.
    while upto := connection.exec_driver_sql(_UPTO, (stream.stream, after, at_seq, CHUNKS_A_PAGE)).scalar():
        yield from _rows(connection, _THEN, (stream.stream, after, upto, at_seq))
        after = upto


def _rows(connection: Connection, statement: str, parameters: tuple[int, ...]) -> list[ResidencyRow]:
    return [ResidencyRow(*row) for row in connection.exec_driver_sql(statement, parameters)]


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
