"""The store of the state machine: a file that every run has anew; changes with how stores are made.

It stays at its path, so that the statements of both engines are compiled once for all runs.
"""

import shutil
import tempfile
from pathlib import Path

from eventstore.log.stream import one_stream
from eventstore.log.verify import verify
from eventstore.storage.engine import open_engine
from eventstore.views.rebuild import rebuild
from tests.stores import make_store
from tests.tracker.process import STREAM


class Home:
    """An engine that writes and one that only reads."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvledger-machine-")
        self._empty, self._store = make_store(Path(self._folder.name, "empty.db")), Path(self._folder.name, "ledger.db")
        self.writing = open_engine(f"sqlite:///{self._store}")
        self.reading = open_engine(f"sqlite:///{self._store}", read_only=True)

    def make_new(self) -> None:
        """An empty store, migrated. The file itself stays: the engines notice when it is another one."""
        for left in self._store.parent.glob("ledger.db-*"):
            left.unlink()
        shutil.copyfile(self._empty, self._store)

    def check_whole(self) -> None:
        """The log is as it was written, and the views are what it adds up to."""
        with self.writing.begin() as connection:
            stream = one_stream(connection, STREAM)
            assert verify(connection, stream).findings == []
            assert set(rebuild(connection, stream).changed.values()) == {0}

    def close(self) -> None:
        """Leave nothing behind."""
        self.writing.dispose()
        self.reading.dispose()
        self._folder.cleanup()
