"""Our tracker in the place of upstream's, inside one scheduler; changes with how the scheduler calls its tracker."""

from collections.abc import Callable, Iterable
from typing import Any

from tracker.tracker import Tracker


class EngineTracker:
    """What vLLM's scheduler finds under `_events_tracker`.

    The calls go straight to the tracker, but for one. A reset first takes in what the manager has not yet handed over:
    upstream leaves it for the next step (vllm/.../offloading/scheduler.py, `reset_cache`), and a store that is taken in
    after the reset would bring back what the reset has ended.
    """

    def __init__(self, tracker: Tracker, pending: Callable[[], Iterable[Any]]) -> None:
        """`pending` drains the manager's events. It is called under whatever lock the manager's reset is."""
        self.tracker = tracker
        self.self_describing_enabled = tracker.self_describing_enabled
        self.record_store = tracker.record_store
        self.record_lookup = tracker.record_lookup
        self.record_partial_store = tracker.record_partial_store
        self.record_partial_lookup = tracker.record_partial_lookup
        self.take_events = tracker.take_events
        self._pending = pending

    def drain(self) -> None:
        """Take in what the manager has not handed over; what may go out goes out with the next step."""
        self.tracker.take_in(self._pending())

    def reset(self) -> None:
        """The cache was reset."""
        self.drain()
        self.tracker.reset()
