"""How many events a second the log and its views take in, with many chunks resident."""

import random
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from eventstore.domain.events import CHUNK_SHIFT, PLACE_SHIFT, Kind, PlaceRow
from eventstore.domain.place import PRIMARY
from eventstore.log.append import Batch, Step, append, build
from eventstore.recovery.epoch import open_epoch
from eventstore.storage.codec import Described, Header, place_sum
from eventstore.storage.store import open_for_writing
from tracker.session import this_process

_CODE = 1 << PLACE_SHIFT
EVENTS_A_BATCH = 4_096
EVENTS_A_STEP = 64


class Churn:
    """Batches of a full pool: each store evicts the oldest; half of what is stored was there before."""

    def __init__(self, stream: int, epoch: int, seq: int, chain: bytes, resident: int) -> None:
        self._rnd = random.Random(1)
        self._stream, self._epoch, self._seq, self._chain, self._room = stream, epoch, seq, chain, resident
        self._resident: deque[int] = deque()
        self._gone: list[int] = []
        self._places = [PlaceRow(1, PRIMARY, "CPU")]

    @property
    def is_full(self) -> bool:
        return len(self._resident) >= self._room

    def batch(self, events: int = EVENTS_A_BATCH) -> Batch:
        """The next batch, ready to be sent."""
        first, facts, beside, rnd = self._seq + 1, list[int](), list[Described](), self._rnd
        while len(facts) < events:
            if self.is_full and rnd.random() < 0.5:
                chunk = self._resident.popleft()
                self._gone.append(chunk)
                facts.append(chunk << CHUNK_SHIFT | _CODE | Kind.CHUNK_REMOVED)
                continue
            if self._gone and rnd.random() < 0.5:
                chunk = self._gone.pop(rnd.randrange(len(self._gone)))
            else:
                chunk = first + len(facts)
                beside.append(Described(chunk, chunk, rnd.randbytes(140), rnd.randbytes(36)))
                facts.append(chunk << CHUNK_SHIFT | Kind.CHUNK_DESCRIBED)
            self._resident.append(chunk)
            facts.append(chunk << CHUNK_SHIFT | _CODE | Kind.CHUNK_STORED)
        self._seq += len(facts)
        now = time.time_ns()
        steps = [Step(first + at, now, facts[at : at + EVENTS_A_STEP]) for at in range(0, len(facts), EVENTS_A_STEP)]
        header = Header(first, self._seq, self._epoch, now, now, 0)
        sums = {1: place_sum("CPU", None, "CPU")}
        made = build(self._stream, header, self._chain, steps, beside, self._places, sums)
        self._chain, self._places = made.chain, []
        return made


def measure(resident: int, events: int, *, spinning: bool) -> dict[str, Any]:
    """Events a second, encoding not counted, once `resident` chunks are there."""
    with tempfile.TemporaryDirectory() as name:
        engine, _ = open_for_writing(str(Path(name) / "append.db"))
        with engine.begin() as connection:
            opened = open_epoch(connection, this_process("bench"))
        churn = Churn(opened.stream, opened.epoch, opened.seq, opened.chain, resident)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not churn.is_full:
                append(connection, churn.batch())
            batches = [churn.batch() for _ in range(events // EVENTS_A_BATCH)]
            stop = threading.Event()
            if spinning:
                threading.Thread(target=_spin, args=(stop,), daemon=True).start()
            started = time.perf_counter()
            for batch in batches:
                append(connection, batch)
            took = time.perf_counter() - started
            stop.set()
        engine.dispose()
    count = sum(batch.header.last_seq - batch.header.first_seq + 1 for batch in batches)
    return {"resident": resident, "events": count, "events_a_second": round(count / took)}


def _spin(stop: threading.Event) -> None:
    """An engine thread that computes in Python and never lets go of the GIL by itself."""
    number = 0
    while not stop.is_set():
        for _ in range(1_000):
            number += 1
