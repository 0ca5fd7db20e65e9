"""Reads a stream page by page in one form, from a cursor on; changes with what is checked before a page goes out.

A page is read within one transaction, which is over before anybody sees the page: a consumer that stops keeps nothing
of the database waiting. Each page begins with the question whether the log is still the one read so far.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine

from eventstore.domain.errors import StoreDamaged
from eventstore.log.cursor import Cursor, check, cursor_at
from eventstore.replay.form import Form, Item
from eventstore.storage.engine import lean


class Read(NamedTuple):
    """What one page brought. `cursor`: what has been read once `items` are handled. `moved`: whether that is news."""

    items: list[Item]
    cursor: Cursor
    moved: bool


class Reader:
    """One reader's way through a stream. `upto`: the last seq, None: there is no end. `with_state`: what is resident
    after `cursor` comes first."""

    def __init__(self, form: Form, cursor: Cursor, upto: int | None = None, *, with_state: bool = False) -> None:
        self.cursor = cursor
        self._form, self._upto = form, upto
        self._next_chunk: int | None = 0 if with_state else None

    @property
    def is_done(self) -> bool:
        """Whether the last event has been read."""
        return self._next_chunk is None and self._upto is not None and self.cursor.seq >= self._upto

    def read(self, connection: Connection) -> Read:
        """The next page. Raises `Pruned` and `Forked` where the log cannot be read on, `StoreDamaged`."""
        with as_written(self.cursor.stream):
            return self._read(connection)

    def _read(self, connection: Connection) -> Read:
        stream = check(connection, self.cursor)
        if self._next_chunk is not None:
            items, upto = self._form.state(connection, stream, self.cursor.seq, self._next_chunk)
            self._next_chunk = upto or None
            return Read(items, self.cursor, moved=True)
        end = stream.last_seq if self._upto is None else min(self._upto, stream.last_seq)
        if self.cursor.seq >= end:
            return Read([], self.cursor, moved=False)
        page = self._form.read(connection, stream, self.cursor.seq, end)
        self.cursor = cursor_at(connection, stream, page.seq)
        return Read(page.items, self.cursor, moved=True)


@contextmanager
def as_written(stream: str) -> Iterator[None]:
    """What is read here was checked when it was written: where it makes no sense, it is the store that is wrong."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, StopIteration, struct.error, msgspec.MsgspecError) as error:
        raise StoreDamaged(
            f"stream {stream!r} holds what kvledger does not write ({error!r}); run `kvledger verify`"
        ) from error


def pages(engine: Engine, reader: Reader) -> Iterator[Read]:
    """Every page up to the reader's end. Between pages no transaction is open."""
    with engine.connect() as connection:
        with connection.begin():
            lean(connection)
        while not reader.is_done:
            with connection.begin():
                found = reader.read(connection)
            yield found
