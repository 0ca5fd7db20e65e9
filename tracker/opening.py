"""Opens a stream for an engine: lock, store, epoch, in this order; changes with what an engine does before it starts.

A tool for crash recovery does not cause a crash loop: a store that is damaged is moved aside and a new one begun. What
the user can mend (a setting, a folder, a newer store) is refused with one line.
"""

import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from eventstore.domain.errors import StoreDamaged, StoreUnusable
from eventstore.storage.store import open_for_writing, prepare_folder
from eventstore.storage.url import default_store, parse_store, store_path
from tracker.checker import Check
from tracker.configuration import Configuration
from tracker.lock import StreamLock
from tracker.publish import Publisher
from tracker.session import CLOSE_DEADLINE_S, Session, this_process

#: What reading an old log can raise where its content is not what was written, and a new store never does.
_SENSELESS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    SQLAlchemyError,
    struct.error,
)


class Ledger:
    """An engine's open stream: the session, and what has to be given back after it."""

    def __init__(self, session: Session, engine: Engine, lock: StreamLock, store: str) -> None:
        self.session = session
        self.store = store
        self._engine, self._lock = engine, lock
        self._closed = False

    def close(self, reason: str = "shutdown", deadline_s: float = CLOSE_DEADLINE_S) -> bool:
        """End the epoch; returns whether everything was committed before the deadline. Safe to call again."""
        if self._closed:
            return True
        done = self.session.close(reason, deadline_s)
        self.release()
        return done

    def release(self) -> None:
        """Give back store and stream, whatever became of the session. Safe to call again."""
        self._closed = True
        self._engine.dispose()
        self._lock.release()


class Engineside(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine says of itself. `fingerprint` and `checks` are by place, as `eventstore.recovery` has them."""

    self_describing: bool
    publisher: Publisher
    versions: dict[str, str] = {}
    fingerprint: dict[str, Any] = {}
    checks: Mapping[str, Check] = {}


def open_stream(
    configuration: Configuration, stream: str, engineside: Engineside, warn: Callable[[str], None]
) -> Ledger:
    """Open `stream` as `configuration` says. Raises `LedgerError` with one line for what the user has to change.

    `warn` is told of a damaged store that was moved aside, of a wait for the stream, and whenever the store stops
    taking commits or takes them again.
    """
    store = configuration.store or default_store(stream)
    path = store_path(parse_store(store))
    prepare_folder(store)
    lock = StreamLock(path, stream, configuration.takeover_wait_s, warn)
    try:
        try:
            engine, session = _open(configuration, stream, engineside, store, warn)
        except (StoreDamaged, *_SENSELESS) as error:
            what = str(error) if isinstance(error, StoreDamaged) else f"store {path} is damaged: {error!r}"
            aside = _aside(path)
            _move(path, aside)
            try:
                engine, session = _open(configuration, stream, engineside, store, warn)
            except BaseException:
                # It was not the store, then, or a new one does no better.
                _move(aside, path)
                raise
            warn(f"{what}. It was moved to {aside}, and a new store begun: what the old one knew is not recovered")
    except BaseException:
        lock.release()
        raise
    return Ledger(session, engine, lock, store)


def _open(
    configuration: Configuration, stream: str, engineside: Engineside, store: str, warn: Callable[[str], None]
) -> tuple[Engine, Session]:
    engine, _ = open_for_writing(store, synchronous=configuration.synchronous)
    settings = configuration.settings(self_describing=engineside.self_describing)
    opening = this_process(
        stream,
        versions=engineside.versions,
        fingerprint=engineside.fingerprint,
        policies=settings.policies,
        announce=configuration.announce,
        tail_ns=configuration.tail_ms * 1_000_000,
        heartbeat_every_ns=configuration.heartbeat_ms * 1_000_000,
        checked=frozenset(engineside.checks),
    )
    try:
        return engine, Session(
            engine,
            opening,
            settings,
            engineside.publisher,
            store_token_ids=configuration.store_token_ids,
            flush_interval_s=configuration.flush_interval_ms / 1000,
            checks=engineside.checks,
            warn=warn,
        )
    except BaseException:
        engine.dispose()
        raise


def _aside(path: Path) -> Path:
    """A name beside `path` that no file has."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    number = 0
    while (aside := path.with_name(f"{path.name}.damaged-{stamp}{f'-{number}' if number else ''}")).exists():
        number += 1
    return aside


def _move(path: Path, to: Path) -> None:
    """Rename the store and what SQLite keeps beside it. What stands in the way is replaced."""
    try:
        for suffix in ("", "-wal", "-shm"):
            part, target = Path(f"{path}{suffix}"), Path(f"{to}{suffix}")
            if part.exists():
                part.replace(target)
            else:
                target.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnusable(f"store {path} is damaged and cannot be moved aside: {error.strerror}") from None
