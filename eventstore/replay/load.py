"""Brings an exported stream into a store, all of it or nothing; changes with what an export must prove.

The log is made again batch by batch, through the same statement that writes it. A batch's checksums and its hash are
computed anew and must be those of the file, and every line must be what an export of it would say: so the stream that
is there in the end is the one that was exported, `verify` passes, and another export gives the same bytes.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import BadInput, ExportError
from eventstore.domain.events import REMOVAL_EXPECTED, Event, Kind, PlaceRow, pack_fact
from eventstore.log.append import Step, append, build
from eventstore.log.chunks import numbers_of
from eventstore.log.read import BODIED
from eventstore.log.stream import StreamRow, begin_epoch, create_stream, find_stream
from eventstore.replay.lines import SCHEMA_VERSION
from eventstore.replay.parse import BatchWords, Fact, Line, parse_fact, parse_line, parse_place
from eventstore.replay.words import as_words
from eventstore.storage.codec import Described, Header, checksum, event_rows, place_sum

#: What stands on a line beside its event.
_BESIDE = ("sum", "batch", "slice", "places")


class Loaded(msgspec.Struct, frozen=True):
    """What was brought in."""

    stream: str
    events: int
    batches: int
    last_seq: int
    chain: str


class _Numbered(msgspec.Struct, frozen=True):
    """A line with its number in the file, as bytes, as words, and as the log has it."""

    number: int
    raw: bytes
    line: Line
    fact: Fact


def load(
    connection: Connection, file: Iterable[bytes], name: object, progress: Callable[[int], None] = lambda _: None
) -> Loaded:
    """Append the stream that the lines of `file` hold. The caller's transaction makes it true, or nothing of it.

    `name` is what errors call the file; `progress` is told the bytes read. Raises `ExportError` with the first line
    that is not as it was written, `BadInput` for a stream that is there already.
    """
    loading = _Loading(connection, name)
    number = size = 0
    for number, raw in enumerate(file, 1):
        loading.number = number
        try:
            loading.take(raw)
        except ExportError:
            raise
        except BadInput as error:
            raise ExportError(name, number, str(error)) from None
        size += len(raw)
        progress(size)
    return loading.end()


class _Loading:
    """A file on its way in."""

    def __init__(self, connection: Connection, name: object) -> None:
        self.number = 0
        self._connection, self._name = connection, name
        self._stream: StreamRow | None = None
        self._last: int | None = None
        self._seq = self._batches = 0
        self._chain = b""
        self._places: dict[int, PlaceRow] = {}
        self._numbers: dict[tuple[str, str | None], int] = {}
        self._place_sums: dict[int, int] = {}
        self._new_places: list[PlaceRow] = []
        self._flagged: set[int] = set()
        self._waiting: list[_Numbered] = []

    def take(self, raw: bytes) -> None:
        """The next line."""
        if not raw.endswith(b"\n"):
            raise BadInput("is cut off")
        line = parse_line(raw)
        if self._stream is None:
            self._begin(line)
        elif line.slice is not None or line.stream != self._stream.name:
            raise BadInput("begins another slice; a file holds one")
        if line.seq != self._seq + 1:
            raise BadInput(f"has seq {line.seq} where {self._seq + 1} follows")
        self._seq = line.seq
        for words in line.places:
            self._learn(parse_place(words))
        self._waiting.append(_Numbered(self.number, raw, line, parse_fact(line, raw, self._numbers)))
        if line.batch is not None:
            self._append(line.batch)

    def end(self) -> Loaded:
        """No line follows."""
        if self._stream is None:
            raise ExportError(self._name, 1, "holds no line")
        if self._last is not None and self._seq != self._last:
            raise ExportError(
                self._name,
                self.number,
                f"is the last line, with seq {self._seq}: cut off, the slice goes to {self._last}",
            )
        if self._waiting:
            whole = self._waiting[0].line.seq - 1
            raise ExportError(
                self._name,
                self.number,
                f"ends within a batch, which goes on after seq {self._seq}; export up to {whole}",
            )
        return Loaded(self._stream.name, self._seq, self._batches, self._seq, self._chain.hex())

    def _begin(self, line: Line) -> None:
        head = line.slice
        if head is None:
            raise BadInput("does not say what slice it begins; `kvledger replay --form log` does")
        if head.schema_version > SCHEMA_VERSION:
            raise BadInput(f"is of version {head.schema_version}, this kvledger reads up to {SCHEMA_VERSION}")
        if head.first != 1 or head.state_at is not None or head.media or head.groups:
            raise BadInput("begins a part of a stream; only all of it, from seq 1 on, can be imported")
        if find_stream(self._connection, line.stream) is not None:
            raise BadInput(f"stream {line.stream!r} has events already in this store; import into another one")
        self._stream = create_stream(self._connection, line.stream)
        self._last, self._chain = head.last, self._stream.chain

    def _learn(self, row: PlaceRow) -> None:
        at = (row.place.medium.value, row.place.ownership)
        if row.number in self._places or at in self._numbers:
            raise BadInput(f"makes place {row.number} known twice")
        self._places[row.number], self._numbers[at] = row, row.number
        self._place_sums[row.number] = place_sum(*at, row.word)
        self._new_places.append(row)

    def _append(self, words: BatchWords) -> None:
        lines, self._waiting = self._waiting, []
        if words.first_seq != lines[0].line.seq:
            raise BadInput(f"ends a batch from seq {words.first_seq}, which begins at {lines[0].line.seq}")
        stream = self._stream
        assert stream is not None  # noqa: S101 - the first line has made it
        if lines[0].fact.kind is Kind.EPOCH_STARTED:
            begin_epoch(self._connection, stream.stream)
        events, beside = self._events(stream, lines)
        header = Header(words.first_seq, self._seq, words.epoch, words.time_ns, words.uptime_ns, words.handed_out)
        batch = build(stream.stream, header, self._chain, _steps(events), beside, self._new_places, self._place_sums)
        if batch.chain.hex() != words.chain:
            raise BadInput("ends a batch whose hash is not that of what it holds and of all before it")
        append(self._connection, batch)
        self._chain, self._new_places = batch.chain, []
        self._batches += 1

    def _events(self, stream: StreamRow, lines: list[_Numbered]) -> tuple[list[Event], list[Described]]:
        """What the lines of a batch hold, each found to be as it was written."""
        keys = {one.fact.key for one in lines if one.fact.key}
        known = numbers_of(self._connection, stream.stream, keys) if keys else {}
        events, beside = [], []
        for one in lines:
            fact, seq = one.fact, one.line.seq
            chunk = known.get(fact.key, 0) if fact.key else 0
            named = b""
            if fact.key and not chunk:
                if fact.kind is not Kind.CHUNK_DESCRIBED:
                    raise ExportError(self._name, one.number, "names a chunk that no line before describes")
                known[fact.key] = chunk = seq
                named = fact.key
            described = Described(seq, chunk, fact.body, named) if fact.kind in BODIED else None
            if described is not None:
                beside.append(described)
            event = Event(seq, one.line.time_ns, fact.kind, fact.flags, fact.place, chunk, fact.body)
            self._check(one, event, described)
            if fact.kind is Kind.CHUNK_STORED and fact.flags & REMOVAL_EXPECTED and fact.place not in self._flagged:
                self._flagged.add(fact.place)
                self._new_places.append(msgspec.structs.replace(self._places[fact.place], flagged=True))
            events.append(event)
        return events, beside

    def _check(self, one: _Numbered, event: Event, beside: Described | None) -> None:
        fact = pack_fact(event.kind, event.flags, event.place, event.chunk)
        (row,) = event_rows([(event.seq, event.time_ns, (fact,))])
        if checksum(row, self._place_sums.get(event.place, 0), beside) != one.line.sum:
            raise ExportError(self._name, one.number, "is not what was written: its checksum differs")
        # What the line says once more, such as the time in words, must be so too.
        given: dict[str, Any] = msgspec.json.decode(one.raw)
        said = {name: value for name, value in given.items() if name not in _BESIDE}
        words = as_words(event, one.line.stream, one.fact.key, self._places)
        if msgspec.json.encode(said) == msgspec.json.encode(words):
            return
        made = msgspec.json.decode(msgspec.json.encode(words))
        for field in [*said, *made]:
            if field not in said or field not in made or said[field] != made[field]:
                raise ExportError(self._name, one.number, f"is not what was written: {field!r} contradicts the rest")


def _steps(events: list[Event]) -> list[Step]:
    steps = []
    for time_ns, some in groupby(events, key=lambda event: event.time_ns):
        same = list(some)
        facts = [pack_fact(event.kind, event.flags, event.place, event.chunk) for event in same]
        steps.append(Step(same[0].seq, time_ns, facts))
    return steps
