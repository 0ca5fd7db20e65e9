"""What the log itself tells: gaps, what memory could not match, how epochs ended; changes with what is looked for."""

from sqlalchemy import Connection

from eventstore.audit.check import EXAMPLES, Found, place_name
from eventstore.domain import clock
from eventstore.domain.events import METADATA_ONLY, REPEATED, UNMATCHED, Kind, decode_body
from eventstore.log.stream import VIEWS, StreamRow
from eventstore.views.residency import positions

_FLAGGED = (
    'SELECT e.seq, e.time_ns, c."key", p.medium, p.ownership FROM event AS e'
    " LEFT JOIN chunk AS c ON c.stream = e.stream AND c.chunk = e.chunk"
    " LEFT JOIN place AS p ON p.stream = e.stream AND p.place = e.place"
    " WHERE e.stream = ? AND e.kind = ? AND e.flags & ? = ? ORDER BY e.seq LIMIT ?"
)
_COUNT = "SELECT count(*) FROM event WHERE stream = ? AND kind = ? AND flags & ? = ?"
_OF_KIND = (
    "SELECT e.seq, e.time_ns, p.body FROM payload AS p JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq"
    " WHERE p.stream = ? AND p.chunk = 0 AND e.kind = ? ORDER BY e.seq"
)


def gaps(connection: Connection, stream: StreamRow) -> Found:
    """Events that could not be logged: the log is not whole."""
    found = []
    for seq, time_ns, raw in connection.exec_driver_sql(_OF_KIND, (stream.stream, int(Kind.GAP))):
        body = decode_body(raw)
        found.append(
            {
                "seq": seq,
                "time": clock.iso(time_ns),
                "lost": body.lost,
                "since": clock.iso(body.since_ns),
                "reason": body.reason,
            }
        )
    return Found(len(found), found[:EXAMPLES])


def unmatched(connection: Connection, stream: StreamRow) -> Found:
    """Removals of what was not resident, at places that announce removals; those of metadata alone left out."""
    return _flagged(connection, stream, Kind.CHUNK_REMOVED, UNMATCHED | METADATA_ONLY, UNMATCHED)


def repeats(connection: Connection, stream: StreamRow) -> Found:
    """Stores of what was resident already, at places that announce removals."""
    return _flagged(connection, stream, Kind.CHUNK_STORED, REPEATED, REPEATED)


def _flagged(connection: Connection, stream: StreamRow, kind: Kind, mask: int, flags: int) -> Found:
    which = (stream.stream, int(kind), mask, flags)
    count: int = connection.exec_driver_sql(_COUNT, which).scalar_one()
    rows = connection.exec_driver_sql(_FLAGGED, (*which, EXAMPLES))
    return Found(
        count,
        [
            {
                "seq": seq,
                "time": clock.iso(time_ns),
                "key": key.hex() if key is not None else None,
                "place": place_name(medium, owner) if medium is not None else None,
            }
            for seq, time_ns, key, medium, owner in rows
        ],
    )


def crashed_epochs(connection: Connection, stream: StreamRow) -> Found:
    """Epochs that ended without a word, the last one too where its stream has fallen silent."""
    rows = connection.exec_driver_sql(
        "SELECT epoch, state, started, last, last_seq, host, pid FROM epochs"
        " WHERE stream = ? AND state IN ('crashed', 'silent') ORDER BY epoch",
        (stream.name,),
    )
    names = ("epoch", "state", "started", "last", "last_seq", "host", "pid")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return Found(len(found), found[:EXAMPLES])


def silent(connection: Connection, stream: StreamRow) -> Found:
    """The stream has not ended and says nothing any more: what it holds at volatile places is gone, and not closed."""
    state, heartbeat, residents = connection.exec_driver_sql(
        "SELECT s.state, s.heartbeat, (SELECT count(*) FROM open_residency AS r WHERE r.stream = s.number)"
        " FROM streams AS s WHERE s.stream = ?",
        (stream.name,),
    ).one()
    if state != "silent":
        return Found(0)
    return Found(1, [{"stream": stream.name, "heartbeat": heartbeat, "residents": residents}])


def view_positions(connection: Connection, stream: StreamRow) -> Found:
    """Views that have not reached the log's end. They move with it, so each such view is wrong."""
    last_seq = connection.exec_driver_sql("SELECT last_seq FROM stream WHERE stream = ?", (stream.stream,)).scalar_one()
    there = positions(connection, stream.stream)
    behind = [
        {"view": view, "seq": there.get(view), "last_seq": last_seq} for view in VIEWS if there.get(view) != last_seq
    ]
    return Found(len(behind), behind)
