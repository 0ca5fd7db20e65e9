"""From a point as a person names it to a seq of a stream; changes with what a time means in a log.

Clocks step, so times need not grow with the seq. A time means the events before the first one that is later: the
state that a reader, going through the log in order, had when it first met an event of a later time.
"""

from sqlalchemy import Connection, select

from eventstore.domain import clock
from eventstore.domain.errors import BadInput
from eventstore.domain.point import Moment, Point
from eventstore.log.stream import StreamRow
from eventstore.storage import schema

_event = schema.event.c


def seq_at(connection: Connection, stream: StreamRow, point: Point) -> int:
    """The last seq of the state that `point` names: 0 before all, the stream's last seq at most.

    Raises `BadInput` for a seq that the log does not have and for a time before what was pruned.
    """
    if isinstance(point, Moment):
        return seq_at_time(connection, stream, point.time_ns)
    if point.seq > stream.last_seq:
        raise BadInput(
            f"stream {stream.name!r} has no seq {point.seq}: it goes from 0 (before all) to {stream.last_seq}"
        )
    if point.seq < stream.floor_seq - 1:
        raise BadInput(f"stream {stream.name!r}: seq {point.seq} was pruned, the floor is {stream.floor_seq}")
    return point.seq


def seq_at_time(connection: Connection, stream: StreamRow, time_ns: int) -> int:
    """The last seq before the first event that is later than `time_ns`.

    Raises `BadInput` where that lies before the floor. Scans the log up to there: there is no index by time, since an
    index would not help where times go back.
    """
    first_later = connection.execute(
        select(_event.seq).where(_event.stream == stream.stream, _event.time_ns > time_ns).order_by(_event.seq).limit(1)
    ).scalar()
    if first_later is None:
        return stream.last_seq
    if first_later == stream.floor_seq > 1:
        raise BadInput(
            f"stream {stream.name!r}: what was before {clock.iso(time_ns)} was pruned, the floor is {stream.floor_seq}"
        )
    return int(first_later) - 1
