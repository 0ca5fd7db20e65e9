"""Opens SQLite as this project needs it: PRAGMAs, immediate transactions, our errors; changes with a database's ways.

What each setting guards against is in docs/architecture.md, "The store".
"""

import ctypes
import os
import sqlite3
import weakref
from typing import Any, Literal

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.pool import NullPool, PoolProxiedConnection

from eventstore.domain.errors import LedgerError, StoreBusy, StoreDamaged, StoreFull, StoreUnusable
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

_lent: "weakref.WeakSet[PoolProxiedConnection]" = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child must not touch the parent's connections, not even to close them: that rolls back and checkpoints.
    # Whoever drops the last reference closes, so each gets one that nobody ever drops.
    for lent in list(_lent):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lent))


os.register_at_fork(after_in_child=_forget_in_child)


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
    """Attach to a (synchronous) engine what makes it a store's engine."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
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
        _lent.add(lent)

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
