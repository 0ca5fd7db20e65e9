"""Opens SQLite as this project needs it: PRAGMAs, immediate transactions, our errors; changes with a database's ways.

What each setting guards against is in docs/architecture.md, "The store".
"""

import os
import sqlite3
from typing import Any, Literal

import msgspec
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.pool import NullPool, PoolProxiedConnection

from eventstore.domain import clock
from eventstore.domain.errors import LedgerError, StoreBusy, StoreDamaged, StoreFull, StoreUnusable
from eventstore.storage import forks
from eventstore.storage.url import parse_store, show, store_path

Synchronous = Literal["normal", "full"]
#: What SQLite calls them when it is asked.
_SYNCHRONOUS = {"normal": 1, "full": 2}

#: How long a statement waits for another process's lock before it fails with `StoreBusy`.
BUSY_TIMEOUT_MS = 5_000
#: A checkpoint every 64 MiB of log file: with SQLite's 4 MiB the same pages of the views are written over and over.
CHECKPOINT_PAGES = 16_000
CACHE_KIB = 64 * 1024
#: For who goes through the log once: what was read is not read again.
LEAN_CACHE_KIB = 4 * 1024

#: Where a connection keeps which file it opened.
_FILE = "kvledger file"
_LOOK_EVERY_NS = 1_000_000_000


class _File(msgspec.Struct):
    """What an engine opened: the path, which file was there, and when to look again."""

    path: str
    opened: tuple[int, int] | None = None
    look_at: int = 0

    def check(self) -> None:
        """Raise where another file is there now, or none.

        SQLite goes on writing into a file that was removed, and nobody would ever read it; and it would apply the old
        file's write-ahead log to a new one.
        """
        found = _identity(self.path)
        if self.opened is None:
            self.opened = found
        elif found != self.opened:
            raise StoreUnusable(f"store {self.path}: its file was removed or replaced while it was open; put it back")


class AppendRefused(LedgerError):
    """The append statement found that the batch may not go in; `log.append` says why, with numbers."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def open_engine(
    store: str | URL,
    *,
    read_only: bool = False,
    synchronous: Synchronous = "normal",
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    as_of_checkpoint: bool = False,
) -> Engine:
    """An engine whose every transaction is BEGIN IMMEDIATE (or, read-only, a snapshot) and whose errors are ours.

    `as_of_checkpoint`: read the database file alone, without its write-ahead log: what a power cut cannot take.
    Opens no connection yet. Dispose of it when done.
    """
    url = parse_store(store) if isinstance(store, str) else store
    uri = database_uri(url, "sqlite", read_only=read_only, as_of_checkpoint=as_of_checkpoint)
    engine = create_engine(uri, poolclass=NullPool, connect_args={"timeout": busy_timeout_ms / 1000})
    configure(engine, show(url), read_only=read_only, synchronous=synchronous)
    return engine


def configure(engine: Engine, shown: str, *, read_only: bool, synchronous: Synchronous) -> None:
    """Attach to a (synchronous) engine what makes it a store's engine. `shown` is the file's path."""
    file = _File(shown)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        # Nothing of the file is read before the first statement.
        forks.check(shown)
        file.check()
        record.info[_FILE] = file
        # Transactions are begun by hand: Python's sqlite3 would leave DDL outside them.
        connection.isolation_level = None
        cursor = connection.cursor()
        if read_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            # Read back: SQLite answers with what it does, and does not fail where that is not what was asked.
            if cursor.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise StoreUnusable(f"store {shown}: no write-ahead log is possible there; name a file on a local disk")
            cursor.execute(f"PRAGMA synchronous = {synchronous.upper()}")
            if cursor.execute("PRAGMA synchronous").fetchone() != (_SYNCHRONOUS[synchronous],):
                raise StoreUnusable(f"store {shown}: SQLite does not take synchronous = {synchronous}")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        cursor.close()

    @event.listens_for(engine, "checkout")
    def _lend(_connection: object, _record: object, lent: PoolProxiedConnection) -> None:
        forks.lend(lent, shown)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    @event.listens_for(engine, "handle_error")
    def _failed(context: ExceptionContext) -> LedgerError | None:
        return _translated(context.original_exception, shown)


def lean(connection: Connection) -> None:
    """Make this connection keep little of what it reads, so that a long reader's memory does not grow."""
    connection.exec_driver_sql(f"PRAGMA cache_size = -{LEAN_CACHE_KIB}")


def database_uri(url: URL, driver: str, *, read_only: bool, as_of_checkpoint: bool = False) -> URL:
    """What `driver` opens a store's file by."""
    query = {"mode": "ro" if read_only else "rw", "uri": "true"} | ({"immutable": "1"} if as_of_checkpoint else {})
    return URL.create(driver, database=f"file:{_quoted(str(store_path(url)))}", query=query)


def check_in_place(connection: Connection) -> None:
    """Raise `StoreUnusable` where the store's file is not the one any more that `connection` has open.

    Looks once a second at most: each look lets go of the GIL.
    """
    file: _File = connection.info[_FILE]
    now = clock.steady_ns()
    if now < file.look_at:
        return
    file.look_at = now + _LOOK_EVERY_NS
    file.check()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _translated(error: BaseException, shown: str) -> LedgerError | None:
    if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.ProgrammingError):
        # What is no error of the database is a defect of ours, and says so itself.
        return None
    message = str(error)
    if message.startswith("kvledger: "):
        return AppendRefused(message.removeprefix("kvledger: "))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"store {shown}: another process holds its lock; try again when that one is done")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"store {shown}: no room left on the device or in the database; free some and go on")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreDamaged(f"store {shown} is not an SQLite database; name another file")
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreDamaged(f"store {shown} is damaged: {message}; restore a backup, or name another file")
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreDamaged(f"store {shown}: its content does not hold together: {message}; run `kvledger verify`")
    known = {
        sqlite3.SQLITE_READONLY: "is read-only; make it and its folder writable",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that the file and its folder exist and may be used",
    }
    if code in known:
        return StoreUnusable(f"store {shown} {known[code]}")
    return StoreUnusable(f"store {shown}: {message}")
