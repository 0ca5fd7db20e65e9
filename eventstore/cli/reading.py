"""How a command that only reads opens its store; changes with what such a command needs first."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import StoreDamaged
from eventstore.log.stream import StreamRow, one_stream
from eventstore.storage.store import open_for_reading


@contextmanager
def connected(store: str) -> Iterator[Connection]:
    """A connection without a transaction, for a command that reads for long and begins short ones itself."""
    engine = open_for_reading(store)
    try:
        with engine.connect() as connection:
            yield connection
    except (ValueError, KeyError, TypeError, struct.error, msgspec.MsgspecError) as error:
        # What the log and the views hold was checked when it was written, so here it is the store that is wrong.
        raise StoreDamaged(
            f"store {store}: holds what kvledger does not write ({error}); run `kvledger verify`"
        ) from error
    finally:
        engine.dispose()


@contextmanager
def reading(store: str) -> Iterator[Connection]:
    """A connection with one snapshot of the store, for a command that is soon done."""
    with connected(store) as connection, connection.begin():
        yield connection


@contextmanager
def reading_stream(store: str, stream: str | None) -> Iterator[tuple[Connection, StreamRow]]:
    """As `reading`, with the stream that is meant."""
    with reading(store) as connection:
        yield connection, one_stream(connection, stream)
