"""Finds what no stream's check can see: rows of no known stream, and indexes that say something else than their table;
changes when the log gets a table or an index.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection

from eventstore.domain.errors import LedgerError
from eventstore.log.verify import Finding

#: The tables of the log, and what in them is a seq; a chunk's number is one.
_SEQS = {"event": "seq", "batch": "first_seq", "payload": "seq", "chunk": "chunk", "place": "1"}

# By the primary key, one step a stream: a DISTINCT would read the whole table.
_NEXT_STREAM = (
    "SELECT stream, (SELECT min({seq}) FROM {table} AS r WHERE r.stream = n.stream) FROM"
    " (SELECT min(stream) AS stream FROM {table} WHERE stream > ?) AS n WHERE stream IS NOT NULL"
)

# Everybody reads these columns out of the index, so that nobody else would see them differ in the table.
_BODIES = (
    "SELECT i.stream, i.seq FROM payload AS i INDEXED BY sqlite_autoindex_payload_1"
    " LEFT JOIN payload AS p NOT INDEXED ON p.rowid = i.rowid"
    " WHERE (p.stream, p.chunk, p.seq) IS NOT (i.stream, i.chunk, i.seq) ORDER BY 1, 2 LIMIT 1"
)
# A chunk that this index does not find would be given a second number.
_WIRES = (
    "SELECT c.stream, c.chunk FROM chunk AS c NOT INDEXED WHERE NOT EXISTS ("
    "  SELECT 1 FROM chunk AS i INDEXED BY chunk_by_wire"
    "  WHERE i.stream = c.stream AND i.wire = c.wire AND i.chunk = c.chunk"
    ") ORDER BY 1, 2 LIMIT 1"
)


def strays(connection: Connection) -> list[Finding]:
    """What the log has that belongs to no stream or is not indexed as it is. Reads only."""
    return [finding for check in (_of_no_stream, _misindexed) for finding in _readable(connection, check)]


def _readable(connection: Connection, check: Callable[[Connection], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check(connection)
    except LedgerError as error:
        yield Finding("", 1, f"cannot be read: {error}")


def _of_no_stream(connection: Connection) -> Iterator[Finding]:
    known = set(connection.exec_driver_sql("SELECT stream FROM stream").scalars())
    for table, about in _SEQS.items():
        query, last = _NEXT_STREAM.format(table=table, seq=about), -(2**63)
        while (row := connection.exec_driver_sql(query, (last,)).first()) is not None:
            stream, seq = row[0], _seq(row[1])
            if not isinstance(stream, int) or stream <= last:
                # Only a damaged tree gives what was not asked for; asked again, it would for ever.
                yield Finding(f"number {stream}", seq, f"table {table} has rows out of their order")
                break
            last = stream
            if last not in known:
                yield Finding(f"number {last}", seq, f"table {table} has rows of a stream that is not there")


def _misindexed(connection: Connection) -> Iterator[Finding]:
    names = {number: name for number, name in connection.exec_driver_sql("SELECT stream, name FROM stream")}
    for query, what in ((_BODIES, "what the event carries"), (_WIRES, "the chunk")):
        for stream, seq in connection.exec_driver_sql(query):
            yield Finding(str(names.get(stream, f"number {stream}")), _seq(seq), f"{what} is not indexed as it is")


def _seq(found: Any) -> int:
    """What stands for a seq, which damage can make anything."""
    return max(found, 1) if isinstance(found, int) else 1
