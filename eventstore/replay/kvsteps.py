"""The log as the KV events that consumers read, a step at a time; changes with what was published for a fact.

A step is what one call of the tracker logged: the events of one moment within one committed batch, as vLLM publishes
them in one frame. What the tracker repeated (after a restart, after a reset) is not repeated here: a replay's reader
has missed nothing, so an end is told and a survivor stays known.
"""

from bisect import bisect_left

import msgspec
from sqlalchemy import Connection

from eventstore.domain.events import METADATA_ONLY, PLACEHOLDER, REPEATED, UNMATCHED, Event, Kind, PlaceRow, locality_of
from eventstore.domain.key import group_index
from eventstore.domain.kvevents import BlockRemoved, BlockStored, KVEventBatch
from eventstore.domain.place import Locality
from eventstore.log.read import BatchRow, batches_over, page
from eventstore.log.stream import StreamRow
from eventstore.replay.blocks import removed, stored
from eventstore.replay.ends import ENDS, Credited, ended_page
from eventstore.replay.form import Filter, Item, Page, Places
from eventstore.replay.lookup import Lookup, look_up
from eventstore.replay.state import state_page, time_of_state
from eventstore.replay.words import places_in

KVEvents = list[BlockStored | BlockRemoved]


class KVStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step published. `ts` is its time in seconds as vLLM has it, `time_ns` the same exactly.

    `state`: not a step, but a part of what is resident after event `last_seq`, which is the real last seq.
    """

    stream: str
    epoch: int
    first_seq: int
    last_seq: int
    ts: float
    time_ns: int
    events: KVEvents
    state: bool = False

    def frame(self, data_parallel_rank: int | None = None) -> KVEventBatch:
        """The step as the frame that vLLM would publish."""
        return KVEventBatch(self.ts, list(self.events), data_parallel_rank)


class _Gone:
    """Removals that follow each other at one place with one locality: they go out as one event a group."""

    def __init__(self, out: KVEvents, places: dict[int, PlaceRow]) -> None:
        self._out, self._places = out, places
        self._chunks: list[Credited] = []
        self._at: tuple[int, Locality | None] = (0, None)

    def add(self, place: int, one: Credited) -> None:
        if self._at != (place, one.locality):
            self.flush()
            self._at = (place, one.locality)
        self._chunks.append(one)

    def flush(self) -> None:
        """Whatever comes next comes after these."""
        if self._chunks:
            self._out += removed(self._chunks, self._places[self._at[0]])
            self._chunks = []


class KVSteps:
    """KV events by steps. `state_at`: where it goes on with what once began with the state after that event."""

    def __init__(self, wanted: Filter | None = None, state_at: int = 0) -> None:
        self._wanted = wanted or Filter()
        self._places = Places()
        self._state_at = state_at
        #: An end that touched more than one page takes: its seq and the last (chunk, place) told.
        self._resume: tuple[int, tuple[int, int]] | None = None

    def read(self, connection: Connection, stream: StreamRow, after: int, upto: int) -> Page:
        """The next whole steps after event `after`, or a part of what the next event ended."""
        events = page(connection, stream.stream, after, upto=upto)
        if not events:
            return Page([], upto)
        places = self._places.get(connection, stream, places_in(events))
        batches = batches_over(connection, stream.stream, events[0].seq, events[-1].seq)
        if events[0].kind in ENDS:
            return self._ended(connection, stream, events[0], batches[0].epoch, places)
        starts = _step_starts(events, batches)
        events = _whole(events, starts, at_end=events[-1].seq >= upto)
        known = look_up(connection, stream.stream, events, self._state_at)
        items = []
        for start, end, epoch in _steps(starts, len(events), batches, events):
            made = self._step(events[start:end], known, places)
            if made:
                items.append(_item(stream.name, epoch, events[start], events[end - 1].seq, made))
        return Page(items, events[-1].seq)

    def state(self, connection: Connection, stream: StreamRow, at: int, after_chunk: int) -> tuple[list[Item], int]:
        """The next residencies after event `at`, a store each; the first part is there even where it is empty."""
        found, upto = state_page(connection, stream.stream, at, after_chunk)
        places = self._places.get(connection, stream, {one.place for one in found})
        made: KVEvents = [
            stored(one.key, b"" if one.flags & PLACEHOLDER else one.packed, places[one.place], locality_of(one.flags))
            for one in found
            if self._takes(one.key, places[one.place])
        ]
        if not made and after_chunk:
            return [], upto
        self._state_at = at
        time_ns, batches = time_of_state(connection, stream.stream, at), batches_over(connection, stream.stream, at, at)
        epoch = batches[0].epoch if batches else 0
        step = KVStep(stream.name, epoch, at, at, time_ns / 1e9, time_ns, made, state=True)
        return [Item(time_ns, step)], upto

    def _takes(self, key: bytes, place: PlaceRow) -> bool:
        return not self._wanted or (self._wanted.takes_place(place) and self._wanted.takes_group(group_index(key)))

    def _step(self, events: list[Event], known: Lookup, places: dict[int, PlaceRow]) -> KVEvents:
        out: KVEvents = []
        gone = _Gone(out, places)
        for event in events:
            if event.kind is Kind.CHUNK_DESCRIBED:
                if event.seq in known.placeholders:
                    gone.flush()
                    out += self._described(event, known, places)
            elif event.place and self._takes(known.keys[event.chunk], places[event.place]):
                self._tell(event, known, places[event.place], out, gone)
        gone.flush()
        return out

    def _tell(self, event: Event, known: Lookup, place: PlaceRow, out: KVEvents, gone: _Gone) -> None:
        key, ended = known.keys[event.chunk], known.ended.get(event.seq)
        if event.kind is Kind.CHUNK_STORED:
            if not event.flags & REPEATED:
                gone.flush()
                packed = b"" if event.flags & PLACEHOLDER else known.description(event)
                out.append(stored(key, packed, place, locality_of(event.flags)))
            return
        packed = b"" if ended is not None and ended.flags & PLACEHOLDER else known.description(event)
        if event.kind is Kind.CHUNK_REMOVED and _was_published(event, ended):
            gone.add(place.number, Credited(key, packed, locality_of(event.flags), 1))
        elif event.kind is Kind.RESIDENCY_CLOSED and ended is not None:
            gone.add(place.number, Credited(key, packed, locality_of(ended.flags), ended.stores))

    def _described(self, event: Event, known: Lookup, places: dict[int, PlaceRow]) -> KVEvents:
        """What consumers know by a placeholder is told again: its removal, then the full store."""
        out: KVEvents = []
        for number, flags in known.placeholders[event.seq]:
            place, key, locality = places[number], known.keys[event.chunk], locality_of(flags)
            if known.announces(place) and self._takes(key, place):
                out += removed([Credited(key, b"", locality, 1)], place)
                out.append(stored(key, event.body, place, locality))
        return out

    def _ended(
        self, connection: Connection, stream: StreamRow, event: Event, epoch: int, places: dict[int, PlaceRow]
    ) -> Page:
        """The next part of what a restart or a reset ended, each as often as its stores were published."""
        resumed = self._resume is not None and self._resume[0] == event.seq
        after = self._resume[1] if resumed and self._resume is not None else (0, 0)
        found, reached = ended_page(connection, stream.stream, event.seq, after, self._state_at)
        out: KVEvents = []
        by_place: dict[int, list[Credited]] = {}
        for number, one in found:
            if self._takes(one.key, places[number]):
                by_place.setdefault(number, []).append(one)
        for number, some in by_place.items():
            out += removed(some, places[number])
        self._resume = (event.seq, reached) if reached is not None else None
        items = [_item(stream.name, epoch, event, event.seq, out)] if out else []
        return Page(items, event.seq if reached is None else event.seq - 1)


def _was_published(event: Event, ended: object) -> bool:
    # What memory knew not to be there was not published; where the log says that it was, memory did not know of it.
    return not event.flags & METADATA_ONLY and (not event.flags & UNMATCHED or ended is not None)


def _item(stream: str, epoch: int, first: Event, last_seq: int, made: KVEvents) -> Item:
    return Item(first.time_ns, KVStep(stream, epoch, first.seq, last_seq, first.time_ns / 1e9, first.time_ns, made))


def _step_starts(events: list[Event], batches: list[BatchRow]) -> list[int]:
    """Where in `events` a step begins: another moment, another batch, or an end, which goes out by itself."""
    borders = {batch.first_seq for batch in batches}
    starts = [0]
    for at in range(1, len(events)):
        event, before = events[at], events[at - 1]
        if event.time_ns != before.time_ns or event.seq in borders or event.kind in ENDS or before.kind in ENDS:
            starts.append(at)
    return starts


def _whole(events: list[Event], starts: list[int], *, at_end: bool) -> list[Event]:
    """`events` up to the next end, and without a last step that may go on; one that fills a page is parted."""
    for at, event in enumerate(events):
        if event.kind in ENDS:
            return events[:at]
    return events if at_end or len(starts) == 1 else events[: starts[-1]]


def _steps(starts: list[int], count: int, batches: list[BatchRow], events: list[Event]) -> list[tuple[int, int, int]]:
    """(begin, end, epoch) of each step within the first `count` events."""
    firsts = [batch.first_seq for batch in batches]
    begins = starts[: bisect_left(starts, count)]
    return [
        (begin, end, batches[max(0, bisect_left(firsts, events[begin].seq + 1) - 1)].epoch)
        for begin, end in zip(begins, [*begins[1:], count], strict=True)
    ]
