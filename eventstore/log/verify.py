"""Checks that the log is what was written: checksums, numbering, chain; changes with what a batch covers.

Every event's checksum is computed again from its row, its place, its key and its body; every batch's hash from its
events and the hash before. The first bad seq is named.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import LedgerError
from eventstore.domain.events import (
    CHUNK_SHIFT,
    FLAG_BITS,
    KIND_BITS,
    MOST_PLACES,
    REMOVAL_EXPECTED,
    Kind,
    pack_fact,
)
from eventstore.log.read import BODIED, BatchRow
from eventstore.log.stream import StreamRow
from eventstore.storage import codec

_LEAST = -(2**63)
#: What each part of a fact can be at most. Beyond it the parts run into each other: two rows would be one fact.
_MOST = (2**KIND_BITS - 1, 2**FLAG_BITS - 1, MOST_PLACES, 2 ** (63 - CHUNK_SHIFT) - 1)


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it was written. `seq` is the first event that it concerns."""

    stream: str
    seq: int
    problem: str


class Verified(msgspec.Struct, frozen=True):
    """What one stream's check saw."""

    stream: str
    events: int
    batches: int
    last_seq: int
    chain: str
    findings: list[Finding]


def verify(connection: Connection, stream: StreamRow, progress: Callable[[int], None] = lambda _: None) -> Verified:
    """Check one stream from its floor to its end. `progress` is told the seq reached. Reads only."""
    if not (isinstance(stream.name, str) and isinstance(stream.chain, bytes)):
        return Verified(str(stream.name), 0, 0, 0, "", [Finding(str(stream.name), 1, "the stream's row is damaged")])
    check = _Check(connection, stream)
    try:
        check.run(progress)
    except LedgerError as error:
        check.found(check.next_seq, f"cannot be read: {error}")
    except (ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
        check.found(check.next_seq, f"holds what no event holds: {error}")
    findings = sorted(check.findings, key=lambda finding: finding.seq)
    return Verified(stream.name, check.events, check.batches, stream.last_seq, stream.chain.hex(), findings)


class _Check:
    """One stream under check."""

    def __init__(self, connection: Connection, stream: StreamRow) -> None:
        self._connection, self._stream = connection, stream
        self.findings: list[Finding] = []
        self.events = self.batches = 0
        self.next_seq = stream.floor_seq
        self._chain = codec.first_chain(stream.name)
        self._places: dict[int, tuple[int, bool]] = {}
        self._flagged: set[int] = set()
        self._bodies = self._named = 0
        self._epoch = 0

    def found(self, seq: int, problem: str) -> None:
        self.findings.append(Finding(self._stream.name, max(seq, 1), problem))

    def run(self, progress: Callable[[int], None]) -> None:
        self._read_places()
        after = _LEAST
        while batch := self._next_batch(after):
            if batch.first_seq <= after:
                # Only a damaged tree gives what was not asked for; asked again, it would for ever.
                self.found(self.next_seq, f"the batch from {batch.first_seq} is out of its order")
                break
            after = batch.first_seq
            last_seq = self._in_its_place(batch)
            if last_seq is not None:
                self._check_batch(batch, last_seq)
            self.batches += 1
            progress(self.next_seq - 1)
        self._check_end()

    def _rows(self, statement: str, *more: int) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.exec_driver_sql(statement, (self._stream.stream, *more))]

    def _read_places(self) -> None:
        for number, medium, owner, word, flagged in self._rows(
            "SELECT place, medium, ownership, word, flagged FROM place WHERE stream = ?"
        ):
            if flagged not in (0, 1):
                self.found(self._first_at(number), f"place {number} is marked as no place is")
            if number > 0:
                self._places[number] = (codec.place_sum(medium, owner, word), bool(flagged))
        for number in range(1, len(self._places) + 1):
            if number not in self._places:
                self.found(self._first_at(number), f"place {number} is missing")

    def _first_at(self, place: int) -> int:
        """The first event at a place; the last of all where it has none."""
        ((seq,),) = self._rows("SELECT min(seq) FROM event WHERE stream = ? AND place = ?", place)
        return self._stream.last_seq if seq is None else int(seq)

    def _next_batch(self, after: int) -> BatchRow | None:
        rows = self._rows(
            "SELECT first_seq, last_seq, epoch, time_ns, uptime_ns, handed_out, sums, chain FROM batch"
            " WHERE stream = ? AND first_seq > ? ORDER BY first_seq LIMIT 1",
            after,
        )
        return BatchRow(*rows[0]) if rows else None

    def _in_its_place(self, batch: BatchRow) -> int | None:
        """The batch's last seq, as far as its row can be believed; None where it is not this one's turn.

        A row says how many events it has by both its seqs and its checksums. Where they differ, the seq that does not
        fit what came before is the damaged one.
        """
        first, count = batch.first_seq, len(batch.sums) // 4
        whole = len(batch.sums) == 4 * (batch.last_seq - first + 1)
        if first == self.next_seq:
            if not whole:
                self.found(first, f"the batch says that it ends at {batch.last_seq} and has {count} checksums")
            return batch.last_seq if whole else first + count - 1
        if not whole:
            self.found(batch.last_seq - count + 1, f"the batch says that it begins at {first} and has {count} sums")
            return None
        self.found(min(first, self.next_seq), f"the log goes on with a batch from {first}, not {self.next_seq}")
        return batch.last_seq if first > self.next_seq else None

    def _check_batch(self, batch: BatchRow, last_seq: int) -> None:
        sums = codec.unpack_sums(batch.sums)
        rows, beside, seq = [], [], batch.first_seq
        first_finding = len(self.findings)
        for found, time_ns, kind, flags, place, chunk, body, key, wire in self._read(batch.first_seq, last_seq):
            if found != seq:
                self.found(seq, "the event is missing")
                break
            if not _is_fact(kind, flags, place, chunk):
                self.found(seq, "the event holds what none holds")
                seq += 1
                continue
            bodied, naming = kind in BODIED, kind == Kind.CHUNK_DESCRIBED and chunk == seq
            row = codec.event_rows([(seq, time_ns, (pack_fact(kind, flags, place, chunk),))])[0]
            one = codec.Described(seq, chunk, body or b"", (key or b"") if naming else b"") if bodied else None
            at = seq - batch.first_seq
            if (bodied and body is None) or (naming and key is None):
                self.found(seq, "what the event carries is missing")
            elif at >= len(sums) or codec.checksum(row, self._places.get(place, (0, False))[0], one) != sums[at]:
                self.found(seq, "the event, its place or what it carries is not what was written")
            elif key is not None and wire != codec.signed_wire(key):
                self.found(seq, "the chunk's wire hash is not its key's")
            if kind == Kind.CHUNK_STORED and flags & REMOVAL_EXPECTED:
                self._note_flag(seq, place)
            rows.append(row)
            if one is not None:
                beside.append(one)
                self._bodies += 1
                self._named += naming
            seq += 1
        if seq <= last_seq and len(self.findings) == first_finding:
            self.found(seq, "the event is missing")
        header = codec.Header(*msgspec.structs.astuple(batch)[:6])
        if len(self.findings) == first_finding and codec.chain(self._chain, header, rows, beside) != batch.chain:
            self.found(batch.first_seq, "the batch's hash is not that of what it holds and of the batch before")
        self._chain, self._epoch = batch.chain, batch.epoch
        self.events += seq - batch.first_seq
        self.next_seq = last_seq + 1

    def _read(self, first_seq: int, last_seq: int) -> list[tuple[Any, ...]]:
        return self._rows(
            'SELECT e.seq, e.time_ns, e.kind, e.flags, e.place, e.chunk, p.body, c."key", c.wire FROM event AS e'
            " LEFT JOIN payload AS p ON p.stream = e.stream AND p.chunk = e.chunk AND p.seq = e.seq"
            " LEFT JOIN chunk AS c ON e.kind = 2 AND e.chunk = e.seq AND c.stream = e.stream AND c.chunk = e.chunk"
            " WHERE e.stream = ? AND e.seq BETWEEN ? AND ? ORDER BY e.seq",
            first_seq,
            last_seq,
        )

    def _note_flag(self, seq: int, place: int) -> None:
        if place not in self._flagged:
            self._flagged.add(place)
            if not self._places.get(place, (0, False))[1]:
                self.found(seq, "its place is not marked as one that announces removals, and this store says so")

    def _check_end(self) -> None:
        stream = self._stream
        for number, (_, flagged) in self._places.items():
            if flagged and number not in self._flagged and stream.floor_seq == 1:
                self.found(
                    self._first_at(number), f"place {number} is marked as one that announces removals; no store says so"
                )
        if self.next_seq != stream.last_seq + 1:
            self.found(
                min(self.next_seq, stream.last_seq + 1), f"the stream's row says that the log ends at {stream.last_seq}"
            )
        elif self._chain != stream.chain:
            self.found(stream.last_seq, "the stream's row does not have the last batch's hash")
        if self._epoch != stream.epoch:
            self.found(stream.last_seq, f"the stream's row says epoch {stream.epoch}, the last batch {self._epoch}")
        (last,) = self._rows("SELECT max(seq) FROM event WHERE stream = ?")[0]
        if last is not None and last > stream.last_seq:
            self.found(stream.last_seq + 1, "there are events after the end of the log")
        if not self.findings:
            self._check_nothing_more()

    def _check_nothing_more(self) -> None:
        (first,) = self._rows("SELECT min(seq) FROM event WHERE stream = ?")[0]
        if first is not None and first < self._stream.floor_seq:
            self.found(first, "there are events before the beginning of the log")
        for what, table, expected in (("bodies", "payload", self._bodies), ("chunks", "chunk", self._named)):
            (count,) = self._rows(f"SELECT count(*) FROM {table} WHERE stream = ?")[0]
            if self._stream.floor_seq == 1 and count != expected:
                self.found(self._stream.last_seq, f"the store has {count} {what}, the log's events have {expected}")


def _is_fact(*parts: Any) -> bool:
    return all(type(part) is int and 0 <= part <= most for part, most in zip(parts, _MOST, strict=True))
