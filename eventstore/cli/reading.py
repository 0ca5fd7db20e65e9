"""How a command opens a store that is there; changes with what such a command needs first."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import StoreDamaged
from eventstore.log.stream import StreamRow, one_stream
from eventstore.storage.store import open_for_reading, open_for_writing


@contextmanager
def connected(store: str) -> Iterator[Connection]:
    """A connection without a transaction, for a command that reads for long and begins short ones itself."""
    engine = open_for_reading(store)
    try:
        with explaining_damage(store), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def reading(store: str) -> Iterator[Connection]:
    """A connection with one snapshot of the store, for a command that is soon done."""
    with connected(store) as connection:
        transaction = connection.begin()
        try:
            yield connection
        finally:
            # There is nothing to commit, and in a damaged database a commit fails.
            transaction.rollback()


@contextmanager
def changing(store: str) -> Iterator[Connection]:
    """One transaction on a store that is there, for a command that must not make one."""
    open_for_reading(store).dispose()
    engine, _ = open_for_writing(store)
    try:
        with explaining_damage(store), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def explaining_damage(store: str) -> Iterator[None]:
    """Say of content that cannot be understood where it is: it was checked when it was written."""
    try:
        yield
    except (ValueError, KeyError, TypeError, struct.error, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"store {store}: holds what kvledger does not write ({error}); run `kvledger verify`"
        ) from error


@contextmanager
def reading_stream(store: str, stream: str | None) -> Iterator[tuple[Connection, StreamRow]]:
    """As `reading`, with the stream that is meant."""
    with reading(store) as connection:
        yield connection, one_stream(connection, stream)
