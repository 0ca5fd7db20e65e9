"""How long chunks stay, idle and stay away, under vLLM's words; changes with what a duration is measured between.

vLLM samples these of GPU blocks (`vllm/v1/core/kv_cache_metrics.py`: lifetime, idle before eviction, reuse gap). Here
they are of every residency, from the log, exact. What stands for an access there is what the log knows of one here:
a store of the chunk at the place itself while it is there (a repeat), or at the primary place while it is at another
(the chunk came back up because a request wanted it). As in vLLM the birth of a residency is not an access, and idle
time begins with it where no access followed.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection

from eventstore.audit.check import Progress
from eventstore.audit.quantiles import Durations, durations
from eventstore.domain.events import Event, Kind, Reason
from eventstore.domain.place import PRIMARY
from eventstore.domain.residency import Closed, Residency
from eventstore.log.read import page
from eventstore.log.stream import StreamRow, places_of
from eventstore.views.fold import fold_at_floor

#: A place's number and the reason of the end; 0 where it has not ended.
_Lane = tuple[int, int]


class Lane(msgspec.Struct, frozen=True):
    """The residencies at one place that ended for one reason; `reason` None: those that have not ended.

    lifetime: from the store that opened it to its end. idle_before_evict: from the last access, or the opening, to the
    end. reuse_gap: between two accesses. away: from an end to the next store of the chunk at the same place;
    `returned_within`: how many came back in so many seconds.
    """

    place: str
    reason: str | None
    residencies: int
    lifetime: Durations
    idle_before_evict: Durations
    reuse_gap: Durations
    away: Durations
    returned_within: dict[str, int]


class Stats(msgspec.Struct, frozen=True):
    """One stream's durations, up to `seq`."""

    stream: str
    seq: int
    lanes: list[Lane]


class _Measures:
    """The durations of one lane, in nanoseconds."""

    def __init__(self) -> None:
        self.residencies = 0
        self.lifetime, self.idle, self.gap, self.away = array("q"), array("q"), array("q"), array("q")


def stats(
    connection: Connection, stream: StreamRow, within_s: Iterable[float], progress: Progress = lambda _: None
) -> Stats:
    """Fold the whole log. `connection` has no transaction open: each page has its own."""
    with connection.begin():
        rows = places_of(connection, stream.stream)
        run = _Run(connection, stream, frozenset(row.number for row in rows if row.place == PRIMARY))
    at = stream.floor_seq - 1
    while at < stream.last_seq:
        with connection.begin():
            events = page(connection, stream.stream, at, upto=stream.last_seq)
        for event in events:
            run.apply(event)
        at = events[-1].seq if events else stream.last_seq
        progress(at)
    with connection.begin():
        places = {row.number: str(row.place) for row in places_of(connection, stream.stream)}
    thresholds = sorted(set(within_s))
    return Stats(stream.name, stream.last_seq, [_lane(places, lane, m, thresholds) for lane, m in run.finished()])


class _Run:
    """One pass over the log."""

    def __init__(self, connection: Connection, stream: StreamRow, primary: frozenset[int]) -> None:
        self._fold = fold_at_floor(connection, stream)
        self._primary = primary
        self._measures: defaultdict[_Lane, _Measures] = defaultdict(_Measures)
        #: By (chunk, place): when it was last accessed, and the gaps between its accesses so far.
        self._accessed: dict[tuple[int, int], int] = {}
        self._gaps: dict[tuple[int, int], list[int]] = {}
        #: By (chunk, place): how and when its last residency ended.
        self._ended: dict[tuple[int, int], tuple[_Lane, int]] = {}

    def apply(self, event: Event) -> None:
        """Take in one event."""
        if event.kind is Kind.CHUNK_STORED:
            self._stored(event)
        for closed in self._fold.apply(event):
            self._closed(closed)

    def _stored(self, event: Event) -> None:
        """Before the fold has it: what is resident now was there already."""
        here = self._fold.open.get(event.chunk, {})
        if event.place in here:
            self._access(event.chunk, event.place, event.time_ns)
        else:
            ended = self._ended.pop((event.chunk, event.place), None)
            if ended is not None:
                self._measures[ended[0]].away.append(max(event.time_ns - ended[1], 0))
        if event.place in self._primary:
            for place in here:
                if place not in self._primary:
                    self._access(event.chunk, place, event.time_ns)

    def _access(self, chunk: int, place: int, time_ns: int) -> None:
        before = self._accessed.get((chunk, place))
        if before is not None:
            self._gaps.setdefault((chunk, place), []).append(max(time_ns - before, 0))
        self._accessed[chunk, place] = time_ns

    def _closed(self, closed: Closed) -> None:
        r, lane = closed.residency, (closed.residency.place, int(closed.reason))
        last = self._leave(r, lane)
        measures = self._measures[lane]
        measures.lifetime.append(max(closed.closed_ns - r.opened_ns, 0))
        measures.idle.append(max(closed.closed_ns - last, 0))
        self._ended[r.chunk, r.place] = (lane, closed.closed_ns)

    def _leave(self, r: Residency, lane: _Lane) -> int:
        """Count the residency into `lane`; returns when it was last accessed, or opened."""
        measures = self._measures[lane]
        measures.residencies += 1
        measures.gap.extend(self._gaps.pop((r.chunk, r.place), ()))
        return self._accessed.pop((r.chunk, r.place), r.opened_ns)

    def finished(self) -> list[tuple[_Lane, _Measures]]:
        """All lanes, in order of place and reason; what is still open under reason 0."""
        for residency in self._fold:
            self._leave(residency, (residency.place, 0))
        return sorted(self._measures.items(), key=lambda item: item[0])


def _lane(places: dict[int, str], lane: _Lane, measures: _Measures, thresholds: list[float]) -> Lane:
    place, reason = lane
    return Lane(
        places.get(place, f"place {place}"),
        Reason(reason).name.lower() if reason else None,
        measures.residencies,
        durations(measures.lifetime),
        durations(measures.idle),
        durations(measures.gap),
        durations(measures.away),
        {f"{limit:g}": sum(away <= limit * 1e9 for away in measures.away) for limit in thresholds},
    )
