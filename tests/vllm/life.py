"""One process life of an engine under load, killed in the end: what all kinds share; changes with how we kill."""

import contextlib
import os
import select
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

#: An engine starts in seconds, and in minutes where many share the machine.
START_S = 600.0
ANSWER_S = 300.0


class Life(ABC):
    """An engine from its start to its SIGKILL. `news` guards what its threads change."""

    #: The lines of its output that are waited for.
    stands_line: str
    ready_line: str

    def __init__(self, log: Path) -> None:
        """`log`: where its output is kept, life after life."""
        self.news = threading.Condition()
        self.answered = 0
        self.failures: list[str] = []
        self._log = log
        self._seen: set[str] = set()
        self._killed = False

    def stands(self) -> None:
        """Wait until the scheduler stands: its epoch is open, and nothing is told yet."""
        self._wait_for_line(self.stands_line)

    def ready(self) -> None:
        """Wait until requests are served."""
        self._wait_for_line(self.ready_line)

    @abstractmethod
    def observe(self) -> dict[str, Any]:
        """Let it finish what is under way, and return what it holds (`observed.py`)."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the prefix cache, the connector's with it."""

    @abstractmethod
    def begin_load(self, seed: int) -> None:
        """Send requests from now on, drawn by the seed."""

    @abstractmethod
    def end_load(self) -> None:
        """Send no more, and wait for the answers to those sent."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process at the root of its tree, which leads a process group."""

    @abstractmethod
    def _bury(self) -> None:
        """Give back what the harness itself held for this life."""

    def wait_for_answers(self, count: int) -> None:
        """Wait for so many more answers."""
        with self.news:
            wanted = self.answered + count
            self._wait(lambda: self.answered >= wanted, ANSWER_S, f"{count} answers")

    def kill(self) -> None:
        """SIGKILL the whole tree at this moment, and wait until nothing of it runs. Safe to call again."""
        if self._killed:
            return
        self._killed = True
        with contextlib.ExitStack() as opened:
            ends = []
            left_behind = set[Path]()
            for pid in process_tree(self.pid):
                left_behind |= _shared_memory(pid)
                with contextlib.suppress(ProcessLookupError):
                    ends.append(os.pidfd_open(pid))
                    opened.callback(os.close, ends[-1])
            # The whole group at one stroke, and with it what is being started at this moment.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            for end in ends:
                assert select.select([end], [], [], ANSWER_S)[0], "a killed process does not end"
        for path in left_behind:
            path.unlink(missing_ok=True)
        self._bury()

    def _read_output(self, lines: Iterable[str]) -> None:
        """A thread's work: keep the output, and tell of what is waited for."""
        try:
            with self._log.open("a") as log:
                for line in lines:
                    log.write(line)
                    log.flush()
                    with self.news:
                        self._seen.update(one for one in (self.stands_line, self.ready_line) if one in line)
                        self._heard(line)
                        self.news.notify_all()
            self._failed(f"the engine ended by itself: see {self._log}")
        except Exception as failure:  # noqa: BLE001 - told to whoever waits
            self._failed(f"its output cannot be read: {failure!r}")

    def _heard(self, line: str) -> None:  # noqa: B027 - most listen to no more
        """A line of the output, with `news` held."""

    def _wait_for_line(self, awaited: str) -> None:
        with self.news:
            self._wait(lambda: awaited in self._seen, START_S, f"{awaited!r}")

    def _wait(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """With `news` held: wait for `done`. Raises where the life failed or time is up."""
        if not self.news.wait_for(lambda: bool(self.failures) or done(), timeout_s):
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")
        self._raise_failures()

    def _raise_failures(self) -> None:
        if self.failures:
            raise AssertionError("\n".join(self.failures))

    def _failed(self, what: str) -> None:
        with self.news:
            if not self._killed:
                self.failures.append(what)
            self.news.notify_all()


def process_tree(root: int) -> list[int]:
    """A process and all that descend from it, the root first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def _shared_memory(pid: int) -> set[Path]:
    """The files in shared memory that a process maps: one that is killed leaves them behind.

    By inode: a semaphore's file is mapped under the name that it was made with, which is not the one that it has.
    """
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        mapped = {int(line.split(maxsplit=5)[4]) for line in lines if "/dev/shm/" in line}
        return {Path(entry.path) for entry in os.scandir("/dev/shm") if entry.inode() in mapped}
    return set()
