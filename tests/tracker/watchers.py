"""Consumers of what a process hands out, each with what is promised to it; changes with what consumers are promised.

docs/architecture.md, "Announcements": with `full` a consumer ends right whether it noticed a restart or not, with
`closes` one that noticed nothing does, and one that dropped everything credits nothing that is not there.
"""

import enum
from copy import deepcopy
from typing import Any

from tests.consumer import Credit, Router
from tests.tracker.process import words

LOSES = "loses its queue"
WATCHERS = ("notices nothing", "drops all", LOSES, "moody")


class Promise(enum.Enum):
    """What must be true of what a consumer believes, once all is committed and handed out."""

    RIGHT = "everything that is there, and nothing else"
    NO_GHOST = "nothing that is not there"
    NOTHING = "what it missed was never told again"


class Watcher:
    """A consumer that reads a process's queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.promise = Promise.RIGHT
        self._router = Router()
        #: What this process handed out and when, in order; the end of it can still be lost.
        self._queue: list[tuple[int, list[dict[str, Any]]]] = []
        self._untold = False

    def receive(self, now_ns: int, events: list[Any]) -> None:
        """A call handed out `events`."""
        if events:
            self._queue.append((now_ns, words(events)))

    def drops(self, moody: bool) -> bool:
        """Whether it drops all it knows this time."""
        return self.name == "drops all" or (self.name == "moody" and moody)

    def _read(self, upto: int | None = None) -> None:
        for _, events in self._queue[:upto]:
            self._router.read(events)
        self._queue.clear()

    def restart(self, announce: str, *, drops: bool, loses: int, after_ns: int, unlogged: bool) -> None:
        """The process died, `loses` calls at most with it, of those handed out later than `after_ns`. `unlogged`:
        what it had handed out and not committed is gone from the log."""
        losable = sum(moment > after_ns for moment, _ in self._queue)
        self._read(len(self._queue) - min(loses, losable))
        if unlogged:
            self.promise = Promise.NOTHING
        self._told_again(announce, drops=drops)

    def reset(self, announce: str, *, drops: bool) -> None:
        """The cache was reset."""
        if drops:
            self._read()
        if announce == "none":
            self.promise = Promise.NOTHING
        else:
            self._told_again(announce, drops=drops)

    def _told_again(self, announce: str, *, drops: bool) -> None:
        if drops:
            self._router.drop_all()
        lacking = drops or self._untold or self.promise is Promise.NO_GHOST
        has_ghosts = self.promise is Promise.NOTHING and not drops
        if announce == "full":
            self.promise = Promise.NOTHING if has_ghosts else Promise.RIGHT
        elif announce == "closes":
            fine = Promise.NO_GHOST if lacking else Promise.RIGHT
            self.promise = Promise.NOTHING if has_ghosts else fine
        else:
            self.promise = Promise.NO_GHOST if drops else Promise.NOTHING
        self._untold = lacking and announce == "full"

    def check(self, must: set[Credit], may: set[Credit]) -> None:
        """All is committed and handed out."""
        self._untold = False
        reader = deepcopy(self._router)
        for _, events in self._queue:
            reader.read(events)
        believed = set(reader.believed)
        if self.promise is not Promise.NOTHING:
            assert believed <= may, f"{self.name}: ghosts {sorted(believed - may, key=str)}"
        if self.promise is Promise.RIGHT:
            assert believed >= must, f"{self.name}: misses {sorted(must - believed, key=str)}"
