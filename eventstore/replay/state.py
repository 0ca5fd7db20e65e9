"""What is resident after any event, as a replay that begins there has to tell it; changes with what it tells.

Pages by chunk number, so that each row is visited once however long the log is, and what the log gains meanwhile
changes nothing: a residency that is open after event N is in one of the two views in every later snapshot.
"""

import msgspec
from sqlalchemy import Connection

from eventstore.domain.events import PLACEHOLDER, REPEATED
from eventstore.log.read import page
from eventstore.storage.rows import tuples

CHUNKS_A_PAGE = 2_048


class StateRow(msgspec.Struct, frozen=True, gc=False):
    """A chunk at a place, as it was. `packed`: the description as it was, empty for none. `flags` are those of the
    store that opened it; PLACEHOLDER only while consumers know it by a placeholder."""

    chunk: int
    key: bytes
    place: int
    opened_seq: int
    opened_ns: int
    flags: int
    packed: bytes


#: The last of the next chunks after number `?2` that were known at event `?3`, `?4` of them.
UPTO = (
    "SELECT max(chunk) FROM"
    " (SELECT chunk FROM chunk WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 ORDER BY chunk LIMIT ?4)"
)
#: The description of chunk `{chunk}` as of event `{seq}`.
LATEST_SEQ = (
    "(SELECT max(q.seq) FROM payload AS q"
    " WHERE q.stream = ?1 AND q.chunk = {chunk} AND q.seq <= {seq} AND length(q.body) > 0)"
)
# The flags in the views are as of now, those of the opening event as of then.
_STATE = (
    'SELECT r.chunk, c."key", r.place, r.opened_seq, r.opened_ns, coalesce(e.flags, r.flags), d.body, d.seq'
    " FROM ("
    "  SELECT chunk, place, opened_seq, opened_ns, flags FROM open_residency"
    "  WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND opened_seq <= ?4"
    "  UNION ALL"
    "  SELECT chunk, place, opened_seq, opened_ns, flags FROM closed_residency INDEXED BY closed_residency_by_chunk"
    "  WHERE stream = ?1 AND chunk > ?2 AND chunk <= ?3 AND closed_seq > ?4 AND opened_seq <= ?4"
    " ) AS r"
    " JOIN chunk AS c ON c.stream = ?1 AND c.chunk = r.chunk"
    " LEFT JOIN event AS e ON e.stream = ?1 AND e.seq = r.opened_seq"
    " LEFT JOIN payload AS d ON d.stream = ?1 AND d.chunk = r.chunk AND d.seq = "
    + LATEST_SEQ.format(chunk="r.chunk", seq="?4")
    + " ORDER BY r.chunk, r.place"
)


def state_page(connection: Connection, stream: int, at: int, after_chunk: int) -> tuple[list[StateRow], int]:
    """The residencies open after event `at` of the next chunks after number `after_chunk`, in order of chunk and place;
    and the number up to which they go, 0 where no chunk is left."""
    upto = connection.exec_driver_sql(UPTO, (stream, after_chunk, at, CHUNKS_A_PAGE)).scalar()
    if upto is None:
        return [], 0
    rows = tuples(connection, _STATE, (stream, after_chunk, upto, at))
    found = []
    for chunk, key, place, opened_seq, opened_ns, opening_flags, body, described_seq in rows:
        flags = opening_flags & ~REPEATED
        if described_seq is not None and described_seq > opened_seq:
            flags &= ~PLACEHOLDER
        found.append(StateRow(chunk, key, place, opened_seq, opened_ns, flags, body or b""))
    return found, upto


def time_of_state(connection: Connection, stream: int, at: int) -> int:
    """When it was so, in nanoseconds UTC: the time of event `at`, or of the first one there is where that is gone."""
    return next((event.time_ns for event in page(connection, stream, at - 1, rows=1)), 0)
