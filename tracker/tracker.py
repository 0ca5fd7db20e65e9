"""The tracker: upstream's calls in, KV events out, facts on their way to the log; changes with those calls.

It gives what vLLM's `OffloadingEventsTracker` gives (vllm/.../offloading/events.py, 0.32 and 0.33), with the
differences that docs/architecture.md lists. All of it runs on the engine thread and touches memory alone.
"""

from collections.abc import Callable, Iterable
from typing import Any

from eventstore.domain import clock
from tracker.calls import Group, OffloadingEvent, Request
from tracker.capture import Capture
from tracker.index import Chunk, Index
from tracker.intake import Intake
from tracker.outbox import Outbox, Step
from tracker.places import Places
from tracker.publish import Publisher
from tracker.queries import Queries
from tracker.retell import Retelling
from tracker.settings import Settings


class Tracker(Queries):
    """One scheduler's tracker. `opened` is filled by recovery before the first call (tracker/session.py)."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        publisher: Publisher,
        now_ns: Callable[[], int] = clock.wall_ns,
    ) -> None:
        self.settings = settings
        self.self_describing_enabled = settings.self_describing
        self.places_known = places
        self.publisher = publisher
        self.index = Index(settings.retained_bytes, settings.record_window)
        self.outbox = Outbox(settings.outbox_events, settings.publish, settings.degraded_after_ms * 1_000_000)
        self.retelling = Retelling(settings, self.index, places, publisher)
        self._intake = Intake(self.index, places, publisher, self.retelling)
        self._capture = Capture()
        self._now_ns = now_ns
        self._primary_bit, self._holds_primary = places.primary.bit, places.primary.announces
        self._tickets = 0
        self._described_anew: list[bytes] = []
        self._step = self._new_step()

    def _new_step(self) -> Step:
        self._tickets += 1
        return Step(self._tickets, 0)

    # Upstream's calls, with upstream's arguments.

    def record_store(self, req: Request, group_config: Group, chunk_idx: int, offload_key: bytes) -> None:
        """A chunk of `req` is about to be stored: capture its metadata and hold it at the primary place."""
        if not self.self_describing_enabled or group_config.sliding_window_size_in_chunks is not None:
            return
        self._record(offload_key, self._capture.full(req, group_config, chunk_idx, offload_key))

    def record_lookup(self, req: Request, group_config: Group, chunk_idx: int, offload_key: bytes) -> None:
        """A lookup of `req` hit the primary place: hold it there, capture its metadata if it is unknown."""
        if not self.self_describing_enabled or group_config.sliding_window_size_in_chunks is not None:
            return
        known = self.index.chunks.get(offload_key)
        packed = known.packed if known is not None else b""
        self._record(offload_key, packed or self._capture.full(req, group_config, chunk_idx, offload_key))

    def record_partial_store(self, req: Request, group_config: Group, boundary_tokens: int, offload_key: bytes) -> None:
        """As `record_store`, for a partial tail that ends at `boundary_tokens`."""
        if not self.self_describing_enabled or group_config.sliding_window_size_in_chunks is not None:
            return
        self._record(offload_key, self._capture.partial(req, group_config, boundary_tokens, offload_key))

    def record_partial_lookup(
        self, req: Request, group_config: Group, boundary_tokens: int, offload_key: bytes
    ) -> None:
        """A lookup hit a partial tail: capture its metadata if it is unknown. Holds nothing that is known already."""
        known = self.index.chunks.get(offload_key)
        if known is None or not known.packed:
            self.record_partial_store(req, group_config, boundary_tokens, offload_key)

    def take_events(self, events: Iterable[OffloadingEvent]) -> list[Any]:
        """Take in the manager's events of one step; returns the KV events that may go out now, in order."""
        self.take_in(events)
        return self.outbox.collect()

    def take_in(self, events: Iterable[OffloadingEvent]) -> None:
        """As `take_events`, where nobody can send anything now: it goes out with the next call."""
        step = self._step
        step.time_ns = self._now_ns()
        if self.retelling.begin_call(step):
            self.outbox.hold(step.ticket)
        if self._described_anew:
            self._announce_described(step)
        for event in events:
            if event.removed:
                self._intake.removed(step, event)
            else:
                self._intake.stored(step, event)
        if self.retelling.waiting:
            step.out += self.retelling.next()
        if self.retelling.told:
            self.outbox.let_go(step.ticket)
        self._offer(step)

    def reset(self) -> None:
        """The scheduler reset the cache: end what does not survive it. The caller has taken the manager's events."""
        if self._described_anew or self._step.described:
            self._flush_records()
        step = self._step
        step.time_ns = self._now_ns()
        if self.retelling.reset(step, logging=self.outbox.closed_reason is None):
            self.outbox.hold(step.ticket)
        self._offer(step)

    def _flush_records(self) -> None:
        """Offer what was recorded so far as a step of its own, handing out nothing."""
        step = self._step
        step.time_ns = self._now_ns()
        self._announce_described(step)
        self._offer(step)

    # For the session: before the first call, between calls, after the last.

    def say_first(self, out: list[Any]) -> int:
        """Hand `out` to the first call, before anything else; returns the ticket that it goes out with."""
        step, self._step = self._step, self._new_step()
        step.out += out
        self.outbox.offer(step)
        return step.ticket

    def state_gap(self) -> None:
        """Offer the gap that is still unstated, if there is one and room for it."""
        step = self._step
        step.time_ns = self._now_ns()
        if self.outbox.unstated:
            self._offer(step)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits to be committed, handed out or announced."""
        outbox, retelling = self.outbox, self.retelling
        return not (
            self._step.described
            or outbox.backlog
            or outbox.waiting
            or retelling.waiting
            or retelling.awaiting
            or retelling.confirmation
        )

    @property
    def has_something_to_say(self) -> bool:
        """Whether a further call is wanted though no engine event brings one: for an engine that is idle."""
        outbox, retelling = self.outbox, self.retelling
        # Where the writer has given up, nobody reads any more what survived.
        awaiting = retelling.awaiting and outbox.closed_reason is None
        return bool(outbox.waiting or retelling.waiting or awaiting or retelling.confirmation)

    @property
    def has_news(self) -> bool:
        """Whether that further call would bring something right now."""
        return self.outbox.has_ready or self.retelling.has_news

    @property
    def placeholders(self) -> int:
        """Stores published as placeholders since the process began."""
        return self._intake.placeholders

    @property
    def unmatched_removals(self) -> int:
        """Removals of what was not there, which were not published."""
        return self._intake.unmatched_removals

    @property
    def repeated_stores(self) -> int:
        """Stores of what was there already, which were not published."""
        return self._intake.repeated_stores

    def offer_last(self, step: Step) -> None:
        """Offer what was recorded so far and then `step`."""
        if self._step.described:
            self._flush_records()
        step.count += len(step.controls)
        self.outbox.offer(step)

    # What was recorded.

    def _record(self, key: bytes, packed: bytes) -> None:
        index = self.index
        chunk = index.chunks.get(key)
        if chunk is None:
            chunk = index.chunks[key] = Chunk(packed)
            self._step.described.append((key, chunk, packed))
        elif chunk.packed != packed:
            if chunk.resident and not chunk.packed:
                self._described_anew.append(key)
            if key in index.retained:
                index.unretain(key, chunk)
            chunk.packed = packed
            self._step.described.append((key, chunk, packed))
        if self._holds_primary and not chunk.resident & self._primary_bit:
            index.record(key, chunk)
        elif not chunk.resident:
            index.release(key, chunk)

    def _announce_described(self, step: Step) -> None:
        """What consumers know by a placeholder is announced again: the placeholder's removal, then the full store."""
        for key in self._described_anew:
            chunk = self.index.chunks.get(key)
            for state in self.places_known.by_number.values() if chunk is not None else ():
                if chunk is not None and chunk.resident & state.bit:
                    step.out += self.retelling.described(state, key, chunk)
        self._described_anew.clear()

    # On to the writer.

    def _offer(self, step: Step) -> None:
        if self.places_known.new:
            step.places, self.places_known.new = self.places_known.new, []
        step.count += len(step.described) + len(step.controls)
        self.outbox.offer(step)
        self._step = self._new_step()
        self.index.trim()
