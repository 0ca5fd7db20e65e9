"""The writer thread: commits what the engine thread offers; changes with how and when that is done.

It alone writes. Whatever goes wrong with the store ends here: it is counted and shown, and never reaches the engine.
"""

import queue
import threading
from collections.abc import Callable

from sqlalchemy import Connection, Engine

from eventstore.domain import clock
from eventstore.domain.errors import LedgerError, StoreError
from eventstore.log.append import Batch, append
from eventstore.log.stream import heartbeat
from eventstore.recovery.epoch import Opened
from eventstore.recovery.restore import ended_by, residents
from eventstore.storage.engine import check_in_place
from tracker.batching import Batching
from tracker.outbox import Outbox, Step
from tracker.retell import Retelling

#: Under backlog a batch grows up to this many events: each costs less, and readers see them no later.
MOST_EVENTS_A_BATCH = 4_096
#: How long to wait before a failed batch is sent again: doubled from the first to the last, in seconds.
FIRST_PAUSE, LAST_PAUSE = 0.01, 1.0


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
        self._flush_interval_s = flush_interval_s
        self._warn = warn
        self._heartbeat_every_s = opened.heartbeat_every_ns / 1e9 or None
        self._batching = Batching(opened, store_token_ids=store_token_ids)
        self._stopping = threading.Event()
        self._idle = threading.Condition()
        self._connection: Connection | None = None

    def told(self, ticket: int) -> None:
        """The step with `ticket` tells of everything up to the opening of the epoch. Before `start` only."""
        self._batching.told(ticket)

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
                    batch = self._batching.make(connection, steps, self._outbox.handed_ticket)
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
        self._batching.committed(batch)
        self.last_seq = batch.header.last_seq
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
