"""What one fact about the stream ended, page by page; changes with what is told of an end."""

from typing import NamedTuple

from sqlalchemy import Connection

from eventstore.domain.events import PLACEHOLDER, REPEATED, Kind, locality_of
from eventstore.domain.place import Locality
from eventstore.replay.state import LATEST_SEQ
from eventstore.storage.rows import tuples

#: Kinds that end residencies by the thousand.
ENDS = (Kind.EPOCH_STARTED, Kind.CACHE_RESET)
ROWS_A_PAGE = 4_096


class Credited(NamedTuple):
    """A chunk that goes: how consumers know it, its locality, and how many stores they have counted."""

    key: bytes
    packed: bytes
    locality: Locality | None
    stores: int


_ENDED = (
    'SELECT l.chunk, l.place, c."key", l.flags, l.stores, l.opened_seq, d.body FROM closed_residency AS l'
    " JOIN chunk AS c ON c.stream = ?1 AND c.chunk = l.chunk"
    " LEFT JOIN payload AS d ON d.stream = ?1 AND d.chunk = l.chunk AND d.seq = "
    + LATEST_SEQ.format(chunk="l.chunk", seq="?2")
    + " WHERE l.stream = ?1 AND l.closed_seq = ?2 AND (l.chunk, l.place) > (?3, ?4)"
    " ORDER BY l.chunk, l.place LIMIT ?5"
)
_STORED_SINCE = (
    "SELECT chunk, place, count(*) FROM event"
    f" WHERE stream = ? AND seq > ? AND seq < ? AND kind = {Kind.CHUNK_STORED:d} AND flags & {REPEATED} = 0"
    " GROUP BY chunk, place"
)


def ended_page(
    connection: Connection, stream: int, seq: int, after: tuple[int, int], state_at: int
) -> tuple[list[tuple[int, Credited]], tuple[int, int] | None]:
    """The next residencies, with their places, that the event at `seq` ended, after (chunk, place) `after`; and the
    (chunk, place) that they go up to, None at the end. `state_at`: as in `Stores`."""
    rows = tuples(connection, _ENDED, (stream, seq, *after, ROWS_A_PAGE))
    stores = Stores(connection, stream, state_at, seq)
    found = []
    for chunk, place, key, flags, counted, opened_seq, body in rows:
        packed = b"" if flags & PLACEHOLDER else body or b""
        credits = stores.of(chunk, place, opened_seq, counted)
        found.append((place, Credited(key, packed, locality_of(flags), credits)))
    return found, (rows[-1][0], rows[-1][1]) if len(rows) == ROWS_A_PAGE else None


class Stores:
    """How many stores a reader has counted of a residency that ends before event `upto`: all, or for one that began
    with the state after `state_at`, one for what was there then, and those since."""

    def __init__(self, connection: Connection, stream: int, state_at: int, upto: int) -> None:
        self._connection, self._stream, self._state_at, self._upto = connection, stream, state_at, upto
        self._since: dict[tuple[int, int], int] | None = None

    def of(self, chunk: int, place: int, opened_seq: int, stores: int) -> int:
        """The count, for a residency that the log counts `stores` of. Only rarely does it take a look at the log."""
        if stores == 1 or opened_seq > self._state_at:
            return stores
        if self._since is None:
            rows = tuples(self._connection, _STORED_SINCE, (self._stream, self._state_at, self._upto))
            self._since = {(number, at): count for number, at, count in rows}
        return 1 + self._since.get((chunk, place), 0)
