"""What every form of a replay has in common: pages of items, and what of the log they are made from; changes with what
a reader needs of a form.

A form is asked for one page at a time, each within its own short transaction, so that it can be read over a
synchronous and an asynchronous engine alike. It keeps caches between pages and no state that a page depends on.
"""

from typing import Any, NamedTuple, Protocol

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import StoreDamaged
from eventstore.domain.events import PlaceRow
from eventstore.domain.place import Medium
from eventstore.log.stream import StreamRow, places_of


class Item(NamedTuple):
    """One thing that goes out, and when it happened, in nanoseconds UTC."""

    time_ns: int
    content: Any


class Page(NamedTuple):
    """The next items, and the seq up to which they tell the log."""

    items: list[Item]
    seq: int


class Filter(msgspec.Struct, frozen=True):
    """Which events about chunks are wanted, by medium and by KV-cache group; empty: all."""

    media: frozenset[Medium] = frozenset()
    groups: frozenset[int] = frozenset()

    def takes_place(self, row: PlaceRow | None) -> bool:
        """Whether what happens at this place is wanted; what happens at none always is."""
        return row is None or not self.media or row.place.medium in self.media

    def takes_group(self, group: int) -> bool:
        """Whether what happens to chunks of this group is wanted."""
        return not self.groups or group in self.groups

    def __bool__(self) -> bool:
        return bool(self.media or self.groups)


class Form(Protocol):
    """How the log goes out."""

    def read(self, connection: Connection, stream: StreamRow, after: int, upto: int) -> Page:
        """The next page after event `after`, with nothing that is later than `upto`, which the log has."""

    def state(self, connection: Connection, stream: StreamRow, at: int, after_chunk: int) -> tuple[list[Item], int]:
        """The next part of what is resident after event `at`, from the chunks after number `after_chunk` on; and the
        number up to which it goes, 0 once that is the end."""


class Places:
    """A stream's places by number, read again where a number is new."""

    def __init__(self) -> None:
        self.rows: dict[int, PlaceRow] = {}

    def get(self, connection: Connection, stream: StreamRow, numbers: set[int]) -> dict[int, PlaceRow]:
        """The places, with all of `numbers` among them. Raises `StoreDamaged` where the store does not have them."""
        if not self.rows or not numbers <= self.rows.keys():
            self.rows = {row.number: row for row in places_of(connection, stream.stream)}
        unknown = numbers - self.rows.keys()
        if unknown:
            raise StoreDamaged(f"stream {stream.name!r}: the log names place {min(unknown)}, and the store has none")
        return self.rows
