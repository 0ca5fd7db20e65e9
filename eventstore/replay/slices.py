"""Which part of a stream is meant: from and to, by seq or time or epoch; changes with how a slice can be named."""

from typing import NamedTuple

from sqlalchemy import Connection

from eventstore.domain.errors import BadInput, Pruned
from eventstore.domain.point import Moment, Point, Seq
from eventstore.log.points import seq_at
from eventstore.log.read import epoch_span
from eventstore.log.stream import StreamRow


class Slice(NamedTuple):
    """Events `first` to `last`, both included; empty where `last` is `first - 1`."""

    first: int
    last: int


def slice_of(
    connection: Connection,
    stream: StreamRow,
    first: Point | None = None,
    last: Point | None = None,
    epoch: int | None = None,
) -> Slice:
    """The events from `first` to `last`, of one epoch if one is named. None: from the floor, to the end.

    A time as `first` is the first event at or after it, as `last` the last one before the first that is later.
    Raises `BadInput` where the log has no such slice, `Pruned` where it has it no more.
    """
    start, end = stream.floor_seq, stream.last_seq
    if epoch is not None:
        start, end = _epoch(connection, stream, epoch)
    if isinstance(first, Moment):
        start = max(start, seq_at(connection, stream, Moment(first.time_ns - 1)) + 1)
    elif isinstance(first, Seq):
        start = max(start, _known(stream, first.seq)) if epoch is not None else _known(stream, first.seq)
    if last is not None:
        end = min(end, seq_at(connection, stream, last))
    if end < start - 1:
        raise BadInput(f"stream {stream.name!r}: no slice from {start} to {end}; it ends before it begins")
    return Slice(start, end)


def _known(stream: StreamRow, seq: int) -> int:
    # One past the end is an empty slice: where a follower begins.
    if not 1 <= seq <= stream.last_seq + 1:
        raise BadInput(f"stream {stream.name!r} has no seq {seq}: it goes from {stream.floor_seq} to {stream.last_seq}")
    if seq < stream.floor_seq:
        raise Pruned(stream.name, seq, stream.floor_seq)
    return seq


def _epoch(connection: Connection, stream: StreamRow, epoch: int) -> tuple[int, int]:
    found = epoch_span(connection, stream.stream, epoch)
    if found is None:
        raise BadInput(f"stream {stream.name!r} has no epoch {epoch}: its last one is {stream.epoch}")
    return max(found[0], stream.floor_seq), found[1]
