"""Reads back what a new process needs: what is resident, what is worth retaining, what consumers were not told;
changes with what memory holds.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from eventstore.domain.events import Kind
from eventstore.domain.residency import Resident

_ROWS_AT_ONCE = 8_192
_LATEST = (
    "(SELECT p.body FROM payload AS p WHERE p.stream = {t}.stream AND p.chunk = {t}.chunk AND length(p.body) > 0"
    " ORDER BY p.seq DESC LIMIT 1)"
)


def residents(connection: Connection, stream: int) -> Iterator[Resident]:
    """Every open residency, in order of chunk and place. For the moment of opening only: it holds a cursor."""
    rows = connection.exec_driver_sql(
        'SELECT r.chunk, c."key", ' + _LATEST.format(t="r") + ", r.place, r.flags, r.stores"
        " FROM open_residency AS r JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk"
        " WHERE r.stream = ? ORDER BY r.chunk, r.place",
        (stream,),
    )
    # Many rows at a time: one by one costs more than all else here.
    for page in rows.partitions(_ROWS_AT_ONCE):
        for number, key, body, place, flags, stores in page:
            yield Resident(number, key, body or b"", place, flags, stores)


def newest_descriptions(connection: Connection, stream: int) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, key, packed) of described chunks, the newest named first. Read only as far as the caller goes."""
    rows = connection.exec_driver_sql(
        'SELECT c.chunk, c."key", '
        + _LATEST.format(t="c")
        + " FROM chunk AS c WHERE c.stream = ? ORDER BY c.chunk DESC",
        (stream,),
    )
    for page in rows.partitions(_ROWS_AT_ONCE):
        for number, key, body in page:
            if body:
                yield number, key, body


def touched(connection: Connection, stream: int, after_seq: int) -> list[Resident]:
    """Every (chunk, place) that an event after `after_seq` stored, removed, ended or described anew.

    `stores` counts the stores that consumers may still credit: those of the residencies that ended since, and of the
    open one.
    """
    found: dict[tuple[int, int], Resident] = {}
    for number, key, body, place, flags, stores in connection.exec_driver_sql(
        "WITH moved (chunk, place) AS ("
        f"  SELECT chunk, place FROM event WHERE stream = ?1 AND seq > ?2 AND kind IN ({Kind.CHUNK_STORED:d},"
        f"   {Kind.CHUNK_REMOVED:d}, {Kind.RESIDENCY_CLOSED:d})"
        "  UNION SELECT chunk, place FROM closed_residency WHERE stream = ?1 AND closed_seq > ?2"
        "  UNION SELECT r.chunk, r.place FROM event AS e JOIN open_residency AS r"
        "    ON r.stream = e.stream AND r.chunk = e.chunk"
        f"   WHERE e.stream = ?1 AND e.seq > ?2 AND e.kind = {Kind.CHUNK_DESCRIBED:d} AND e.chunk <> e.seq"
        "), past (chunk, place, flags, stores) AS ("
        "  SELECT chunk, place, max(flags), sum(stores) FROM closed_residency WHERE stream = ?1 AND closed_seq > ?2"
        "  GROUP BY chunk, place"
        ")"
        ' SELECT m.chunk, c."key", ' + _LATEST.format(t="c") + ", m.place, coalesce(past.flags, r.flags, 0),"
        "   coalesce(past.stores, 0) + coalesce(r.stores, 0)"
        " FROM moved AS m JOIN chunk AS c ON c.stream = ?1 AND c.chunk = m.chunk"
        " LEFT JOIN past ON past.chunk = m.chunk AND past.place = m.place"
        " LEFT JOIN open_residency AS r ON r.stream = ?1 AND r.chunk = m.chunk AND r.place = m.place"
        " ORDER BY m.place, m.chunk",
        (stream, after_seq),
    ):
        found[number, place] = Resident(number, key, body or b"", place, flags, max(stores, 1))
    return list(found.values())


def ended_by(connection: Connection, stream: int, seq: int) -> list[Resident]:
    """Every residency that the event at `seq` ended."""
    rows = connection.exec_driver_sql(
        'SELECT l.chunk, c."key", ' + _LATEST.format(t="l") + ", l.place, l.flags, l.stores"
        " FROM closed_residency AS l JOIN chunk AS c ON c.stream = l.stream AND c.chunk = l.chunk"
        " WHERE l.stream = ? AND l.closed_seq = ?",
        (stream, seq),
    )
    return [
        Resident(number, key, body or b"", place, flags, stores) for number, key, body, place, flags, stores in rows
    ]
