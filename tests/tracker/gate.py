"""A store whose appends a test lets through, holds up or kills; changes with what a disk can do to a writer.

It stands where the disk does, below the product: it listens to the engine's statements. What it holds back is not
committed, and after `kill` nothing is, as when the process had died at that very statement.
"""

import threading
from typing import Any

from sqlalchemy import Engine, event

from eventstore.domain.errors import StoreBusy, StoreUnusable

DEADLINE_S = 20.0


class Gate:
    """Appends pass while it is open, which it is at first."""

    def __init__(self, engine: Engine) -> None:
        self._changed = threading.Condition()
        #: How many appends may still pass; None: any number.
        self._allowed: int | None = None
        self._held_up = self._dead = self._refusing = False
        self.refused = 0
        self._engine = engine
        event.listen(engine, "before_cursor_execute", self._before)

    def take_away(self) -> None:
        """Stand in nobody's way any more."""
        event.remove(self._engine, "before_cursor_execute", self._before)

    def _before(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        with self._changed:
            if statement.startswith("INSERT INTO append") and self._allowed != 0 and not self._refusing:
                self._allowed = self._allowed - 1 if self._allowed is not None else None
            elif statement.startswith("INSERT INTO append") and not self._refusing:
                self._wait_for_turn()
            if self._dead:
                raise StoreUnusable("the process is dead")
            if self._refusing:
                self.refused += 1
                self._changed.notify_all()
                raise StoreBusy("another process holds the lock")

    def _wait_for_turn(self) -> None:
        self._held_up = True
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._dead or self._refusing or self._allowed != 0)
        self._held_up = False
        if self._allowed:
            self._allowed -= 1

    def shut(self) -> None:
        """Hold up every append from now on."""
        self._set(allowed=0)

    def open(self) -> None:
        """Let every append through."""
        self._set(allowed=None)

    def refuse(self, refusing: bool = True) -> None:
        """Fail every statement, as a database does whose lock another process holds."""
        self._set(allowed=self._allowed, refusing=refusing)

    def kill(self) -> None:
        """Nothing that is not committed now will ever be."""
        with self._changed:
            self._dead = True
            self._changed.notify_all()

    def _set(self, *, allowed: int | None, refusing: bool = False) -> None:
        with self._changed:
            self._allowed, self._refusing = allowed, refusing
            self._changed.notify_all()

    def let_through(self, appends: int) -> None:
        """Let so many pass, and wait until they are committed and one more is held up."""
        with self._changed:
            self._allowed = appends
            self._changed.notify_all()
            self._expect(lambda: self._allowed == 0 and self._held_up)

    def wait_until_held_up(self) -> None:
        """Wait until an append stands at the shut gate."""
        with self._changed:
            self._expect(lambda: self._held_up)

    def wait_until_refused(self, times: int = 1) -> None:
        """Wait until the store has refused `times` statements more."""
        with self._changed:
            target = self.refused + times
            self._expect(lambda: self.refused >= target)

    def _expect(self, condition: Any) -> None:
        if not self._changed.wait_for(condition, DEADLINE_S):
            raise AssertionError("the writer did not do in time what the test waits for")
