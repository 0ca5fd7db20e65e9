"""From keys to a stream's chunk numbers and back; changes with how chunks are found."""

import json
from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection, select

from eventstore.storage import codec, schema
from eventstore.storage.rows import tuples

_table = schema.chunk.c


def numbers_of(connection: Connection, stream: int, keys: Iterable[bytes]) -> dict[bytes, int]:
    """The numbers of those `keys` that the stream has ever named, in one statement."""
    wires = msgspec.json.encode(codec.signed_wires(keys)).decode()
    rows = connection.exec_driver_sql(
        # The index is named because SQLite, which has no statistics here, takes the primary key for as good and reads
        # all chunks of the stream for each key.
        'SELECT c."key", c.chunk FROM json_each(?) AS asked'
        " CROSS JOIN chunk AS c INDEXED BY chunk_by_wire ON c.stream = ? AND c.wire = asked.value",
        (wires, stream),
    )
    # Two keys can share a wire hash (one a group, say): the caller looks its own up by the whole key.
    return {key: number for key, number in rows}


def key_of(connection: Connection, stream: int, chunk: int) -> bytes | None:
    """The key of a chunk number."""
    return connection.execute(select(_table.key).where(_table.stream == stream, _table.chunk == chunk)).scalar()


def keys_of(connection: Connection, stream: int, chunks: Iterable[int]) -> dict[int, bytes]:
    """The keys of chunk numbers, in one statement."""
    rows = tuples(
        connection,
        'SELECT c.chunk, c."key" FROM json_each(?) AS asked'
        " CROSS JOIN chunk AS c ON c.stream = ? AND c.chunk = asked.value",
        (json.dumps(list(chunks)), stream),
    )
    return {number: key for number, key in rows}
