"""Our tracker in the place of upstream's, inside one scheduler; changes with how the scheduler calls its tracker."""

from collections.abc import Callable, Iterable
from typing import Any

from tracker.tracker import Tracker


class EngineTracker:
    """What vLLM's scheduler finds under `_events_tracker`.

    The record calls go straight to the tracker. A reset first takes in what the manager has not yet handed over:
    upstream drops it (vllm/.../offloading/scheduler.py, `reset_cache`), and a store that is taken in after the reset
    would bring back what the reset has ended.
    """

    def __init__(self, tracker: Tracker, pending: Callable[[], Iterable[Any]]) -> None:
        """`pending` drains the manager's events. It is called under whatever lock the manager's reset is."""
        self.tracker = tracker
        self.self_describing_enabled = tracker.self_describing_enabled
        self.record_store = tracker.record_store
        self.record_lookup = tracker.record_lookup
        self.record_partial_store = tracker.record_partial_store
        self.record_partial_lookup = tracker.record_partial_lookup
        self._pending = pending
        self._carried: list[Any] = []

    def take_events(self, events: Iterable[Any]) -> list[Any]:
        """As upstream's: the KV events to publish in this step."""
        out = self.tracker.take_events(events)
        if self._carried:
            out = self._carried + out
            self._carried = []
        return out

    def reset(self) -> None:
        """The cache was reset; what may go out already goes out with the next step."""
        self._carried += self.tracker.take_events(self._pending())
        self.tracker.reset()

    @property
    def has_something_to_say(self) -> bool:
        """Whether a step is wanted though no request brings one."""
        return bool(self._carried) or self.tracker.has_something_to_say

    @property
    def has_news(self) -> bool:
        """Whether that step would bring something right now."""
        return bool(self._carried) or self.tracker.has_news
