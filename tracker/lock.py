"""One writer a stream on a host: a lock that dies with its process; changes with how writers keep apart.

The lock answers quickly and says who holds it. What is true even across hosts is the epoch: a writer of an older one
can append nothing (`eventstore.log.append`).
"""

import contextlib
import fcntl
import hashlib
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from eventstore.domain.errors import StoreUnusable, StreamError

_held: "weakref.WeakSet[StreamLock]" = weakref.WeakSet()


class StreamTaken(StreamError):
    """A live process writes this stream."""

    def __init__(self, stream: str, holder: str, waited_s: float) -> None:
        super().__init__(
            f"stream {stream!r} is being written by another live process ({holder or 'unknown'});"
            f" waited {waited_s:g} s."
            " Stop that one, or give this engine a stream of its own (kvledger.stream)"
        )


class StreamLock:
    """The right to write a stream of a store, held until `release` or the process's end."""

    def __init__(self, store: Path, stream: str, wait_s: float, say: Callable[[str], None] = lambda _: None) -> None:
        """Wait for the lock. Raises `StreamTaken` when `wait_s` seconds did not bring it. `say` is told of a wait."""
        name = hashlib.blake2b(stream.encode(), digest_size=8).hexdigest()
        self._path = store.with_name(f"{store.name}.{name}.lock")
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnusable(f"{self._path}: cannot be opened: {error.strerror}") from None
        give_up = time.monotonic() + wait_s
        told = False
        while not self._try():
            holder = os.pread(self._fd, 200, 0).decode(errors="replace").strip()
            if time.monotonic() >= give_up:
                os.close(self._fd)
                raise StreamTaken(stream, holder, wait_s)
            if not told:
                told = True
                say(f"stream {stream!r} is held by a live process ({holder}); waiting up to {wait_s:g} s for its end")
            time.sleep(0.05)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()}\n".encode(), 0)
        _held.add(self)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the next one have it. The file stays: to remove it could take a lock away from who just opened it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def forget(self) -> None:
        """In a forked child: let go of the parent's lock without freeing it."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _forget_in_child() -> None:
    # A child that outlives the engine would keep the stream locked.
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)
