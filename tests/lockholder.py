"""Another real process that holds a database's write lock until it is told to let go.

Run as `python -m tests.lockholder DATABASE`: it says "held", waits for a line, rolls back, and says "free".
"""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockHolder:
    """The parent's side of it."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lockholder", str(database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert self._answer() == "held"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def holds(self) -> bool:
        """Whether nobody else can write just now."""
        connection = sqlite3.connect(self._database, timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False

    def stop(self) -> None:
        """Stop it where it stands, lock in hand."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def let_go(self) -> None:
        """Tell it to let go, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        assert self._answer() == "free"

    def kill(self) -> None:
        """End it; the lock goes with the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def lock_held(database: Path) -> Iterator[LockHolder]:
    """`database`'s write lock is another process's until `let_go` or the end of the block."""
    holder = LockHolder(database)
    try:
        yield holder
    finally:
        holder.kill()


def main(database: str) -> None:
    """The child's side."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    _say("held")
    if sys.stdin.readline():
        connection.execute("ROLLBACK")
        _say("free")
    sys.stdin.readline()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
