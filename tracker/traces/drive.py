"""Runs the processes of a trace through the real tracker and writer; changes with what driving a trace means."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import msgspec

from eventstore.domain.errors import BadInput, StoreUnusable
from eventstore.log.stream import find_stream
from eventstore.storage.store import open_for_writing
from eventstore.storage.url import parse_store, store_path
from tracker.session import Session, this_process
from tracker.settings import Announce, Publish, Settings
from tracker.traces.calls import Call, GroupLine, Open, RecordLookup, RecordPartialStore, RecordStore, Reset, TakeEvents
from tracker.traces.read import Trace
from tracker.traces.request import TraceGroup, event_of, group_of, request_of
from tracker.tracker import Tracker


class Options(msgspec.Struct, frozen=True):
    """How a trace is driven. `published`: a file for what was handed out, a line a call."""

    store: str
    publish: Publish = "after_commit"
    announce: Announce = "full"
    published: str | None = None
    outbox_events: int = 1_000_000


def prepare(path: Path, trace: Trace, options: Options) -> None:
    """Make the store and the file for what is handed out, or raise what stands against it and leave both alone.

    `path` is the trace's own file.
    """
    published = Path(options.published) if options.published else None
    if published is not None and published.exists():
        for what, other in (("the store", store_path(parse_store(options.store))), ("the trace", path)):
            if other.exists() and published.samefile(other):
                raise BadInput(f"{published} is {what}: name another file for what is published")
    with published_file(published) if published is not None else nullcontext():
        check_stream_is_new(trace, options.store)


def check_stream_is_new(trace: Trace, store: str) -> None:
    """Make the store where there is none; raise `BadInput` where the trace's stream has events already."""
    engine, _ = open_for_writing(store)
    try:
        with engine.connect() as connection:
            if find_stream(connection, trace.name) is not None:
                raise BadInput(
                    f"stream {trace.name!r} has events already in {store}; drive the trace into another store"
                )
    finally:
        engine.dispose()


def run_process(trace: Trace, number: int, options: Options, *, then_die: bool = False) -> None:
    """Run process `number` of the trace, from its `open` on, until all is committed and handed out.

    The store is left as a crash leaves it: no clean end, no close. With `then_die` this is a crash: SIGKILL.
    """
    calls = trace.processes[number]
    first = calls[0]
    settings = Settings(
        self_describing=isinstance(first, Open) and first.self_describing,
        publish=options.publish,
        announce=options.announce,
        outbox_events=options.outbox_events,
    )
    engine, _ = open_for_writing(options.store)
    session = Session(engine, this_process(trace.name, announce=options.announce), settings)
    try:
        with open(options.published or os.devnull, "ab", buffering=0) as file:
            _Process(session, file if options.published else None).run(calls)
            if then_die:
                os.kill(os.getpid(), signal.SIGKILL)
    finally:
        session.abandon()
        engine.dispose()


class _Process:
    """One process of the trace at work."""

    def __init__(self, session: Session, published: IO[bytes] | None) -> None:
        self._session, self._published = session, published
        self._tracker: Tracker = session.tracker
        self._groups: dict[GroupLine, TraceGroup] = {}
        self._step = -1

    def run(self, calls: list[Call]) -> None:
        for call in calls:
            if isinstance(call, TakeEvents):
                self._hand_out(call.step, self._tracker.take_events(map(event_of, call.events)))
            elif isinstance(call, Reset):
                self._tracker.reset()
            elif not isinstance(call, Open):
                self._record(call)
        self._drain()

    def _record(self, call: Any) -> None:
        group = self._groups.get(call.group)
        if group is None:
            group = self._groups[call.group] = group_of(call.group)
        request, key = request_of(call, group), bytes.fromhex(call.key)
        if isinstance(call, RecordStore):
            self._tracker.record_store(request, group, call.chunk_idx, key)
        elif isinstance(call, RecordLookup):
            self._tracker.record_lookup(request, group, call.chunk_idx, key)
        elif isinstance(call, RecordPartialStore):
            self._tracker.record_partial_store(request, group, call.boundary_tokens, key)
        else:
            self._tracker.record_partial_lookup(request, group, call.boundary_tokens, key)

    def _drain(self) -> None:
        """Further calls, until everything is committed and handed out."""
        while True:
            self._hand_out(self._step + 1, self._tracker.take_events(()))
            if not self._session.settle():
                raise StoreUnusable(f"the store took no more commits: {self._session.writer.trouble or 'timed out'}")
            if self._tracker.is_quiet:
                return

    def _hand_out(self, step: int, out: list[Any]) -> None:
        self._step = step
        if self._published is not None:
            line = {"epoch": self._session.opened.epoch, "step": step, "out": out}
            self._published.write(msgspec.json.encode(line) + b"\n")


@contextmanager
def published_file(path: Path) -> Iterator[None]:
    """A file for what is handed out, emptied once the block has found nothing against it.

    Raises `BadInput` where it cannot be written. Where the block raises, the file is as it was.
    """
    made = not path.exists()
    try:
        path.open("ab").close()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written: {getattr(error, 'strerror', error)}") from None
    try:
        yield
    except BaseException:
        if made:
            path.unlink()
        raise
    path.open("wb").close()
