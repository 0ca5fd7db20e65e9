"""The fold that begins where the log does; changes with what a pruned log leaves to begin from."""

from sqlalchemy import Connection

from eventstore.domain.residency import Fold, Residency
from eventstore.log.stream import StreamRow

_AT_FLOOR = (
    "SELECT chunk, place, opened_seq, opened_ns, flags FROM open_residency WHERE stream = ?1 AND opened_seq < ?2"
    " UNION ALL SELECT chunk, place, opened_seq, opened_ns, flags FROM closed_residency"
    " WHERE stream = ?1 AND opened_seq < ?2 AND closed_seq >= ?2"
)


def fold_at_floor(connection: Connection, stream: StreamRow) -> Fold:
    """A fold that holds what was resident before the log's first event: nothing, unless the log was pruned.

    Then it is taken from the views, with `stores` and `confirmed` as they cannot be known any more: one and true.
    """
    fold = Fold()
    if stream.floor_seq > 1:
        for chunk, place, seq, ns, flags in connection.exec_driver_sql(_AT_FLOOR, (stream.stream, stream.floor_seq)):
            fold.open.setdefault(chunk, {})[place] = Residency(chunk, place, seq, ns, flags)
    return fold
