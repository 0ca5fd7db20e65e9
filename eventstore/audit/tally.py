"""What a stream's log adds up to, in numbers; changes with what is counted."""

from collections import Counter

import msgspec
from sqlalchemy import Connection

from eventstore.domain.events import METADATA_ONLY, PLACEHOLDER, REPEATED, UNMATCHED, Kind, Reason, decode_body
from eventstore.domain.metadata import hash_count
from eventstore.log.stream import StreamRow
from eventstore.views.residency import resident_counts

#: The ends that a restart brings.
_RESTART = (Reason.ENGINE_RESTART, Reason.CONFIG_CHANGED, Reason.TIER_REMOVED)


class Tally(msgspec.Struct, frozen=True):
    """Counts over a whole stream, an event once for each of its chunks. `*_hashes` count member hashes."""

    epochs: int
    resets: int
    described: int
    stored: int
    repeated: int
    placeholders: int
    removed: int
    removed_hashes: int
    unmatched_removals: int
    closed_on_restart: int
    closed_on_restart_hashes: int
    closed_on_reset: int
    resident_at_end: dict[str, int]
    lost: int


def tally(connection: Connection, stream: StreamRow) -> Tally:
    """Count what happened in `stream`."""
    number = stream.stream
    sizes = _hash_counts(connection, number)
    kinds: Counter[tuple[int, int]] = Counter()
    for kind, flags, count in connection.exec_driver_sql(
        "SELECT kind, flags, count(*) FROM event WHERE stream = ? GROUP BY kind, flags", (number,)
    ):
        kinds[kind, flags] = count

    def total(kind: Kind, flag: int = 0) -> int:
        return sum(count for (k, flags), count in kinds.items() if k == kind and flags & flag == flag)

    metadata_only = total(Kind.CHUNK_REMOVED, METADATA_ONLY)
    removed_hashes = sum(
        count * sizes.get(chunk, 1)
        for chunk, count in connection.exec_driver_sql(
            f"SELECT chunk, count(*) FROM event WHERE stream = ? AND kind = {Kind.CHUNK_REMOVED:d}"
            f" AND flags & {METADATA_ONLY} = 0 GROUP BY chunk",
            (number,),
        )
    )
    on_restart = _closed(connection, number, _RESTART)
    return Tally(
        epochs=total(Kind.EPOCH_STARTED),
        resets=total(Kind.CACHE_RESET),
        described=len(sizes),
        stored=total(Kind.CHUNK_STORED),
        repeated=total(Kind.CHUNK_STORED, REPEATED),
        placeholders=total(Kind.CHUNK_STORED, PLACEHOLDER),
        removed=total(Kind.CHUNK_REMOVED) - metadata_only,
        removed_hashes=removed_hashes,
        unmatched_removals=total(Kind.CHUNK_REMOVED, UNMATCHED) - total(Kind.CHUNK_REMOVED, UNMATCHED | METADATA_ONLY),
        closed_on_restart=len(on_restart),
        closed_on_restart_hashes=sum(sizes.get(chunk, 1) for chunk in on_restart),
        closed_on_reset=len(_closed(connection, number, (Reason.CACHE_RESET,))),
        resident_at_end={"CPU": 0, "STORAGE": 0} | resident_counts(connection, number),
        lost=lost_events(connection, number),
    )


def lost_events(connection: Connection, stream: int) -> int:
    """How many events the stream's gaps speak of."""
    bodies = connection.exec_driver_sql(
        # From the few bodies of stream events, not from the whole log.
        "SELECT p.body FROM payload AS p CROSS JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq"
        f" WHERE p.stream = ? AND p.chunk = 0 AND e.kind = {Kind.GAP:d}",
        (stream,),
    ).scalars()
    return sum(decode_body(body).lost for body in bodies)


def _hash_counts(connection: Connection, stream: int) -> dict[int, int]:
    """Member hashes of every described chunk, by its latest description."""
    rows = connection.exec_driver_sql(
        "SELECT chunk, substr(body, 1, 12) FROM payload WHERE stream = ? AND chunk > 0 AND length(body) > 0"
        " ORDER BY chunk, seq",
        (stream,),
    )
    return {chunk: hash_count(head) for chunk, head in rows}


def _closed(connection: Connection, stream: int, reasons: tuple[Reason, ...]) -> list[int]:
    """The chunk of each residency that ended for one of `reasons`."""
    marks = ", ".join(str(int(reason)) for reason in reasons)
    rows = connection.exec_driver_sql(
        f"SELECT chunk FROM closed_residency WHERE stream = ? AND reason IN ({marks})",
        (stream,),
    )
    return list(rows.scalars())
