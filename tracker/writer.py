"""The writer thread: numbers, encodes and commits what the engine thread offers; changes with how a batch is made.

It alone writes. Whatever goes wrong with the store ends here: it is counted and shown, and never reaches the engine.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable

from sqlalchemy import Connection, Engine

from eventstore.domain import clock
from eventstore.domain.errors import LedgerError, StoreError
from eventstore.domain.events import CHUNK_SHIFT, PLACEHOLDER, Kind, PlaceRow, encode_body, pack_fact
from eventstore.domain.metadata import without_tokens
from eventstore.log.append import Batch, append, build
from eventstore.log.append import Step as LogStep
from eventstore.log.chunks import numbers_of
from eventstore.log.stream import heartbeat
from eventstore.recovery.epoch import Opened
from eventstore.recovery.restore import ended_by, residents
from eventstore.storage.codec import Described, Header, place_sum
from eventstore.storage.engine import check_in_place
from tracker.index import Chunk
from tracker.outbox import Control, Outbox, Step
from tracker.retell import Retelling

#: Under backlog a batch grows up to this many events: each costs less, and readers see them no later.
MOST_EVENTS_A_BATCH = 4_096
#: How long to wait before a failed batch is sent again: doubled from the first to the last, in seconds.
FIRST_PAUSE, LAST_PAUSE = 0.01, 1.0

_DESCRIBED = pack_fact(Kind.CHUNK_DESCRIBED)
_PLACEHOLDER = PLACEHOLDER << 4


class Writer(threading.Thread):
    """Commits steps until it is closed, fenced out or killed."""

    def __init__(
        self,
        engine: Engine,
        opened: Opened,
        outbox: Outbox,
        retelling: Retelling,
        *,
        store_token_ids: bool = True,
        flush_interval_s: float = 0.0,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(name="kvledger-writer", daemon=True)
        self.last_seq = opened.seq
        self.last_commit_ns = clock.wall_ns()
        self.commits = 0
        self.failures = 0
        #: The last thing that went wrong, for `status`; empty while all is well.
        self.trouble = ""
        self._engine, self._opened, self._outbox, self._retelling = engine, opened, outbox, retelling
        self._store_token_ids = store_token_ids
        self._flush_interval_s = flush_interval_s
        self._warn = warn
        self._heartbeat_every_s = opened.heartbeat_every_ns / 1e9 or None
        self._chain = opened.chain
        self._place_sums = {row.number: _sum_of(row) for row in opened.places}
        self._handed_out = opened.handed_out
        self._seq_of: deque[tuple[int, int]] = deque()
        self._stopping = threading.Event()
        self._idle = threading.Condition()
        self._connection: Connection | None = None

    def told(self, ticket: int) -> None:
        """The step with `ticket` tells of everything up to the opening of the epoch. Before `start` only."""
        self._seq_of.append((ticket, self._opened.seq))

    def run(self) -> None:
        """The thread's life."""
        ending = False
        while not ending and self._outbox.closed_reason is None:
            steps, ending = self._gather()
            if steps:
                self._commit(steps)
        if self._connection is not None:
            self._connection.close()

    def stop(self, deadline_s: float) -> bool:
        """Commit what was offered, then end; gives up at the deadline. Returns whether everything was committed."""
        self._outbox.steps.put(None)
        self.join(deadline_s)
        if self.is_alive():
            self._stopping.set()
            self._outbox.closed_reason = "closed before everything was committed"
        return not self.is_alive() and self._outbox.backlog == 0

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until everything offered is committed, or the writer gave up; returns whether it is all committed."""
        with self._idle:
            self._idle.wait_for(self._is_done, timeout_s)
        return self._outbox.backlog == 0

    def _is_done(self) -> bool:
        return self._outbox.closed_reason is not None or not self._outbox.backlog

    def _gather(self) -> tuple[list[Step], bool]:
        """The next steps for one batch, and whether the end was reached. Waits for the first one only, and no longer
        than until the next heartbeat is due."""
        steps: list[Step] = []
        count = 0
        while count < MOST_EVENTS_A_BATCH:
            try:
                step = self._outbox.steps.get(block=not steps, timeout=self._heartbeat_every_s)
            except queue.Empty:
                if not steps:
                    self._beat()
                break
            if step is None:
                return steps, True
            steps.append(step)
            count += step.count
            if len(steps) == 1 and self._flush_interval_s:
                self._stopping.wait(self._flush_interval_s)
            if any(control.survivors_for for control in step.controls):
                break
        return steps, False

    def _beat(self) -> None:
        try:
            heartbeat(self._connected(), self._opened.stream, self._opened.epoch, clock.wall_ns())
        except StoreError as error:
            self._note_failure(error)
            self._disconnect()

    def _commit(self, steps: list[Step]) -> None:
        batch: Batch | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                connection = self._connected()
                check_in_place(connection)
                if batch is None:
                    batch = self._encode(connection, steps)
                append(connection, batch)
                break
            except StoreError as error:
                # Out of reach for now: drop the connection, wait, send the same batch again.
                self._note_failure(error)
                self._disconnect()
                if self._stopping.wait(pause) or self._outbox.closed_reason is not None:
                    return
                pause = min(pause * 2, LAST_PAUSE)
            except LedgerError as error:
                # Fenced out, or the log is not what we left: nothing that we could append would be true.
                self._give_up(str(error))
                return
            except Exception as error:  # noqa: BLE001 - a defect of ours must not take the engine down either
                self._give_up(f"internal error: {error!r}")
                return
        if self.trouble:
            self.trouble = ""
            self._warn("the store takes commits again")
        self._committed(batch, steps)

    def _note_failure(self, error: StoreError) -> None:
        """Count every failure; say the first of a row, so that a retry loop floods no log."""
        self.failures += 1
        if not self.trouble:
            self._warn(f"{error}; events go on in memory, and are logged once the store takes them")
        self.trouble = str(error)

    def _give_up(self, why: str) -> None:
        self.trouble = why
        self._outbox.closed_reason = why
        self._warn(f"{why}; nothing more is logged")
        self._disconnect()
        with self._idle:
            self._idle.notify_all()

    def _committed(self, batch: Batch, steps: list[Step]) -> None:
        self._chain, self.last_seq = batch.chain, batch.header.last_seq
        self.last_commit_ns = batch.header.time_ns
        self.commits += 1
        wanted = [control.survivors_for for step in steps for control in step.controls if control.survivors_for]
        for step in steps:
            step.committed = True
            self._outbox.committed_events += step.count
        for generation in wanted:
            self._load_survivors(generation)
        with self._idle:
            self._idle.notify_all()

    def _load_survivors(self, generation: int) -> None:
        """Read what a reset left. The batch is split after a reset, so the views stand exactly there."""
        try:
            connection = self._connected()
            survivors = list(residents(connection, self._opened.stream))
            ended = ended_by(connection, self._opened.stream, self.last_seq)
            self._retelling.line_up_reset(generation, survivors, ended)
        except StoreError as error:
            self._note_failure(error)
            self._disconnect()
            self._retelling.give_up(generation)

    def _connected(self) -> Connection:
        if self._connection is None:
            # Each append is one statement and so its own transaction: fewer waits for the GIL.
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except StoreError as error:
                self.trouble = str(error)

    def _handed(self) -> int:
        """The seq handed out so far, from the ticket that the engine thread last handed out."""
        ticket = self._outbox.handed_ticket
        while self._seq_of and self._seq_of[0][0] <= ticket:
            self._handed_out = self._seq_of.popleft()[1]
        return self._handed_out

    def _encode(self, connection: Connection, steps: list[Step]) -> Batch:
        """Give every event its seq and every chunk its number. Numbers stay with the chunks in memory."""
        numbers = self._known_numbers(connection, steps)
        first = seq = self.last_seq + 1
        beside: list[Described] = []
        log_steps = []
        new_places = []
        for step in steps:
            facts: list[int] = []
            new_places += step.places
            for control in step.controls:
                if control.kind is not Kind.CACHE_RESET:
                    seq = self._control(control, facts, beside, seq)
            for key, chunk, packed in step.described:
                seq = self._describe(key, chunk, packed, numbers, facts, beside, seq)
            for run in step.runs:
                code = run.code
                for key, chunk in zip(run.keys, run.chunks, strict=True):
                    if not chunk.number:
                        chunk.number = numbers.get(key, 0)
                        if not chunk.number:
                            # Named for the first time: described as it was when the event was taken in.
                            packed = b"" if code & _PLACEHOLDER else chunk.packed
                            seq = self._describe(key, chunk, packed, numbers, facts, beside, seq)
                facts += [chunk.number << CHUNK_SHIFT | code for chunk in run.chunks]
                seq += len(run.chunks)
            for control in step.controls:
                if control.kind is Kind.CACHE_RESET:
                    seq = self._control(control, facts, beside, seq)
            log_steps.append(LogStep(seq - len(facts), step.time_ns, facts))
            self._seq_of.append((step.ticket, seq - 1))
        for row in new_places:
            self._place_sums[row.number] = _sum_of(row)
        uptime = clock.steady_ns() - self._opened.opened_steady_ns
        header = Header(first, seq - 1, self._opened.epoch, steps[-1].time_ns, uptime, self._handed())
        return build(self._opened.stream, header, self._chain, log_steps, beside, new_places, self._place_sums)

    def _known_numbers(self, connection: Connection, steps: list[Step]) -> dict[bytes, int]:
        unknown = {key for step in steps for key, chunk, _ in step.described if not chunk.number}
        for step in steps:
            for run in step.runs:
                unknown.update([key for key, chunk in zip(run.keys, run.chunks, strict=True) if not chunk.number])
        return numbers_of(connection, self._opened.stream, unknown) if unknown else {}

    def _describe(
        self,
        key: bytes,
        chunk: Chunk,
        packed: bytes,
        numbers: dict[bytes, int],
        facts: list[int],
        beside: list[Described],
        seq: int,
    ) -> int:
        number = chunk.number or numbers.get(key, 0)
        body = packed if self._store_token_ids else without_tokens(packed)
        beside.append(Described(seq, number or seq, body, b"" if number else key))
        chunk.number = numbers[key] = number or seq
        facts.append(chunk.number << CHUNK_SHIFT | _DESCRIBED)
        return seq + 1

    def _control(self, control: Control, facts: list[int], beside: list[Described], seq: int) -> int:
        beside.append(Described(seq, 0, encode_body(control.body)))
        facts.append(pack_fact(control.kind))
        return seq + 1


def _sum_of(row: PlaceRow) -> int:
    return place_sum(row.place.medium.value, row.place.ownership, row.word)
