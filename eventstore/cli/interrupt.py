"""Ctrl-C as a wish rather than a blow: what is being written is finished first; changes with how a command is ended."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Event]:
    """An event that the first Ctrl-C sets; a second one strikes. Ends with `KeyboardInterrupt` where it was set."""
    asked = Event()

    def strike(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            signal.default_int_handler(number, frame)
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals are the main thread's alone
        return
    before = signal.signal(signal.SIGINT, strike)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
    if asked.is_set():
        raise KeyboardInterrupt
