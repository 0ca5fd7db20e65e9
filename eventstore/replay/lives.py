"""Residencies from opening to end, page by page, for who looks at many of them; changes with what is told of one."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from eventstore.domain import clock
from eventstore.domain.events import PLACEHOLDER, Kind, PlaceRow, Reason
from eventstore.domain.key import group_index
from eventstore.log.stream import StreamRow
from eventstore.replay.columns import Columns, Row
from eventstore.replay.form import Filter, Places
from eventstore.replay.reader import as_written
from eventstore.replay.slices import Slice
from eventstore.replay.state import UPTO
from eventstore.replay.words import locality_word, place_words
from eventstore.storage.engine import lean
from eventstore.storage.rows import tuples


class Life(NamedTuple):
    """One residency. `closed_*` and `reason` are None where it is still open."""

    chunk: int
    key: bytes
    place: PlaceRow
    opened_seq: int
    opened_ns: int
    closed_seq: int | None
    closed_ns: int | None
    reason: Reason | None
    flags: int
    stores: int


COLUMNS: Columns = (
    ("stream", "text"),
    ("key", "text"),
    ("medium", "text"),
    ("ownership", "text"),
    ("locality", "text"),
    ("opened_seq", "int"),
    ("opened", "time"),
    ("closed_seq", "int"),
    ("closed", "time"),
    ("seconds", "float"),
    ("reason", "text"),
    ("placeholder", "bool"),
    ("stores", "int"),
)

_LIVES = (
    'SELECT r.chunk, c."key", r.place, r.opened_seq, r.opened_ns, r.closed_seq, r.closed_ns, r.reason,'
    " r.flags, r.stores"
    " FROM ("
    "  SELECT chunk, place, opened_seq, opened_ns, NULL AS closed_seq, NULL AS closed_ns, NULL AS reason, flags, stores"
    "  FROM open_residency WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND opened_seq <= ?5"
    "  UNION ALL"
    "  SELECT chunk, place, opened_seq, opened_ns, closed_seq, closed_ns, reason, flags, stores"
    "  FROM closed_residency INDEXED BY closed_residency_by_chunk"
    "  WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND closed_seq >= ?4 AND opened_seq <= ?5"
    " ) AS r JOIN chunk AS c ON c.stream = ?1 AND c.chunk = r.chunk"
    " ORDER BY r.chunk, r.opened_seq, r.place"
)
_MARKS = (
    "SELECT e.seq, e.time_ns, e.kind FROM payload AS p JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq"
    " WHERE p.stream = ? AND p.chunk = 0 AND p.seq BETWEEN ? AND ? ORDER BY p.seq"
)
_CHUNKS_A_PAGE = 2_048


def life_pages(engine: Engine, stream: StreamRow, part: Slice, wanted: Filter) -> Iterator[list[Life]]:
    """Every residency that was open at some event of `part`, in order of chunk and opening.

    What ends after `part` is told as it is now. Between pages no transaction is open.
    """
    places, after = Places(), 0
    with engine.connect() as connection:
        with connection.begin():
            lean(connection)
        while True:
            with connection.begin(), as_written(stream.name):
                upto = connection.exec_driver_sql(UPTO, (stream.stream, after, part.last, _CHUNKS_A_PAGE)).scalar()
                found = _page(connection, stream, part, places, after, upto) if upto is not None else []
            if upto is None:
                return
            yield [one for one in found if wanted.takes_place(one.place) and wanted.takes_group(group_index(one.key))]
            after = upto


def _page(connection: Connection, stream: StreamRow, part: Slice, places: Places, after: int, upto: int) -> list[Life]:
    rows = tuples(connection, _LIVES, (stream.stream, after, upto, part.first, part.last))
    known = places.get(connection, stream, {row[2] for row in rows})
    return [
        Life(chunk, key, known[place], seq, ns, closed, closed_ns, Reason(why) if why is not None else None, *rest)
        for chunk, key, place, seq, ns, closed, closed_ns, why, *rest in rows
    ]


def marks(connection: Connection, stream: StreamRow, part: Slice) -> list[tuple[int, int, Kind]]:
    """(seq, time, kind) of every event about the stream itself."""
    rows = connection.exec_driver_sql(_MARKS, (stream.stream, *part))
    return [(seq, time_ns, Kind(kind)) for seq, time_ns, kind in rows]


def life_words(stream: str, one: Life) -> Row:
    """A residency as words and numbers; times in nanoseconds UTC."""
    return {
        "stream": stream,
        "key": one.key.hex(),
        **place_words(one.place),
        "locality": locality_word(one.flags),
        "opened_seq": one.opened_seq,
        "opened": one.opened_ns,
        "closed_seq": one.closed_seq,
        "closed": one.closed_ns,
        "seconds": (one.closed_ns - one.opened_ns) / 1e9 if one.closed_ns is not None else None,
        "reason": one.reason.name.lower() if one.reason is not None else None,
        "placeholder": bool(one.flags & PLACEHOLDER),
        "stores": one.stores,
    }


def with_iso_times(row: Row) -> Row:
    """The same with its times as text."""
    return row | {name: clock.iso(row[name]) if row[name] is not None else None for name in ("opened", "closed")}
