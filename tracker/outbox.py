"""What stands between the engine thread and the writer: bounded, ordered, never waited for; changes with what a full
outbox means.

The engine thread offers steps and collects what may be handed out; the writer takes steps and says what is committed.
Each side only ever sets plain attributes of its own, so neither takes a lock.
"""

import queue
from collections import deque
from typing import Any

import msgspec

from eventstore.domain import clock
from eventstore.domain.events import Kind, PlaceRow, StreamBody
from tracker.index import Chunk
from tracker.settings import Publish


class Run(msgspec.Struct, gc=False):
    """Events of one kind, place and flags: `code` is the fact without its chunk, one chunk an event."""

    code: int
    keys: Any
    chunks: list[Chunk]


class Control(msgspec.Struct, frozen=True):
    """An event about the stream."""

    kind: Kind
    body: StreamBody
    #: With a reset: the generation of announcements that wants the survivors, once this is committed.
    survivors_for: int = 0


class Step:
    """What one call made: facts for the log in order, and the KV events to hand out once they are in it."""

    __slots__ = (
        "committed",
        "controls",
        "count",
        "described",
        "offered_ns",
        "out",
        "places",
        "runs",
        "ticket",
        "time_ns",
    )

    def __init__(self, ticket: int, time_ns: int) -> None:
        self.ticket = ticket
        self.time_ns = time_ns
        self.places: list[PlaceRow] = []
        self.controls: list[Control] = []
        self.described: list[tuple[bytes, Chunk, bytes]] = []
        self.runs: list[Run] = []
        self.out: list[Any] = []
        self.count = 0
        self.offered_ns = 0
        self.committed = False


class Outbox:
    """Steps on their way to the log. `limit` bounds the events that are offered and not yet committed."""

    def __init__(self, limit: int, publish: Publish, degraded_after_ns: int) -> None:
        self.steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        #: The writer's: events committed, and that it gave up for good.
        self.committed_events = 0
        self.closed_reason: str | None = None
        #: The engine's: events offered, refused and not yet stated by a gap, ticket of the last step handed out.
        self.offered_events = 0
        self.lost_events = 0
        self.unstated = 0
        self.handed_ticket = 0
        #: Since when no commit was taken, in steady nanoseconds; 0 while all is well.
        self.degraded_since_ns = 0
        self._unstated_since = 0
        self._committed_when_degraded = 0
        self._limit, self._publish, self._degraded_after = limit, publish, degraded_after_ns
        self._waiting: deque[Step] = deque()
        self._last_handed = 0
        #: From this ticket on nothing counts as handed out, until what goes out with the other one has.
        self._held: int | None = None
        self._lets_go: int | None = None
        self._unlogged_places: list[PlaceRow] = []

    @property
    def backlog(self) -> int:
        """Events offered and not yet committed."""
        return self.offered_events - self.committed_events

    def lose(self, events: int, time_ns: int) -> None:
        """Count events that cannot be logged; the next step that can be says so by a `gap`."""
        if not self.unstated:
            self._unstated_since = time_ns
        self.unstated += events
        self.lost_events += events

    def offer(self, step: Step) -> None:
        """Take in a step: on to the writer, or refused and counted where there is no room. Never waits.

        Its `out` is handed out in its turn either way.
        """
        count = step.count
        if count or self.unstated:
            # A reset is always taken: it ends residencies by the thousand, and there are few of them.
            room = self.backlog + count <= self._limit or bool(step.controls)
            if self.closed_reason is None and room:
                if self.unstated:
                    step.controls.insert(0, self._gap())
                    step.count = count = count + 1
                if self._unlogged_places:
                    step.places[:0], self._unlogged_places = self._unlogged_places, []
                step.offered_ns = clock.steady_ns()
                self.offered_events += count
                self.steps.put(step)
            else:
                if count:
                    self.lose(count, step.time_ns)
                # Later events name these places by number, so the log has to learn of them all the same.
                self._unlogged_places += step.places
                step.committed = True
        else:
            # A call without events can name a place all the same: the first call of all does.
            self._unlogged_places += step.places
            step.committed = True
        if step.out or count:
            self._waiting.append(step)

    def _gap(self) -> Control:
        body = StreamBody(lost=self.unstated, since_ns=self._unstated_since, reason="overflow")
        self.unstated = 0
        return Control(Kind.GAP, body)

    def collect(self) -> list[Any]:
        """The KV events that may go out now, in order."""
        waiting, out = self._waiting, []
        while waiting:
            step = waiting[0]
            if not self._may_go(step):
                break
            waiting.popleft()
            self._last_handed = step.ticket
            out += step.out
        if self._lets_go is not None and self._last_handed >= self._lets_go:
            self._held = self._lets_go = None
        self.handed_ticket = self._last_handed if self._held is None else min(self._last_handed, self._held - 1)
        return out

    def hold(self, ticket: int) -> None:
        """What the step with `ticket` ended is told by later steps: until then it does not count as handed out, so
        that a process that dies in between leaves it to the next one."""
        self._held = ticket if self._held is None else self._held
        self._lets_go = None

    def let_go(self, ticket: int) -> None:
        """With the step with `ticket` all is told."""
        if self._held is not None and self._lets_go is None:
            self._lets_go = ticket

    def _may_go(self, step: Step) -> bool:
        return step.committed or self._publish == "at_once" or self._is_degraded(step)

    def _is_degraded(self, step: Step) -> bool:
        """Whether the store has not taken a commit for too long, so that events go out without one."""
        if self.closed_reason is not None:
            return True
        if self.degraded_since_ns:
            if self.committed_events == self._committed_when_degraded:
                return True
            self.degraded_since_ns = 0
        now = clock.steady_ns()
        if now - step.offered_ns > self._degraded_after:
            self.degraded_since_ns = now
            self._committed_when_degraded = self.committed_events
            return True
        return False

    @property
    def has_ready(self) -> bool:
        """Whether `collect` would hand something out."""
        return bool(self._waiting) and self._may_go(self._waiting[0])

    @property
    def waiting(self) -> int:
        """Steps that are not handed out yet."""
        return len(self._waiting)
