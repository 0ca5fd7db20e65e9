"""One life of a process with a tracker, over the store of a test; changes with how a process opens a stream.

All of it is the product's own: session, writer thread, SQLite file. Only the gate below it is the test's.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from sqlalchemy import Engine

from eventstore.domain import clock
from eventstore.storage.engine import open_engine
from tests.scheduler import RawEvent
from tests.tracker.gate import DEADLINE_S, Gate
from tracker.checker import Check
from tracker.publish import Publisher
from tracker.session import Session, this_process
from tracker.settings import Settings

STREAM = "engine-0"


class Process:
    """A tracker at work. `handed_out`: every KV event that it gave away, in order."""

    def __init__(
        self,
        store: Path | Engine,
        settings: Settings | None = None,
        publisher: Publisher | None = None,
        *,
        now_ns: Callable[[], int] = clock.wall_ns,
        checks: Mapping[str, Check] | None = None,
        **opening: Any,
    ) -> None:
        settings = settings or Settings()
        self.engine = store if isinstance(store, Engine) else open_engine(f"sqlite:///{store}")
        self.gate = Gate(self.engine)
        given = {"announce": settings.announce, "policies": settings.policies, "heartbeat_every_ns": 0} | opening
        try:
            self.session = Session(
                self.engine, this_process(STREAM, **given), settings, publisher, checks=checks, now_ns=now_ns
            )
        except BaseException:
            self._let_go()
            raise
        self.tracker = self.session.tracker
        self.handed_out: list[Any] = []
        self._alive = True

    def take(self, *events: RawEvent) -> list[Any]:
        """One call of `take_events`; returns what it handed out."""
        out = self.tracker.take_events(events)
        self.handed_out += out
        return out

    def settle(self) -> None:
        """Wait until everything offered is committed."""
        assert self.session.settle(DEADLINE_S), self.session.writer.trouble

    def drain(self) -> list[Any]:
        """Further calls, until all is committed, handed out and announced; returns what they handed out."""
        out: list[Any] = []
        self.gate.open()
        for _ in range(1_000):
            self.settle()
            if self.tracker.is_quiet:
                return out
            out += self.take()
        raise AssertionError("a thousand calls, and there is still something to hand out")

    def kill(self) -> None:
        """Die now: what is not committed is lost."""
        self.gate.kill()
        self.session.abandon(deadline_s=0)
        self._gone()

    def close(self) -> None:
        """End cleanly."""
        self.gate.open()
        assert self.session.close(deadline_s=DEADLINE_S), self.session.writer.trouble
        self._gone()

    def _gone(self) -> None:
        self.session.writer.join(DEADLINE_S)
        assert not self.session.writer.is_alive(), "the writer outlives its process"
        self._let_go()
        self._alive = False

    def _let_go(self) -> None:
        self.gate.take_away()
        self.engine.dispose()

    def end(self) -> None:
        """Leave nothing running, however the test went."""
        if self._alive:
            self.kill()


def words(events: list[Any]) -> list[dict[str, Any]]:
    """KV events as consumers read them."""
    return [msgspec.to_builtins(event) for event in events]


class Start(Protocol):
    """Starts a process over the test's store, with what `Process` takes after the store."""

    def __call__(self, settings: Settings | None = None, publisher: Publisher | None = None, **named: Any) -> Process:
        """The process, alive."""
        ...
