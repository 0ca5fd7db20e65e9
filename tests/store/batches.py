"""Batches made by hand for a stream, without a tracker; changes with what a batch is built from."""

from typing import Any

from sqlalchemy import Connection, Engine

from eventstore.domain.events import Kind, PlaceRow, pack_fact
from eventstore.domain.metadata import Metadata, pack
from eventstore.domain.place import PRIMARY
from eventstore.log.append import Batch, Step, append, build
from eventstore.recovery.epoch import Opened, Opening, open_epoch
from eventstore.storage.codec import Described, Header, place_sum
from tests.scheduler import make_hash, make_key

#: The one place that these batches name.
CPU = PlaceRow(1, PRIMARY, "CPU")
_SUMS = {CPU.number: place_sum(CPU.place.medium.value, CPU.place.ownership, CPU.word)}
_TABLES = ("event", "payload", "chunk", "place", "batch", "open_residency", "closed_residency", "stream", "position")


class Hand:
    """Writes a stream's batches by hand, each continuing the one before that was `done`."""

    def __init__(self, opened: Opened) -> None:
        self.stream, self.epoch = opened.stream, opened.epoch
        self.last_seq, self.chain = opened.seq, opened.chain
        self._place_is_known = bool(opened.places)

    def stores(self, *numbers: int) -> Batch:
        """A batch that describes and stores chunks which are new to the stream, two events a chunk."""
        seq = self.last_seq + 1
        facts: list[int] = []
        beside: list[Described] = []
        for number in numbers:
            key = make_key(make_hash(number))
            body = pack(key, Metadata((make_hash(number),), None, (number, 1, 2, 3), 4, 0, "full_attention"))
            facts.append(pack_fact(Kind.CHUNK_DESCRIBED, chunk=seq))
            facts.append(pack_fact(Kind.CHUNK_STORED, place=CPU.number, chunk=seq))
            beside.append(Described(seq, seq, body, key))
            seq += 2
        return self._build(facts, beside)

    def removal(self, chunk: int) -> Batch:
        """A batch of one event: chunk number `chunk` left the CPU."""
        return self._build([pack_fact(Kind.CHUNK_REMOVED, place=CPU.number, chunk=chunk)], [])

    def _build(self, facts: list[int], beside: list[Described]) -> Batch:
        first = self.last_seq + 1
        header = Header(first, self.last_seq + len(facts), self.epoch, 1_000, 1_000, 0)
        places = [] if self._place_is_known else [CPU]
        return build(self.stream, header, self.chain, [Step(first, 1_000, facts)], beside, places, _SUMS)

    def done(self, batch: Batch) -> Batch:
        """`batch` is in the log: the next one continues it."""
        self.last_seq, self.chain = batch.header.last_seq, batch.chain
        self._place_is_known = True
        return batch


def open_hand(engine: Engine, stream: str = "hand") -> Hand:
    """Open the next epoch of `stream`."""
    with engine.begin() as connection:
        return Hand(open_epoch(connection, Opening(stream)))


def append_alone(engine: Engine, batch: Batch) -> Any:
    """Append as the writer does: one statement that is its own transaction."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        return append(connection, batch)


def content(connection: Connection) -> dict[str, list[Any]]:
    """Every row of every table of the log and the views."""
    return {name: [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")] for name in _TABLES}
