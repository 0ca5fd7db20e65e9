"""From steps to a batch: gives every event its seq and every chunk its number; changes with what a batch is made of.

On the writer's thread, beside an engine thread that wants the GIL: what is done once an event is done by a few calls
over all of them.
"""

from collections import deque
from collections.abc import Iterable

from sqlalchemy import Connection

from eventstore.domain import clock
from eventstore.domain.events import CHUNK_SHIFT, PLACEHOLDER, Kind, PlaceRow, encode_body, pack_fact
from eventstore.domain.metadata import without_tokens
from eventstore.log.append import Batch, build
from eventstore.log.append import Step as LogStep
from eventstore.log.chunks import numbers_of
from eventstore.recovery.epoch import Opened
from eventstore.storage.codec import Described, Header, place_sum
from tracker.index import Chunk
from tracker.outbox import Control, Step

_DESCRIBED = pack_fact(Kind.CHUNK_DESCRIBED)
_PLACEHOLDER = PLACEHOLDER << 4


class Batching:
    """Makes the batches of one epoch. Numbers stay with the chunks in memory."""

    def __init__(self, opened: Opened, *, store_token_ids: bool) -> None:
        #: What the log reaches, and the chain value there.
        self.last_seq = opened.seq
        self.chain = opened.chain
        self._opened, self._store_token_ids = opened, store_token_ids
        self._place_sums = {row.number: _sum_of(row) for row in opened.places}
        self._handed_out = opened.handed_out
        #: By ticket of a step, oldest first: the seq up to which consumers are told once it is handed out.
        self._tells: deque[tuple[int, int]] = deque()

    def told(self, ticket: int) -> None:
        """The step with `ticket` tells of everything up to the opening of the epoch."""
        self._tells.append((ticket, self._opened.seq))

    def committed(self, batch: Batch) -> None:
        """`batch` is in the log; the next one continues it."""
        self.last_seq, self.chain = batch.header.last_seq, batch.chain

    def make(self, connection: Connection, steps: list[Step], handed_ticket: int) -> Batch:
        """The batch of `steps`. `handed_ticket`: that of the last step that is handed out."""
        numbers = self._known_numbers(connection, steps)
        seq = self.last_seq + 1
        beside: list[Described] = []
        log_steps: list[LogStep] = []
        new_places: list[PlaceRow] = []
        for step in steps:
            facts: list[int] = []
            new_places += step.places
            for control in step.controls:
                if control.kind is not Kind.CACHE_RESET:
                    _control(control, facts, beside, seq)
            self._describe(step.described, numbers, facts, beside, seq)
            for run in step.runs:
                code, chunks = run.code, run.chunks
                for key, chunk in [(k, c) for k, c in zip(run.keys, chunks, strict=True) if not c.number]:
                    chunk.number = numbers.get(key, 0)
                    if not chunk.number:
                        # Named for the first time: described as it was when the event was taken in.
                        packed = b"" if code & _PLACEHOLDER else chunk.packed
                        self._describe([(key, chunk, packed)], numbers, facts, beside, seq)
                facts += [chunk.number << CHUNK_SHIFT | code for chunk in chunks]
            for control in step.controls:
                if control.kind is Kind.CACHE_RESET:
                    _control(control, facts, beside, seq)
            log_steps.append(LogStep(seq, step.time_ns, facts))
            seq += len(facts)
            self._tells.append((step.ticket, seq - 1))
        for row in new_places:
            self._place_sums[row.number] = _sum_of(row)
        while self._tells and self._tells[0][0] <= handed_ticket:
            self._handed_out = self._tells.popleft()[1]
        uptime = clock.steady_ns() - self._opened.opened_steady_ns
        header = Header(self.last_seq + 1, seq - 1, self._opened.epoch, steps[-1].time_ns, uptime, self._handed_out)
        stream = self._opened.stream
        return build(stream, header, self.chain, log_steps, beside, new_places, self._place_sums)

    def _known_numbers(self, connection: Connection, steps: list[Step]) -> dict[bytes, int]:
        unknown = {key for step in steps for key, chunk, _ in step.described if not chunk.number}
        for step in steps:
            for run in step.runs:
                unknown.update([key for key, chunk in zip(run.keys, run.chunks, strict=True) if not chunk.number])
        return numbers_of(connection, self._opened.stream, unknown) if unknown else {}

    def _describe(
        self,
        described: Iterable[tuple[bytes, Chunk, bytes]],
        numbers: dict[bytes, int],
        facts: list[int],
        beside: list[Described],
        first: int,
    ) -> None:
        """Add descriptions to a step whose first seq is `first`."""
        whole = self._store_token_ids
        for seq, (key, chunk, packed) in enumerate(described, first + len(facts)):
            body = packed if whole else without_tokens(packed)
            number = chunk.number or numbers.get(key, 0)
            if number:
                beside.append(Described(seq, number, body))
            else:
                number = numbers[key] = seq
                beside.append(Described(seq, seq, body, key))
            chunk.number = number
            facts.append(number << CHUNK_SHIFT | _DESCRIBED)


def _control(control: Control, facts: list[int], beside: list[Described], first: int) -> None:
    beside.append(Described(first + len(facts), 0, encode_body(control.body)))
    facts.append(pack_fact(control.kind))


def _sum_of(row: PlaceRow) -> int:
    return place_sum(row.place.medium.value, row.place.ownership, row.word)
