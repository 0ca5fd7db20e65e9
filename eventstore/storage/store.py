"""Opens a store for one of two uses, reading or writing; changes when a use needs another check before it starts."""

import os
import stat
from pathlib import Path

from sqlalchemy import URL, Engine

from eventstore.domain.errors import StoreUnusable
from eventstore.storage.engine import BUSY_TIMEOUT_MS, Synchronous, open_engine
from eventstore.storage.migration import check_current, check_usable, migrate
from eventstore.storage.url import parse_store, show, store_path


def open_for_reading(store: str) -> Engine:
    """An engine that can only read, over a store that exists and is of this code's schema."""
    url = existing(store)
    engine = open_engine(url, read_only=True)
    try:
        with engine.begin() as connection:
            check_current(connection, show(url))
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_for_writing(
    store: str, *, synchronous: Synchronous = "normal", busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> tuple[Engine, tuple[str | None, str]]:
    """An engine over a store that is made where it is missing and migrated where it is old, and the revisions
    before and after.

    The file is created with mode 0600: token ids are what users wrote.
    """
    url = parse_store(store)
    path = store_path(url)
    _check_writable(path, show(url))
    made = _create(path, show(url))
    if not made:
        _check_ours(url)
    engine = open_engine(url, synchronous=synchronous, busy_timeout_ms=busy_timeout_ms)
    try:
        return engine, migrate(engine, show(url))
    except BaseException:
        engine.dispose()
        if made and path.stat().st_size == 0:
            path.unlink()
        raise


def existing(store: str) -> URL:
    """The URL of a store whose file is there. Raises `StoreUnusable` where it is not."""
    url = parse_store(store)
    if not _is_there(store_path(url), show(url)):
        raise StoreUnusable(
            f"store {show(url)}: there is no such file; `kvledger migrate --store {show(url)}` makes one"
        )
    return url


def prepare_folder(store: str) -> None:
    """Make the folder that the store will be in. Raises `StoreUnusable` where it, or the store, cannot be written."""
    url = parse_store(store)
    path = store_path(url)
    _make_folder(path, show(url))
    _check_writable(path, show(url))


def _check_ours(url: URL) -> None:
    """Look at a file before anything is written to it: a database that is not ours stays as it is."""
    engine = open_engine(url, read_only=True)
    try:
        with engine.begin() as connection:
            check_usable(connection, show(url))
    finally:
        engine.dispose()


def _is_there(path: Path, shown: str) -> bool:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreUnusable(f"store {shown}: cannot be used: {error.strerror}; name another file") from None
    if not stat.S_ISREG(mode):
        raise StoreUnusable(f"store {shown}: this is no file; name an SQLite database")
    return True


def _check_writable(path: Path, shown: str) -> None:
    _is_there(path, shown)
    for candidate in (path, path.parent):
        if not candidate.exists():
            continue
        # The bits are looked at as well as the right: root may write to what its owner has marked read-only.
        marked = not candidate.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
        if marked or not os.access(candidate, os.W_OK):
            what = "it" if candidate is path else f"its folder {candidate}"
            raise StoreUnusable(f"store {shown}: {what} is read-only; make it writable or name another file")


def _make_folder(path: Path, shown: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnusable(f"store {shown}: its folder cannot be created: {error.strerror}") from None


def _create(path: Path, shown: str) -> bool:
    _make_folder(path, shown)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreUnusable(f"store {shown}: cannot be created: {error.strerror}") from None
    return True
