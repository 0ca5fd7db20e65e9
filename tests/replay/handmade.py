"""A log written fact by fact, for what no recorded engine does; changes with what an append takes.

Numbers of places: 1 is the primary (CPU); 2 is STORAGE/a, which announces removals; 3 is STORAGE/b, which does not;
4 is CPU/peer, which does not and survives a reset.
"""

from pathlib import Path
from types import TracebackType

from sqlalchemy import Engine

from eventstore.domain.events import REMOVAL_EXPECTED, End, Kind, PlaceRow, Reason, StreamBody, encode_body, pack_fact
from eventstore.domain.metadata import Metadata, pack
from eventstore.domain.place import PRIMARY, Medium, Place
from eventstore.log.append import Batch, Step, append, build
from eventstore.log.stream import begin_epoch, create_stream
from eventstore.storage.codec import Described, Header, place_sum
from eventstore.storage.store import open_for_writing

PLACES = (
    PlaceRow(1, PRIMARY, "CPU"),
    PlaceRow(2, Place(Medium.STORAGE, "a"), "STORAGE", flagged=True),
    PlaceRow(3, Place(Medium.STORAGE, "b"), "FS"),
    PlaceRow(4, Place(Medium.CPU, "peer"), "CPU"),
)
CPU, A, B, PEER = 1, 2, 3, 4
SECOND = 1_000_000_000
BEGINS = 1_700_000_000 * SECOND


def key(number: int, group: int = 0) -> bytes:
    """The key of chunk `number`."""
    return number.to_bytes(32, "big") + group.to_bytes(4, "big")


def described(number: int, hashes: int = 1, **more: object) -> bytes:
    """The packed description of chunk `number`: its hashes end with the key's own, one token a hash."""
    members = (*((number * 1_000 + at).to_bytes(32, "big") for at in range(1, hashes)), key(number)[:-4])
    fields = {"parent_block_hash": None, "token_ids": tuple(range(hashes)), "block_size": 1, "group_idx": 0} | more
    return pack(key(number), Metadata(block_hashes=members, **fields))  # type: ignore[arg-type]


class Handmade:
    """A store with one stream, on its first epoch. Facts gather in steps, steps in batches."""

    def __init__(self, path: Path, name: str = "handmade") -> None:
        self.path, self.name = path, name
        self.engine: Engine = open_for_writing(str(path))[0]
        self.seq = self.epoch = 0
        self.now = BEGINS
        self.numbers: dict[bytes, int] = {}
        self._places: list[PlaceRow] = list(PLACES)
        self._steps: list[Step] = []
        self._facts: list[int] = []
        self._beside: list[Described] = []
        with self.engine.begin() as connection:
            row = create_stream(connection, name)
        self.stream, self.chain = row.stream, row.chain
        self.open()

    def __enter__(self) -> "Handmade":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.dispose()

    def open(self, *ends: End) -> int:
        """A process opens the stream; returns the event's seq."""
        with self.engine.begin() as connection:
            self.epoch = begin_epoch(connection, self.stream)
        seq = self.about_stream(Kind.EPOCH_STARTED, StreamBody(epoch=self.epoch, ends=list(ends)))
        self.commit()
        return seq

    def about_stream(self, kind: Kind, body: StreamBody) -> int:
        """An event about the stream."""
        return self._add(pack_fact(kind), Described(self.seq + 1, 0, encode_body(body)))

    def describe(self, chunk: bytes, packed: bytes) -> int:
        """Name `chunk`, or describe it anew."""
        number = self.numbers.get(chunk)
        seq = self.seq + 1
        beside = Described(seq, number or seq, packed, b"" if number else chunk)
        self.numbers[chunk] = number or seq
        return self._add(pack_fact(Kind.CHUNK_DESCRIBED, chunk=number or seq), beside)

    def store(self, chunk: bytes, place: int, flags: int | None = None) -> int:
        """A store, with the flag at the place that announces removals."""
        given = (REMOVAL_EXPECTED if place == A else 0) if flags is None else flags
        return self._add(pack_fact(Kind.CHUNK_STORED, given, place, self.numbers[chunk]))

    def remove(self, chunk: bytes, place: int, flags: int = 0) -> int:
        """A removal."""
        return self._add(pack_fact(Kind.CHUNK_REMOVED, flags, place, self.numbers[chunk]))

    def close(self, chunk: bytes, place: int, reason: int) -> int:
        """A residency that we end ourselves."""
        return self._add(pack_fact(Kind.RESIDENCY_CLOSED, reason, place, self.numbers[chunk]))

    def confirm(self, chunk: bytes, place: int, reason: int = Reason.RESTATED) -> int:
        """A residency that the tier has been asked about, and that is there."""
        return self._add(pack_fact(Kind.RESIDENCY_CONFIRMED, reason, place, self.numbers[chunk]))

    def step(self, passed_ns: int = SECOND) -> None:
        """What comes next comes later."""
        if self._facts:
            self._steps.append(Step(self.seq - len(self._facts) + 1, self.now, self._facts))
            self._facts = []
        self.now += passed_ns

    def commit(self) -> None:
        """One batch of all since the last one."""
        self.step()
        batch = self.batch()
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            append(connection, batch)

    def commit_rest(self) -> None:
        """The same, where there is something left."""
        if self._facts or self._steps:
            self.commit()

    def batch(self) -> Batch:
        """The batch of all since the last one, not yet appended."""
        first = self._steps[0].first_seq
        header = Header(first, self.seq, self.epoch, self._steps[-1].time_ns, first, first - 1)
        sums = {row.number: place_sum(row.place.medium.value, row.place.ownership, row.word) for row in PLACES}
        made = build(self.stream, header, self.chain, self._steps, self._beside, self._places, sums)
        self.chain, self._steps, self._beside, self._places = made.chain, [], [], []
        return made

    def _add(self, fact: int, beside: Described | None = None) -> int:
        self.seq += 1
        self._facts.append(fact)
        if beside is not None:
            self._beside.append(beside)
        return self.seq
