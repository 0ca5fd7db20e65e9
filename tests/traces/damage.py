"""A store with every kind of event in it, and ways to damage it; changes when the log gets a kind or a table."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

from eventstore.domain.events import Kind, Reason, StreamBody, encode_body, pack_fact
from eventstore.log.append import Step, append, build
from eventstore.log.read import batches_backwards
from eventstore.log.stream import one_stream, places_of
from eventstore.storage.codec import Described, Header, place_sum

#: The tables of the log with what orders their rows, and the seq that a row of each is about.
LOG = {
    "event": ("seq", "seq"),
    "payload": ("seq, chunk", "seq"),
    "chunk": ("chunk", "chunk"),
    "batch": ("first_seq", "first_seq"),
    "place": ("place", None),
    "stream": ("stream", None),
}
#: What the writer says of itself and no event does.
NOT_LOGGED = {("stream", "heartbeat_ns"), ("stream", "heartbeat_every_ns")}


def add_the_kinds_that_no_trace_has(engine: Engine) -> None:
    """Append a batch of a close, a confirmation, a gap and a clean end, as a writer would."""
    with engine.begin() as connection:
        stream = one_stream(connection, None)
        last = next(batches_backwards(connection, stream.stream))
        chunk, place = connection.exec_driver_sql("SELECT chunk, place FROM open_residency LIMIT 1").one()
        first = stream.last_seq + 1
        facts = [
            pack_fact(Kind.RESIDENCY_CONFIRMED, Reason.MISSING, place, chunk),
            pack_fact(Kind.RESIDENCY_CLOSED, Reason.MISSING, place, chunk),
            pack_fact(Kind.GAP),
            pack_fact(Kind.EPOCH_ENDED),
        ]
        beside = [
            Described(first + 2, 0, encode_body(StreamBody(lost=3, since_ns=last.time_ns, reason="overflow"))),
            Described(first + 3, 0, encode_body(StreamBody(epoch=last.epoch, reason="shutdown"))),
        ]
        header = Header(first, first + 3, last.epoch, last.time_ns, last.uptime_ns, last.handed_out)
        sums = {
            row.number: place_sum(row.place.medium, row.place.ownership, row.word)
            for row in places_of(connection, stream.stream)
        }
        append(
            connection,
            build(stream.stream, header, stream.chain, [Step(first, last.time_ns, facts)], beside, [], sums),
        )


class Cell(NamedTuple):
    """A value in the log: where it stands, and the seqs that `verify` may name first when it is damaged."""

    table: str
    column: str
    where: str
    value: Any
    seqs: range


def cells(connection: Connection, random: random.Random, rows_a_table: int) -> Iterator[Cell]:
    """Every column of a sample of rows of each table of the log, rows of every kind of event among them."""
    kinds = {kind for (kind,) in connection.exec_driver_sql("SELECT DISTINCT kind FROM event")}
    assert kinds == {int(kind) for kind in Kind}
    for table, (order, about) in LOG.items():
        result = connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY {order}")
        columns, rows = list(result.keys()), [dict(row) for row in result.mappings()]
        some = random.sample(rows, min(rows_a_table, len(rows)))
        if table == "event":
            some += [next(row for row in rows if row["kind"] == kind) for kind in kinds]
        for row in some:
            keys = " AND ".join(f"{name} = {row[name]}" for name in columns if name in _KEYS[table])
            for column in columns:
                if (table, column) not in NOT_LOGGED:
                    yield Cell(table, column, keys, row[column], _seqs(connection, table, about, row))


_KEYS = {
    "event": ("stream", "seq"),
    "payload": ("stream", "chunk", "seq"),
    "chunk": ("stream", "chunk"),
    "batch": ("stream", "first_seq"),
    "place": ("stream", "place"),
    "stream": ("stream",),
}


def _seqs(connection: Connection, table: str, about: str | None, row: dict[str, Any]) -> range:
    """An event's own seq; any of a batch; the first at a place; any at all of a stream."""
    if table == "batch":
        return range(row["first_seq"], row["last_seq"] + 1)
    if table == "place":
        first = connection.exec_driver_sql("SELECT min(seq) FROM event WHERE place = ?", (row["place"],)).scalar_one()
        return range(first, first + 1)
    if table == "stream":
        return range(row["floor_seq"], row["last_seq"] + 2)
    return range(row[str(about)], row[str(about)] + 1)


def flips(value: Any, random: random.Random) -> list[Any]:
    """`value` with one thing changed: a byte of a blob, a bit of an integer or one more, a character of a text."""
    match value:
        case bytes() if value:
            at = random.randrange(len(value))
            return [value[:at] + bytes((value[at] ^ 1 << random.randrange(8),)) + value[at + 1 :]]
        case bytes():
            return [b"\0"]
        case int():
            return [value + 1, *(_signed(value ^ 1 << bit) for bit in random.sample(range(64), 2))]
        case str():
            at = random.randrange(len(value))
            return [value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :], value + "x"]
        case _:
            return ["x"]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
