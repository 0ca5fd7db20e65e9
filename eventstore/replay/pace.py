"""When a recorded event is due again; changes with what pace means."""

from collections.abc import Callable

from eventstore.domain import clock
from eventstore.domain.errors import BadInput


class Pace:
    """As recorded, `factor` times as fast. Says how long to wait; the waiting is the caller's.

    Times that go back (a stepped clock) count as no time passing, and a consumer that is late is given the rest at
    once until it has caught up.
    """

    def __init__(self, factor: float, now_ns: Callable[[], int] = clock.steady_ns) -> None:
        if not 0 < factor < float("inf"):
            raise BadInput(
                f"pace {factor}: give a number above 0, such as 1 for as recorded or 10 for ten times as fast"
            )
        self._factor, self._now_ns = factor, now_ns
        self._began_ns: int | None = None
        self._last_ns = self._passed_ns = 0

    def wait_s(self, time_ns: int) -> float:
        """How long to wait, in seconds, until what happened at `time_ns` is due; 0 where it is."""
        now = self._now_ns()
        if self._began_ns is None:
            self._began_ns, self._last_ns = now, time_ns
        self._passed_ns += max(0, time_ns - self._last_ns)
        self._last_ns = time_ns
        due = self._began_ns + round(self._passed_ns / self._factor)
        return max(0, due - now) / 1e9
