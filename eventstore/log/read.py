"""Reads the log by pages, never through an open cursor; changes with what a reader may ask for.

A page is its own short query from a seq on (keyset), so that a slow or forgotten reader pins no snapshot.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, select

from eventstore.domain.events import Event, Kind
from eventstore.storage import schema

PAGE_ROWS = 4_096

_event, _payload = schema.event.c, schema.payload.c
#: Kinds that have something beside their row.
BODIED = (Kind.EPOCH_STARTED, Kind.CHUNK_DESCRIBED, Kind.CACHE_RESET, Kind.GAP, Kind.EPOCH_ENDED)


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
    """The next events after `after_seq`, up to `rows` of them, none after `upto`. Empty at the end."""
    query = (
        select(*schema.event.c[1:], _payload.body)
        .select_from(schema.event)
        .outerjoin(
            schema.payload,
            and_(
                _event.kind.in_([int(kind) for kind in BODIED]),
                _payload.stream == _event.stream,
                _payload.chunk == _event.chunk,
                _payload.seq == _event.seq,
            ),
        )
        .where(_event.stream == stream, _event.seq > after_seq)
        .order_by(_event.seq)
        .limit(rows)
    )
    if upto is not None:
        query = query.where(_event.seq <= upto)
    found: list[Any] = list(connection.execute(query))
    return [
        Event(seq, time_ns, Kind(kind), flags, place, chunk, body or b"")
        for seq, time_ns, kind, flags, place, chunk, body in found
    ]


def events(connection: Connection, stream: int, after_seq: int = 0, upto: int | None = None) -> Iterator[Event]:
    """All events after `after_seq`, up to and with `upto`, page by page."""
    while found := page(connection, stream, after_seq, upto=upto):
        yield from found
        after_seq = found[-1].seq


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
