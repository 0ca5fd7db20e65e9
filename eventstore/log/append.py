"""Appends a batch, all of it or nothing, once; changes when a batch does.

The views move in the same statement: the triggers behind `append` (migrations/sql) keep them.
"""

import enum

import msgspec
from sqlalchemy import Connection, select

from eventstore.domain.errors import Conflict, Fenced, NoSuchStream, OutOfOrder
from eventstore.domain.events import CHUNK_SHIFT, PLACE_BITS, PLACE_SHIFT, PlaceRow
from eventstore.storage import codec, schema
from eventstore.storage.engine import AppendRefused

_PLACE_MASK = (1 << PLACE_BITS) - 1

_INSERT = (
    "INSERT INTO append (stream, epoch, first_seq, last_seq, time_ns, uptime_ns, handed_out,"
    " places, steps, descs, bodies, sums, prev_chain, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Step(msgspec.Struct, frozen=True):
    """Events of one moment: the first one's seq, the time in nanoseconds UTC, one packed fact an event."""

    first_seq: int
    time_ns: int
    facts: list[int]


class Batch(msgspec.Struct, frozen=True):
    """What one transaction adds to a stream. Built once; sent again as it is after a failure."""

    stream: int
    header: codec.Header
    prev_chain: bytes
    chain: bytes
    parameters: tuple[object, ...]


class Outcome(enum.Enum):
    """What became of a batch."""

    APPENDED = "appended"
    ALREADY_THERE = "already there"


def build(
    stream: int,
    header: codec.Header,
    prev_chain: bytes,
    steps: list[Step],
    beside: list[codec.Described],
    new_places: list[PlaceRow],
    place_sums: dict[int, int],
) -> Batch:
    """Encode a batch. `beside` is in seq order; `place_sums` has every place that a fact of the batch names."""
    triples = [(step.first_seq, step.time_ns, step.facts) for step in steps]
    rows = codec.event_rows(triples)
    get, shift, mask = place_sums.get, PLACE_SHIFT, _PLACE_MASK
    places = [get(fact >> shift & mask, 0) for step in steps for fact in step.facts]
    sums = codec.checksums(rows, places, beside, header.first_seq)
    chain = codec.chain(prev_chain, header, rows, beside)
    descs, bodies = codec.bodies_json(beside)
    parameters = (
        stream,
        header.epoch,
        header.first_seq,
        header.last_seq,
        header.time_ns,
        header.uptime_ns,
        header.handed_out,
        codec.places_json(new_places),
        codec.steps_json(triples),
        descs,
        bodies,
        codec.pack_sums(sums),
        prev_chain,
        chain,
    )
    return Batch(stream, header, prev_chain, chain, parameters)


def append(connection: Connection, batch: Batch) -> Outcome:
    """Add `batch` to its stream and move the views.

    Sending the same batch again is harmless. Raises `Fenced` where a newer epoch has begun, `OutOfOrder` where the
    batch does not continue the log, `Conflict` where other content stands under its seqs, `StoreBusy` and `StoreFull`
    where trying again can help; nothing of the batch is in the log then.
    """
    try:
        connection.exec_driver_sql(_INSERT, batch.parameters)
    except AppendRefused as refused:
        return _explain(connection, batch, refused)
    return Outcome.APPENDED


def _explain(connection: Connection, batch: Batch, refused: AppendRefused) -> Outcome:
    header, table = batch.header, schema.batch.c
    if refused.cause == "no such stream":
        raise NoSuchStream(f"the store has no stream number {batch.stream}") from None
    there = connection.execute(
        select(table.chain).where(table.stream == batch.stream, table.first_seq == header.first_seq)
    ).scalar()
    if there == batch.chain:
        return Outcome.ALREADY_THERE
    if refused.cause == "fenced":
        raise Fenced(batch.stream, header.epoch) from None
    last = connection.execute(
        select(schema.stream.c.last_seq).where(schema.stream.c.stream == batch.stream)
    ).scalar_one()
    if header.first_seq <= last:
        raise Conflict(batch.stream, header.first_seq) from None
    raise OutOfOrder(batch.stream, header.first_seq, last) from None


def chunk_of(fact: int) -> int:
    """The chunk that a packed fact names."""
    return fact >> CHUNK_SHIFT
