"""The tables as SQLAlchemy sees them, for reading; held equal to the migrations by a test."""

from sqlalchemy import BLOB, INTEGER, TEXT, Column, Index, MetaData, Table

metadata = MetaData()


def _integer(name: str, *, key: bool = False) -> Column[int]:
    # autoincrement off: no number in this store is ever made up by the database.
    return Column(name, INTEGER, primary_key=key, nullable=False, autoincrement=False)


stream = Table(
    "stream",
    metadata,
    _integer("stream", key=True),
    Column("name", TEXT, nullable=False, unique=True),
    _integer("epoch"),
    _integer("last_seq"),
    Column("chain", BLOB, nullable=False),
    _integer("floor_seq"),
    _integer("heartbeat_ns"),
    _integer("heartbeat_every_ns"),
)

place = Table(
    "place",
    metadata,
    _integer("stream", key=True),
    _integer("place", key=True),
    Column("medium", TEXT, nullable=False),
    Column("ownership", TEXT),
    Column("word", TEXT, nullable=False),
    _integer("flagged"),
)

chunk = Table(
    "chunk",
    metadata,
    _integer("stream", key=True),
    _integer("chunk", key=True),
    _integer("wire"),
    Column("key", BLOB, nullable=False),
)
Index("chunk_by_wire", chunk.c.stream, chunk.c.wire)

payload = Table(
    "payload",
    metadata,
    _integer("stream", key=True),
    _integer("chunk", key=True),
    _integer("seq", key=True),
    Column("body", BLOB, nullable=False),
)

event = Table(
    "event",
    metadata,
    _integer("stream", key=True),
    _integer("seq", key=True),
    _integer("time_ns"),
    _integer("kind"),
    _integer("flags"),
    _integer("place"),
    _integer("chunk"),
)

batch = Table(
    "batch",
    metadata,
    _integer("stream", key=True),
    _integer("first_seq", key=True),
    _integer("last_seq"),
    _integer("epoch"),
    _integer("time_ns"),
    _integer("uptime_ns"),
    _integer("handed_out"),
    Column("sums", BLOB, nullable=False),
    Column("chain", BLOB, nullable=False),
)

open_residency = Table(
    "open_residency",
    metadata,
    _integer("stream", key=True),
    _integer("chunk", key=True),
    _integer("place", key=True),
    _integer("opened_seq"),
    _integer("opened_ns"),
    _integer("flags"),
    _integer("stores"),
    _integer("confirmed"),
)

closed_residency = Table(
    "closed_residency",
    metadata,
    _integer("stream", key=True),
    _integer("closed_seq", key=True),
    _integer("chunk", key=True),
    _integer("place", key=True),
    _integer("opened_seq"),
    _integer("opened_ns"),
    _integer("flags"),
    _integer("stores"),
    _integer("closed_ns"),
    _integer("reason"),
)
Index("closed_residency_by_chunk", closed_residency.c.stream, closed_residency.c.chunk)

position = Table(
    "position",
    metadata,
    _integer("stream", key=True),
    Column("view", TEXT, primary_key=True, nullable=False),
    _integer("seq"),
)
