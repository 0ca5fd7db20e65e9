"""Makes a store as large as wanted: a day of an engine with three places, four crashes, clean ends, resets and a gap.

    python -m tests.benchmarks.big_store --events 1000000 --store /tmp/big.db

Everything comes from a seed, and all of it goes in through the append statement, as a writer's batches do.
"""

import argparse
import random
from collections import deque
from pathlib import Path

from sqlalchemy import Connection

from eventstore.domain.events import (
    METADATA_ONLY,
    PLACEHOLDER,
    REMOVAL_EXPECTED,
    REPEATED,
    UNMATCHED,
    End,
    Kind,
    PlaceRow,
    Reason,
    StreamBody,
    encode_body,
    locality_flag,
    pack_fact,
)
from eventstore.domain.metadata import shape
from eventstore.domain.place import PRIMARY, Locality, Medium, Place
from eventstore.log.append import Step, append, build
from eventstore.log.stream import begin_epoch, create_stream
from eventstore.storage.codec import Described, Header, place_sum
from eventstore.storage.store import open_for_writing

STREAM = "big"
#: The day that the store is about: 2026-03-01 in UTC.
DAY_NS, BEGINS_NS = 86_400_000_000_000, 1_772_323_200_000_000_000
EVENTS_A_BATCH, EVENTS_A_STEP = 4_096, 64
CHUNKS_A_PREFIX = 64

CPU, NVME, SHARED = 1, 2, 3
PLACES = [
    PlaceRow(CPU, PRIMARY, "CPU"),
    PlaceRow(NVME, Place(Medium.STORAGE, "nvme0"), "STORAGE", flagged=True),
    PlaceRow(SHARED, Place(Medium.STORAGE, "shared"), "STORAGE"),
]
_SUMS = {row.number: place_sum(row.place.medium.value, row.place.ownership, row.word) for row in PLACES}

_AT_NVME = locality_flag(Locality.LOCAL) | REMOVAL_EXPECTED
_AT_SHARED = locality_flag(Locality.REMOTE)
_DESCRIBED = pack_fact(Kind.CHUNK_DESCRIBED)
_FULL = shape(32, 1, 16, 16, 0, "full_attention")
_TOKENS = _FULL.pack_tokens.pack(*range(1, 17))
_GROUPS = (bytes(4), bytes(3) + b"\1")


class BigStore:
    """One stream's life, batch by batch: new chunks and returning ones; a full CPU pool evicts any chunk, so that times
    there spread widely, a full disk its oldest."""

    def __init__(self, connection: Connection, events: int, seed: int = 1) -> None:
        self._connection, self._rnd, self._events = connection, random.Random(seed), events
        row = create_stream(connection, STREAM)
        self._stream, self._chain, self.seq, self._epoch = row.stream, row.chain, 0, 0
        self._places = PLACES
        self._steps: list[Step] = []
        self._facts: list[int] = []
        self._beside: list[Described] = []
        self._batch_first = 1
        self._cpu_room, self._nvme_room = max(events // 100, 64), max(events // 33, 128)
        self._cpu: list[int] = []
        self._nvme: deque[int] = deque()
        self._on_nvme: set[int] = set()
        self._gone: list[int] = []
        self._placeholder: set[int] = set()
        self._parent: bytes | None = None

    def run(self) -> None:
        """Append everything."""
        resets = {self._events * part // 12 for part in range(1, 12)}
        starts = {0} | {self._events * part // 9 + 7 for part in range(1, 9)}
        stream_events = sorted(resets | starts | {self._events // 2})
        while self.seq < self._events:
            while stream_events and self.seq >= stream_events[0]:
                due = stream_events.pop(0)
                if due in starts:
                    self._begin_epoch()
                elif due in resets and due != self._events // 2:
                    self._reset()
                else:
                    self._gap()
            self._step()
            if self.seq - self._batch_first + 1 >= EVENTS_A_BATCH:
                self._send()
        self._send()

    def _now(self) -> int:
        return BEGINS_NS + DAY_NS * self.seq // self._events

    def _fact(self, fact: int) -> None:
        self._facts.append(fact)
        self.seq += 1

    def _end_step(self) -> None:
        if self._facts:
            first = self.seq - len(self._facts) + 1
            self._steps.append(Step(first, self._now(), self._facts))
            self._facts = []

    def _send(self) -> None:
        self._end_step()
        if not self._steps:
            return
        now = self._steps[-1].time_ns
        header = Header(self._batch_first, self.seq, self._epoch, now, now - BEGINS_NS, max(self._batch_first - 65, 0))
        batch = build(self._stream, header, self._chain, self._steps, self._beside, self._places, _SUMS)
        append(self._connection, batch)
        self._chain, self._batch_first = batch.chain, self.seq + 1
        self._steps, self._beside, self._places = [], [], []

    def _of_stream(self, kind: Kind, body: StreamBody) -> None:
        self._end_step()
        self._beside.append(Described(self.seq + 1, 0, encode_body(body)))
        self._fact(pack_fact(kind))
        self._end_step()

    def _begin_epoch(self) -> None:
        if self._epoch and self._epoch % 2 == 0:
            self._of_stream(Kind.EPOCH_ENDED, StreamBody(epoch=self._epoch, reason="shutdown"))
        self._send()
        self._epoch = begin_epoch(self._connection, self._stream)
        body = StreamBody(
            epoch=self._epoch,
            boot_id=f"{self._epoch:032x}",
            host="gpu0",
            pid=100 + self._epoch,
            ends=[End(CPU, Reason.ENGINE_RESTART)] if self._epoch > 1 else [],
            announce="full",
        )
        self._of_stream(Kind.EPOCH_STARTED, body)
        self._forget_cpu()

    def _reset(self) -> None:
        self._of_stream(Kind.CACHE_RESET, StreamBody(epoch=self._epoch, ends=[End(CPU, Reason.CACHE_RESET)]))
        self._forget_cpu()

    def _gap(self) -> None:
        self._of_stream(Kind.GAP, StreamBody(epoch=self._epoch, lost=17, since_ns=self._now(), reason="overflow"))

    def _forget_cpu(self) -> None:
        self._gone += self._cpu
        self._cpu.clear()

    def _step(self) -> None:
        end = self.seq + EVENTS_A_STEP
        rnd = self._rnd
        while self.seq < end:
            if self._gone and rnd.random() < 0.5:
                chunk = self._any_of(self._gone)
            else:
                chunk = self._new_chunk()
            self._store(chunk)
        self._end_step()

    def _any_of(self, chunks: list[int]) -> int:
        at = self._rnd.randrange(len(chunks))
        chunks[at], chunks[-1] = chunks[-1], chunks[at]
        return chunks.pop()

    def _new_chunk(self) -> int:
        rnd, chunk = self._rnd, self.seq + 1
        hash_bytes = rnd.randbytes(32)
        if rnd.random() < 0.1:
            # A group with a sliding window: never described.
            self._placeholder.add(chunk)
            self._beside.append(Described(chunk, chunk, b"", hash_bytes + _GROUPS[1]))
        else:
            header = _FULL.without_parent if self._parent is None else _FULL.with_parent + self._parent
            self._beside.append(Described(chunk, chunk, header + _TOKENS, hash_bytes + _GROUPS[0]))
            self._parent = None if rnd.random() < 1 / CHUNKS_A_PREFIX else hash_bytes
        self._fact(chunk << 20 | _DESCRIBED)
        return chunk

    def _store(self, chunk: int) -> None:
        rnd, placeholder = self._rnd, PLACEHOLDER if chunk in self._placeholder else 0
        if len(self._cpu) >= self._cpu_room:
            evicted = self._any_of(self._cpu)
            self._gone.append(evicted)
            self._fact(pack_fact(Kind.CHUNK_REMOVED, METADATA_ONLY if rnd.random() < 0.01 else 0, CPU, evicted))
        self._fact(pack_fact(Kind.CHUNK_STORED, placeholder, CPU, chunk))
        self._cpu.append(chunk)
        if chunk not in self._on_nvme:
            if len(self._nvme) >= self._nvme_room:
                oldest = self._nvme.popleft()
                self._on_nvme.discard(oldest)
                self._fact(pack_fact(Kind.CHUNK_REMOVED, _AT_NVME & ~REMOVAL_EXPECTED, NVME, oldest))
            self._fact(pack_fact(Kind.CHUNK_STORED, _AT_NVME | placeholder, NVME, chunk))
            self._nvme.append(chunk)
            self._on_nvme.add(chunk)
            if rnd.random() < 0.05:
                self._fact(pack_fact(Kind.CHUNK_STORED, _AT_SHARED | placeholder, SHARED, chunk))
        elif rnd.random() < 0.05:
            self._fact(pack_fact(Kind.CHUNK_STORED, _AT_NVME | placeholder | REPEATED, NVME, chunk))
        if rnd.random() < 0.001 and self._gone and self._gone[0] not in self._on_nvme:
            self._fact(pack_fact(Kind.CHUNK_REMOVED, UNMATCHED | locality_flag(Locality.LOCAL), NVME, self._gone[0]))


def make(store: Path, events: int) -> None:
    """A store with about `events` events at `store`."""
    engine, _ = open_for_writing(str(store))
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            BigStore(connection, events).run()
    finally:
        engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.big_store", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    make(given.store, given.events)


if __name__ == "__main__":
    main()
