"""A stream's own row and its places; changes with what a stream remembers beside its events."""

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from eventstore.domain.errors import NoSuchStream
from eventstore.domain.events import PlaceRow
from eventstore.domain.place import Medium, Place
from eventstore.storage import schema
from eventstore.storage.codec import first_chain

#: The views that move with every batch.
VIEWS = ("residency", "lifecycle")


class StreamRow(msgspec.Struct, frozen=True):
    """Where a stream stands. `epoch` 0: nobody has opened it yet."""

    stream: int
    name: str
    epoch: int
    last_seq: int
    chain: bytes
    floor_seq: int
    heartbeat_ns: int = 0
    heartbeat_every_ns: int = 0


_columns = schema.stream.c


def all_streams(connection: Connection) -> list[StreamRow]:
    """Every stream of the store, by number."""
    rows = connection.execute(select(schema.stream).order_by(_columns.stream))
    return [StreamRow(*row) for row in rows]


def find_stream(connection: Connection, name: str) -> StreamRow | None:
    """The stream called `name`, if there is one."""
    row = connection.execute(select(schema.stream).where(_columns.name == name)).one_or_none()
    return StreamRow(*row) if row is not None else None


def one_stream(connection: Connection, name: str | None) -> StreamRow:
    """The stream called `name`, or the only one. Raises `NoSuchStream` with the names to choose from."""
    streams = all_streams(connection)
    for row in streams:
        if row.name == name:
            return row
    names = ", ".join(row.name for row in streams[:10]) + (", ..." if len(streams) > 10 else "")
    if name is not None:
        raise NoSuchStream(f"no stream {name!r} in this store; it has: {names or 'none yet'}")
    if not streams:
        raise NoSuchStream("the store has no stream yet: nothing was ever recorded in it")
    if len(streams) > 1:
        raise NoSuchStream(f"the store has {len(streams)} streams; name one with --stream: {names}")
    return streams[0]


def create_stream(connection: Connection, name: str) -> StreamRow:
    """A new stream, without events. The caller's transaction decides whether it stays."""
    number = (connection.execute(select(func.max(_columns.stream))).scalar() or 0) + 1
    row = StreamRow(number, name, 0, 0, first_chain(name), 1)
    connection.execute(insert(schema.stream), msgspec.structs.asdict(row))
    connection.execute(insert(schema.position), [{"stream": number, "view": view, "seq": 0} for view in VIEWS])
    return row


def begin_epoch(connection: Connection, stream: int, heartbeat_every_ns: int = 0) -> int:
    """Number the stream's next epoch. From the commit on, an older epoch can append nothing.

    `heartbeat_every_ns`: how often the new epoch's writer says that it lives, when it has nothing else to say.
    """
    connection.execute(
        update(schema.stream)
        .where(_columns.stream == stream)
        .values(epoch=_columns.epoch + 1, heartbeat_every_ns=heartbeat_every_ns)
    )
    return int(connection.execute(select(_columns.epoch).where(_columns.stream == stream)).scalar_one())


def heartbeat(connection: Connection, stream: int, epoch: int, now_ns: int) -> None:
    """The writer of `epoch` lives. Says nothing once a newer epoch has begun."""
    connection.execute(
        update(schema.stream).where(_columns.stream == stream, _columns.epoch == epoch).values(heartbeat_ns=now_ns)
    )


def places_of(connection: Connection, stream: int) -> list[PlaceRow]:
    """All places that the stream has named, by number."""
    table = schema.place.c
    rows = connection.execute(
        select(table.place, table.medium, table.ownership, table.word, table.flagged)
        .where(table.stream == stream)
        .order_by(table.place)
    )
    return [
        PlaceRow(number, Place(Medium(medium), owner), word, bool(flag)) for number, medium, owner, word, flag in rows
    ]
