"""Where a reader stands, and whether the log that is there now is still the one that it has read; changes with what a
reader must remember.

A batch goes in whole and its chain value covers all before it, so (seq, chain value of the batch that holds it) names
one history. After a power loss, or over a restored backup, the same seq can come to hold something else.
"""

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from eventstore.domain.errors import BadInput, Forked, Pruned
from eventstore.log.stream import StreamRow, find_stream, one_stream
from eventstore.storage import schema
from eventstore.storage.codec import first_chain

_batch = schema.batch.c


class Cursor(msgspec.Struct, frozen=True):
    """Everything up to `seq` of a stream has been read. `chain` is the value of the batch that holds `seq`; empty
    where that was pruned, and nothing can be compared."""

    stream: str
    seq: int
    chain: bytes


def beginning(stream: str) -> Cursor:
    """The cursor of a reader that has read nothing."""
    return Cursor(stream, 0, first_chain(stream))


def cursor_at(connection: Connection, stream: StreamRow, seq: int) -> Cursor:
    """The cursor of a reader that has read all up to `seq`, in the log as it is.

    Raises `BadInput` for a seq that the log does not have, `Pruned` where what follows it was pruned.
    """
    if not 0 <= seq <= stream.last_seq:
        raise BadInput(f"stream {stream.name!r} has no seq {seq}: it goes from 0 (before all) to {stream.last_seq}")
    _check_floor(stream, seq)
    return Cursor(stream.name, seq, _chain_at(connection, stream, seq))


def check(connection: Connection, cursor: Cursor) -> StreamRow:
    """The stream that `cursor` reads, as it stands.

    Raises `NoSuchStream`, `Pruned` where the next event is gone, `Forked` where the log is not the one read.
    """
    stream = find_stream(connection, cursor.stream) or one_stream(connection, cursor.stream)
    if cursor.seq > stream.last_seq:
        raise Forked(stream.name, cursor.seq, stream.last_seq, None)
    _check_floor(stream, cursor.seq)
    if cursor.chain and _chain_at(connection, stream, cursor.seq) not in (cursor.chain, b""):
        raise Forked(stream.name, cursor.seq, stream.last_seq, _epoch_before(connection, stream, cursor.seq))
    return stream


def _check_floor(stream: StreamRow, seq: int) -> None:
    if seq + 1 < stream.floor_seq:
        raise Pruned(stream.name, seq + 1, stream.floor_seq)


def _chain_at(connection: Connection, stream: StreamRow, seq: int) -> bytes:
    if seq == 0:
        return first_chain(stream.name)
    found: Any = connection.execute(
        select(_batch.last_seq, _batch.chain)
        .where(_batch.stream == stream.stream, _batch.first_seq <= seq)
        .order_by(_batch.first_seq.desc())
        .limit(1)
    ).one_or_none()
    return bytes(found.chain) if found is not None and found.last_seq >= seq else b""


def _epoch_before(connection: Connection, stream: StreamRow, seq: int) -> int | None:
    """Where the epoch that holds `seq` begins: a history can fork only where a process opened the stream."""
    epoch = (
        select(_batch.epoch)
        .where(_batch.stream == stream.stream, _batch.first_seq <= seq)
        .order_by(_batch.first_seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    first = (
        select(_batch.first_seq)
        .where(_batch.stream == stream.stream, _batch.epoch == epoch)
        .order_by(_batch.first_seq)
        .limit(1)
    )
    return connection.execute(first).scalar()
