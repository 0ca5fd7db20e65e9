"""Holds a process against the model: memory, log, fold and views; changes with what there is to compare."""

from typing import Any

from sqlalchemy import Connection, Engine

from eventstore.domain.events import (
    METADATA_ONLY,
    PLACEHOLDER,
    REMOVAL_EXPECTED,
    REPEATED,
    UNMATCHED,
    Event,
    Kind,
    Reason,
)
from eventstore.domain.metadata import unpack
from eventstore.domain.residency import Fold
from eventstore.log.chunks import key_of
from eventstore.log.read import events
from eventstore.log.stream import one_stream, places_of
from eventstore.views.residency import residency
from tests.tracker.model import Model
from tests.tracker.process import STREAM
from tests.tracker.samples import BY_KEY, SAMPLES
from tests.tracker.world import Fact
from tracker.tracker import Tracker

_KINDS = {
    "described": Kind.CHUNK_DESCRIBED,
    "stored": Kind.CHUNK_STORED,
    "removed": Kind.CHUNK_REMOVED,
    "confirmed": Kind.RESIDENCY_CONFIRMED,
    "closed": Kind.RESIDENCY_CLOSED,
    "reset": Kind.CACHE_RESET,
    "started": Kind.EPOCH_STARTED,
    "ended": Kind.EPOCH_ENDED,
}
_FLAGS = {
    Kind.CHUNK_STORED: {"removal_expected": REMOVAL_EXPECTED, "repeated": REPEATED, "placeholder": PLACEHOLDER},
    Kind.CHUNK_REMOVED: {"metadata_only": METADATA_ONLY, "unmatched": UNMATCHED},
}


def check_memory(tracker: Tracker, model: Model) -> None:
    """What the tracker answers from memory is what the model says."""
    held = {key: holds for key in BY_KEY if (holds := model.holds(key))}
    pending = {key: {(place.medium, place.ownership) for place in holds} for key, holds in held.items()}
    assert {key: set(value.active_residencies) for key, value in tracker.pending.items()} == pending
    assert len(tracker.pending) == len(pending)
    for sample in SAMPLES:
        there = model.held_places(sample.key)
        assert tracker.places(sample.key) == there, sample.name
        assert all(tracker.is_resident(sample.key, place) == (place in there) for place in model.live.places)
        assert tracker.metadata(sample.key) == (sample.metadata if sample.key in model.known else None), sample.name


class Log:
    """A stream's log read as it grows, folded, and held against the model's facts."""

    def __init__(self, reading: Engine) -> None:
        self._engine = reading
        self._fold = Fold()
        self._seq = 0
        self._keys: dict[int, bytes] = {}
        self._described: set[bytes] = set()
        #: The seq of each of the model's facts.
        self._seqs: list[int] = []

    def check(self, model: Model) -> None:
        """Read on, and compare: log and facts, fold and views, views and the model's world."""
        with self._engine.connect() as connection:
            stream = one_stream(connection, STREAM)
            places = {row.number: row.place for row in places_of(connection, stream.stream)}
            for event in events(connection, stream.stream, self._seq):
                self._seq = event.seq
                self._fold.apply(event)
                self._match(connection, stream.stream, event, places, model.committed)
            assert len(self._seqs) == len(model.committed), "the log lacks what was committed"
            world = model.world()
            is_open = {(key, place, self._seqs[stay.opened]) for (key, place), stay in world.open.items()}
            folded = {(self._keys[one.chunk], places[one.place], one.opened_seq) for one in self._fold}
            assert folded == is_open, (folded - is_open, is_open - folded)
            rows = list(residency(connection, stream))
            assert len(rows) == len(is_open)
            shown = {(row.key, row.medium, row.ownership, row.opened_seq) for row in rows}
            assert shown == {(key, place.medium.value, place.ownership, seq) for key, place, seq in is_open}
            lives = {
                (key.hex(), place.medium.value, place.ownership, self._seqs[stay.opened], None, None, stay.stores)
                for (key, place), stay in world.open.items()
            } | {
                (key.hex(), place.medium.value, place.ownership, self._seqs[opened], self._seqs[closed], reason, stores)
                for key, place, opened, closed, reason, stores in world.closed
            }
            assert _lifecycle(connection) == lives

    def _match(
        self, connection: Connection, stream: int, event: Event, places: dict[int, Any], facts: list[Fact]
    ) -> None:
        if event.chunk and event.chunk not in self._keys:
            key = key_of(connection, stream, event.chunk)
            assert key is not None
            assert key not in self._keys.values(), "a chunk has two numbers"
            assert event.kind is Kind.CHUNK_DESCRIBED, "a chunk is named before it is described"
            self._keys[event.chunk] = key
        if event.kind is Kind.CHUNK_DESCRIBED and not event.body:
            return  # named without being described: what the log does of itself
        fact = facts[len(self._seqs)]
        self._seqs.append(event.seq)
        assert _KINDS[fact.kind] is event.kind, (fact, event)
        if event.chunk:
            assert self._keys[event.chunk] == fact.key
        if event.kind is Kind.CHUNK_DESCRIBED:
            assert unpack(fact.key, event.body) == BY_KEY[fact.key].metadata
        if event.place:
            assert places[event.place] == fact.place
        if event.kind is Kind.RESIDENCY_CLOSED:
            assert event.flags == Reason.MISSING
        if event.kind in _FLAGS:
            flags = {name for name, bit in _FLAGS[event.kind].items() if event.flags & bit}
            assert flags == fact.flags, (fact, event)


def _lifecycle(connection: Connection) -> set[tuple[Any, ...]]:
    rows = connection.exec_driver_sql(
        'SELECT "key", medium, ownership, opened_seq, closed_seq, reason, stores FROM lifecycle'
    )
    return {tuple(row) for row in rows}
