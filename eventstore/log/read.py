"""Reads the log by pages, never through an open cursor; changes with what a reader may ask for.

A page is its own short query from a seq on (keyset), so that a slow or forgotten reader pins no snapshot.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import repeat

import msgspec
from sqlalchemy import Connection, func, select

from eventstore.domain.errors import StoreDamaged
from eventstore.domain.events import Event, Kind
from eventstore.storage import schema
from eventstore.storage.rows import tuples

#: A page is bounded in rows, and in bytes of what stands beside them.
PAGE_ROWS = 4_096
PAGE_BYTES = 4 * 1024 * 1024

_event = schema.event.c
#: Kinds that have something beside their row.
BODIED = (Kind.EPOCH_STARTED, Kind.CHUNK_DESCRIBED, Kind.CACHE_RESET, Kind.GAP, Kind.EPOCH_ENDED)

# The two tables apart: as one outer join it takes half as long again.
_ROWS = (
    "SELECT seq, time_ns, kind, flags, place, chunk FROM event"
    " WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
)
_BODIES = (
    "SELECT e.seq, p.body FROM event AS e"
    " CROSS JOIN payload AS p ON p.stream = e.stream AND p.chunk = e.chunk AND p.seq = e.seq"
    f" WHERE e.stream = ? AND e.seq BETWEEN ? AND ? AND e.kind IN ({', '.join(str(int(kind)) for kind in BODIED)})"
    " ORDER BY e.seq"
)
_BODIES_AT_ONCE = 256
_END_OF_TIME = 2**63 - 1
_kind_of = {int(kind): kind for kind in Kind}.__getitem__


class BatchRow(msgspec.Struct, frozen=True):
    """One committed batch, as its row says."""

    first_seq: int
    last_seq: int
    epoch: int
    time_ns: int
    uptime_ns: int
    handed_out: int
    sums: bytes
    chain: bytes


def page(
    connection: Connection, stream: int, after_seq: int, *, upto: int | None = None, rows: int = PAGE_ROWS
) -> list[Event]:
    """The next events after `after_seq`, up to `rows` of them and about `PAGE_BYTES`, none after `upto`. Empty at the
    end. Raises `StoreDamaged` for a row that no event has."""
    end = _END_OF_TIME if upto is None else upto
    found = tuples(connection, _ROWS, (stream, after_seq, end, rows))
    if not found:
        return []
    seqs, times, kinds, flags, places, chunks = zip(*found, strict=True)
    bodies, end = _bodies(connection, stream, seqs[0], seqs[-1])
    try:
        made = map(Event, seqs, times, map(_kind_of, kinds), flags, places, chunks, map(bodies.get, seqs, repeat(b"")))
        return list(made)[: bisect_right(seqs, end)]
    except KeyError as error:
        raise StoreDamaged(f"the log holds an event of kind {error}, and no event is; run `kvledger verify`") from None


def _bodies(connection: Connection, stream: int, first: int, last: int) -> tuple[dict[int, bytes], int]:
    """What stands beside events `first` to `last`, by seq, and the seq up to which it was read."""
    bodies: dict[int, bytes] = {}
    size = 0
    with connection.exec_driver_sql(_BODIES, (stream, first, last)) as result:
        while some := result.cursor.fetchmany(_BODIES_AT_ONCE):
            bodies.update(some)
            size += sum(len(body) for _, body in some)
            if size >= PAGE_BYTES:
                return bodies, int(some[-1][0])
    return bodies, last


def events(connection: Connection, stream: int, after_seq: int = 0, upto: int | None = None) -> Iterator[Event]:
    """All events after `after_seq`, up to and with `upto`, page by page."""
    while found := page(connection, stream, after_seq, upto=upto):
        yield from found
        after_seq = found[-1].seq


def batches_over(connection: Connection, stream: int, first: int, last: int) -> list[BatchRow]:
    """The batches that hold events `first` to `last`, in order."""
    rows = tuples(
        connection,
        "SELECT first_seq, last_seq, epoch, time_ns, uptime_ns, handed_out, sums, chain FROM batch"
        " WHERE stream = ?1 AND first_seq <= ?3 AND first_seq >="
        " coalesce((SELECT max(first_seq) FROM batch WHERE stream = ?1 AND first_seq <= ?2), 0) ORDER BY first_seq",
        (stream, first, last),
    )
    return [BatchRow(*row) for row in rows if row[1] >= first]


def epoch_span(connection: Connection, stream: int, epoch: int) -> tuple[int, int] | None:
    """The first and the last seq of an epoch that are in the log."""
    table = schema.batch.c
    query = select(func.min(table.first_seq), func.max(table.last_seq))
    first, last = connection.execute(query.where(table.stream == stream, table.epoch == epoch)).one()
    return (first, last) if first is not None else None


def batches(connection: Connection, stream: int, after_first: int = 0) -> Iterator[BatchRow]:
    """The stream's batches in order, those whose first seq is greater than `after_first`."""
    table = schema.batch.c
    while True:
        query = (
            select(*table[1:]).where(table.stream == stream, table.first_seq > after_first).order_by(table.first_seq)
        )
        found = [BatchRow(*row) for row in connection.execute(query.limit(256))]
        if not found:
            return
        yield from found
        after_first = found[-1].first_seq


def batches_backwards(connection: Connection, stream: int) -> Iterator[BatchRow]:
    """The stream's batches, the newest first."""
    table, before = schema.batch.c, None
    while True:
        query = select(*table[1:]).where(table.stream == stream).order_by(table.first_seq.desc()).limit(64)
        if before is not None:
            query = query.where(table.first_seq < before)
        found = [BatchRow(*row) for row in connection.execute(query)]
        if not found:
            return
        yield from found
        before = found[-1].first_seq
