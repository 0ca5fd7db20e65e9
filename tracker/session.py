"""A process's use of one stream, put together: store, epoch, memory, writer; changes with how those are joined.

The one place that opens a tracker, for the connector and for the command line alike.
"""

import os
import socket
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Engine

from eventstore.domain import clock
from eventstore.domain.events import Kind, StreamBody
from eventstore.recovery.epoch import Opened, Opening, open_epoch
from eventstore.recovery.restore import newest_descriptions, residents, touched
from tracker.announce import related
from tracker.checker import Check, Checker
from tracker.confirm import Asked
from tracker.families import Member
from tracker.index import Chunk
from tracker.outbox import Control, Step
from tracker.places import Places
from tracker.publish import Publisher
from tracker.retell import member
from tracker.settings import Settings
from tracker.tracker import Tracker
from tracker.writer import Writer

#: How long a clean shutdown may take to commit what is left, in seconds.
CLOSE_DEADLINE_S = 10.0


_open: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    # Threads do not survive a fork: without this a child's tracker would wait for commits that never come.
    for session in list(_open):
        session.tracker.outbox.closed_reason = "this process was forked from the one that writes the stream"


os.register_at_fork(after_in_child=_leave_to_parent)


class Session:
    """An open stream: its tracker, and the writer behind it."""

    def __init__(
        self,
        engine: Engine,
        opening: Opening,
        settings: Settings,
        publisher: Publisher | None = None,
        *,
        store_token_ids: bool = True,
        flush_interval_s: float = 0.0,
        checks: Mapping[str, Check] | None = None,
        now_ns: Callable[[], int] = clock.wall_ns,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open the next epoch of the stream, restore memory, start the writer. Raises `StoreError`.

        `checks`: by place (`str(place)`), how its tier is asked what is there; `opening.checked` names the same.
        `warn` is told when the store stops taking commits, and when it takes them again.
        """
        self._engine = engine
        publisher = publisher or Publisher()
        with engine.begin() as connection:
            self.opened: Opened = open_epoch(connection, opening)
        places = Places(settings.policies, self.opened.places)
        self.tracker = Tracker(settings, places, publisher, now_ns)
        _open.add(self)
        with engine.connect() as connection:
            first = self._restore(connection, settings, places, publisher, checks or {})
        # It is handed out before all else, and with it everything up to the epoch's beginning is told.
        self.writer = Writer(
            engine,
            self.opened,
            self.tracker.outbox,
            self.tracker.retelling,
            store_token_ids=store_token_ids,
            flush_interval_s=flush_interval_s,
            warn=warn,
        )
        self.writer.told(self.tracker.say_first(first))
        self.writer.start()
        self.checker.start()

    def _restore(
        self,
        connection: Connection,
        settings: Settings,
        places: Places,
        publisher: Publisher,
        checks: Mapping[str, Check],
    ) -> list[Any]:
        """Fill memory from the views; returns what consumers are told first."""
        index, stream = self.tracker.index, self.opened.stream
        survivors: list[Member] = []
        asked: dict[tuple[int, bytes], Asked] = {}
        questions: dict[int, tuple[Check, list[bytes]]] = {}
        for number, state in places.by_number.items():
            if str(state.place) in checks:
                questions[number] = (checks[str(state.place)], [])
        for found in residents(connection, stream):
            state = places.by_number[found.place]
            if state.announces:
                chunk = index.chunks.get(found.key)
                if chunk is None:
                    chunk = index.chunks[found.key] = Chunk(found.packed, number=found.number)
                chunk.resident |= state.bit
            else:
                state.unknown = True
            if settings.announce == "none" and not questions:
                continue
            survivor = member(state, found, resident=True)
            survivors.append(survivor)
            if found.place in questions:
                survivor.asked = True
                asked[found.place, found.key] = Asked(found.number, survivor)
                questions[found.place][1].append(found.key)
        for number, key, packed in newest_descriptions(connection, stream):
            if not index.has_room(packed):
                break
            if key not in index.chunks:
                index.retain_older(key, Chunk(packed, number=number))
        self.checker = Checker(questions, self.tracker.retelling.confirmation.answers)
        if settings.announce == "none":
            self.tracker.retelling.restarted(asked, survivors=False)
            return []
        there = {(one.place.number, one.key) for one in survivors}
        moved = [
            member(places.by_number[one.place], one, resident=(one.place, one.key) in there)
            for one in touched(connection, stream, self.opened.told_seq)
        ]
        moved_at = {(one.place.number, one.key) for one in moved}
        others = (one for one in survivors if (one.place.number, one.key) not in moved_at)
        kin, rest = related(publisher, moved, others)
        generation = self.tracker.retelling.restarted(asked, survivors=settings.announce == "full")
        if settings.announce == "full":
            self.tracker.retelling.line_up(generation, lambda: rest)
        return self.tracker.retelling.tell_now(moved + kin)

    def settle(self, timeout_s: float = 60.0) -> bool:
        """State a gap that is still open and wait until everything offered is committed. Not for an engine thread."""
        if not self.writer.wait_idle(timeout_s):
            return False
        self.tracker.state_gap()
        return self.writer.wait_idle(timeout_s) and self.tracker.retelling.wait_lined_up(timeout_s)

    def close(self, reason: str = "shutdown", deadline_s: float = CLOSE_DEADLINE_S) -> bool:
        """End the epoch and stop the writer; returns whether everything was committed before the deadline."""
        self.checker.stop()
        step = Step(0, clock.wall_ns())
        step.controls.append(Control(Kind.EPOCH_ENDED, StreamBody(epoch=self.opened.epoch, reason=reason)))
        self.tracker.offer_last(step)
        return self.writer.stop(deadline_s)

    def abandon(self, deadline_s: float = CLOSE_DEADLINE_S) -> None:
        """Stop the writer without a word to the log, as a crash would."""
        self.checker.stop()
        self.writer.stop(deadline_s)


def this_process(stream: str, **given: Any) -> Opening:
    """An `Opening` that says who this process is."""
    return Opening(stream=stream, boot_id=uuid.uuid4().hex, host=socket.gethostname(), pid=os.getpid(), **given)
