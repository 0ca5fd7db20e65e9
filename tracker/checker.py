"""Asks a tier what of a restart's survivors is there, on a thread of its own; changes with how a tier is asked."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

#: Many keys in, found or not out, in the same order. May block; may raise where the tier cannot be asked.
Check = Callable[[Sequence[bytes]], Sequence[bool]]

KEYS_A_QUESTION = 512


class Answer(msgspec.Struct, frozen=True):
    """What the tier behind a place said of some keys."""

    place: int
    found: list[bytes]
    missing: list[bytes]


class Checker(threading.Thread):
    """Puts all questions, batch by batch, and leaves the answers for the engine thread to take up."""

    def __init__(self, questions: dict[int, tuple[Check, list[bytes]]], answers: "deque[Answer]") -> None:
        super().__init__(name="kvledger-checker", daemon=True)
        self.trouble = ""
        self._questions, self._answers = questions, answers
        self._stopping = threading.Event()

    def run(self) -> None:
        """The thread's life: it ends when everything is answered."""
        for place, (check, keys) in self._questions.items():
            for at in range(0, len(keys), KEYS_A_QUESTION):
                if self._stopping.is_set():
                    return
                self._ask(place, check, keys[at : at + KEYS_A_QUESTION])

    def _ask(self, place: int, check: Check, keys: list[bytes]) -> None:
        try:
            verdicts = check(keys)
            found = [key for key, there in zip(keys, verdicts, strict=True) if there]
            missing = [key for key, there in zip(keys, verdicts, strict=True) if not there]
        except Exception as error:  # noqa: BLE001 - whatever a tier raises, consumers wait for its answer
            # A tier that cannot be asked says nothing against what the log has: it counts as there.
            self.trouble = f"{type(error).__name__}: {error}"
            found, missing = keys, []
        self._answers.append(Answer(place, found, missing))

    def stop(self) -> None:
        """Ask nothing more."""
        self._stopping.set()
