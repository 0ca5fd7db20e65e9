"""A tier that a process asks, when it starts, what of the survivors it holds; changes with how a tier is asked."""

import threading
from collections.abc import Sequence

from tests.tracker.gate import DEADLINE_S


class Tier:
    """It says nothing until `answer`, and then what it was told to say."""

    def __init__(self) -> None:
        self._may_answer = threading.Event()
        self._missing: frozenset[bytes] = frozenset()

    def check(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of `keys` are there; waits for `answer`."""
        assert self._may_answer.wait(DEADLINE_S)
        return [key not in self._missing for key in keys]

    def answer(self, missing: frozenset[bytes] = frozenset()) -> None:
        """All are there but `missing`."""
        self._missing = missing
        self._may_answer.set()
