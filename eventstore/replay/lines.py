"""The log as lines, one event a line; changes with that form (docs/replay.md).

The first line says what slice of which log it begins, and where the stream's places are first named; the last event of
a batch carries the batch. With these, `import` makes the same log again.
"""

from typing import Any

from sqlalchemy import Connection

from eventstore.domain import clock
from eventstore.domain.events import Event, PlaceRow
from eventstore.domain.key import group_index
from eventstore.log.chunks import keys_of
from eventstore.log.read import BatchRow, batches_over, page
from eventstore.log.stream import StreamRow
from eventstore.replay.form import Filter, Item, Page, Places
from eventstore.replay.state import StateRow, state_page, time_of_state
from eventstore.replay.words import as_words, metadata_words, place_words, places_in, stored_words
from eventstore.storage.codec import unpack_sums

#: The version of the lines' form. A new field does not change it, a changed or missing one does.
SCHEMA_VERSION = 1


class LogLines:
    """Events in words. `first` and `last` are those of the slice; None: it goes on as the log does."""

    def __init__(self, first: int, last: int | None, wanted: Filter | None = None) -> None:
        self._wanted = wanted or Filter()
        self._places = Places()
        self._told: set[int] = set()
        self._head: dict[str, Any] | None = {"schema_version": SCHEMA_VERSION, "from": first, "to": last}
        if self._wanted:
            self._head["media"] = sorted(self._wanted.media)
            self._head["groups"] = sorted(self._wanted.groups)

    def read(self, connection: Connection, stream: StreamRow, after: int, upto: int) -> Page:
        """The next page of events after `after`."""
        events = page(connection, stream.stream, after, upto=upto)
        if not events:
            return Page([], upto)
        places = self._places.get(connection, stream, places_in(events))
        keys = keys_of(connection, stream.stream, {event.chunk for event in events if event.chunk})
        batches = iter(batches_over(connection, stream.stream, events[0].seq, events[-1].seq))
        items = []
        batch, sums = _next(batches)
        for event in events:
            while event.seq > batch.last_seq:
                batch, sums = _next(batches)
            key = keys.get(event.chunk, b"")
            if not self._takes(event, key, places):
                continue
            line = as_words(event, stream.name, key, places)
            line["sum"] = sums[event.seq - batch.first_seq]
            if event.seq == batch.last_seq:
                line["batch"] = _batch_words(batch)
            items.append(Item(event.time_ns, self._introduced(line, places)))
        return Page(items, events[-1].seq)

    def state(self, connection: Connection, stream: StreamRow, at: int, after_chunk: int) -> tuple[list[Item], int]:
        """The next residencies after event `at`, each as the store that it would take to have it."""
        if self._head is not None:
            self._head["state_at"] = at
        found, upto = state_page(connection, stream.stream, at, after_chunk)
        time_ns = time_of_state(connection, stream.stream, at)
        places = self._places.get(connection, stream, {one.place for one in found})
        return [
            Item(time_ns, self._introduced(_state_words(stream.name, at, one, places), places))
            for one in found
            if self._wanted.takes_place(places[one.place]) and self._wanted.takes_group(group_index(one.key))
        ], upto

    def _takes(self, event: Event, key: bytes, places: dict[int, PlaceRow]) -> bool:
        if not self._wanted or not event.chunk:
            return True
        return self._wanted.takes_place(places.get(event.place)) and self._wanted.takes_group(group_index(key))

    def _introduced(self, line: dict[str, Any], places: dict[int, PlaceRow]) -> dict[str, Any]:
        """`line`, with what has to be known from here on and was not told yet."""
        if self._head is not None:
            line["slice"], self._head = self._head, None
        if len(self._told) != len(places):
            line["places"] = [
                {"number": row.number, "word": row.word} | place_words(row)
                for row in places.values()
                if row.number not in self._told
            ]
            self._told.update(places)
        return line


def _next(batches: Any) -> tuple[BatchRow, tuple[int, ...]]:
    batch: BatchRow = next(batches)
    return batch, unpack_sums(batch.sums)


def _batch_words(batch: BatchRow) -> dict[str, Any]:
    return {
        "first_seq": batch.first_seq,
        "epoch": batch.epoch,
        "time_ns": batch.time_ns,
        "uptime_ns": batch.uptime_ns,
        "handed_out": batch.handed_out,
        "chain": batch.chain.hex(),
    }


def _state_words(stream: str, at: int, one: StateRow, places: dict[int, PlaceRow]) -> dict[str, Any]:
    return {
        "stream": stream,
        "seq": at,
        "state": True,
        "time": clock.iso(one.opened_ns),
        "time_ns": one.opened_ns,
        "kind": "chunk_stored",
        "key": one.key.hex(),
        **place_words(places[one.place]),
        **stored_words(one.flags),
        "opened_seq": one.opened_seq,
        "metadata": metadata_words(one.key, one.packed),
    }
