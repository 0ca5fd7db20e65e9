"""Tracker, writer thread, log, kills and recoveries against plain dicts, in any order of calls.

KVLEDGER_MACHINE_EXAMPLES sets how many runs there are; the default takes about a minute.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import tracker.writer
from eventstore.domain import clock
from eventstore.domain.place import Place
from eventstore.domain.policy import PolicyTable, TierPolicy
from tests import strategies
from tests.scheduler import RawEvent
from tests.tracker.agreement import Log, check_memory
from tests.tracker.fair import Drawn, fair
from tests.tracker.home import Home
from tests.tracker.model import Model, Step
from tests.tracker.process import Process
from tests.tracker.samples import LATE, TIER_B, Sample
from tests.tracker.tier import Tier
from tests.tracker.watchers import LOSES, WATCHERS, Watcher
from tests.tracker.world import Policy
from tracker.settings import Announce, Publish, Settings

EXAMPLES = int(os.environ.get("KVLEDGER_MACHINE_EXAMPLES", "120"))
MS = 1_000_000


class Machine(RuleBasedStateMachine):
    """A stream's life over several processes."""

    home: ClassVar["Home"]
    process: Process

    @initialize(
        policies=st.sampled_from(strategies.POLICY_TABLES),
        retains=st.booleans(),
        step_by_step=st.booleans(),
        tail_ms=st.sampled_from((0, 2_000)),
        announce=strategies.announces,
        publish=strategies.publishes,
        asks=st.booleans(),
    )
    def open_stream(
        self,
        policies: dict[Place, Policy],
        retains: bool,
        step_by_step: bool,
        tail_ms: int,
        announce: Announce,
        publish: Publish,
        asks: bool,
    ) -> None:
        self.home.make_new()
        self.now_ns = 10**12
        self._steady, clock.steady_ns = clock.steady_ns, lambda: self.now_ns
        self._batch = tracker.writer.MOST_EVENTS_A_BATCH
        # One step a batch: then a kill can fall between any two steps, and always at the same.
        tracker.writer.MOST_EVENTS_A_BATCH = 1 if step_by_step else 4_096
        self.step_by_step, self.retains, self.tail_ns = step_by_step, retains, tail_ms * MS
        self.asks = asks
        self.table = PolicyTable({place: TierPolicy(*policy) for place, policy in policies.items()})
        self.model = Model(policies, retains=retains)
        self.watchers = [Watcher(name) for name in WATCHERS]
        self.engine_number = 1
        self.log = Log(self.home.reading)
        self._checked = -1
        self._start(announce, publish)

    def _start(self, announce: Announce, publish: Publish) -> None:
        chosen = Settings(
            announce=announce,
            publish=publish,
            policies=self.table,
            retained_bytes=64 * 2**20 if self.retains else 0,
            degraded_after_ms=10**9,
            survivors_a_call=2,
        )
        self.announce, self.publish = announce, publish
        carries_over = bool(self.model.committed) and announce != "none"
        self.tier = Tier()
        checks = {str(TIER_B): self.tier.check} if self.asks else {}
        self.process = Process(
            self.home.writing,
            chosen,
            checks=checks,
            checked=frozenset(checks),
            tail_ns=self.tail_ns,
            fingerprint={"engine": self.engine_number},
        )
        self.process.gate.shut()
        self.model.start(announce, self.engine_number, TIER_B if self.asks else None)
        self.unanswered = bool(self.model.asked)
        self.last_commit_ns = self.now_ns
        #: Whether what is handed out is the live events alone, so that it can be told beforehand.
        self.exact = not carries_over
        #: Steps whose live events are not handed out yet; those that are, and all that was handed out.
        self.steps: list[Step] = []
        self.expected: list[Any] = []
        self.handed_out: list[Any] = []

    # Calls of the scheduler.

    @rule(sample=strategies.samples)
    def record_store(self, sample: Sample) -> None:
        sample.record_store(self.process.tracker)
        self.model.record(sample, store=True)

    @rule(sample=strategies.samples)
    def record_lookup(self, sample: Sample) -> None:
        sample.record_lookup(self.process.tracker)
        self.model.record(sample, store=False)

    @rule(batch=strategies.batches)
    def take(self, batch: list[Drawn]) -> None:
        self._take(batch)

    @precondition(lambda self: self.model.turns(LATE))
    @rule(sample=strategies.samples)
    def late_place_turns_out_to_announce_removals(self, sample: Sample) -> None:
        self._take([(False, LATE, False, [sample])], turns=True)

    def _take(self, batch: list[Drawn], *, turns: bool = False) -> None:
        events: list[RawEvent] = []
        self.model.take(fair(self.model, batch, events, turns=turns))
        self.steps.append(self.model.pending[-1])
        self._receive(self.process.take(*events))

    def _receive(self, out: list[Any]) -> None:
        for watcher in self.watchers:
            watcher.receive(self.now_ns, out)
        due = []
        while self.steps and (self.publish == "at_once" or not self._waits(self.steps[0])):
            due += self.steps.pop(0).out
        self.expected += due
        self.handed_out += out
        if self.exact:
            assert out == due, f"what happened, as it happened, and nothing else: {due}"

    def _waits(self, step: Step) -> bool:
        return bool(step.facts) and any(step is one for one in self.model.pending)

    @rule(moody=st.booleans())
    def reset(self, moody: bool) -> None:
        before = len(self.model.pending)
        self.process.tracker.reset()
        self.model.reset(self.announce)
        self.steps += self.model.pending[before:]
        self.exact = self.exact and self.announce == "none"
        for watcher in self.watchers:
            watcher.reset(self.announce, drops=watcher.drops(moody))

    @precondition(lambda self: self.unanswered)
    @rule(missing=st.lists(strategies.samples, max_size=3))
    def tier_answers(self, missing: list[Sample]) -> None:
        self._answer(frozenset(sample.key for sample in missing))

    def _answer(self, missing: frozenset[bytes]) -> None:
        self.unanswered = False
        self.tier.answer(missing)
        self.process.session.checker.join()
        # Survivors that are still being lined up come first; once they are, the next call takes up the answer.
        self.commit_all()
        self.model.answer(missing)
        self.steps.append(self.model.pending[-1])
        self._receive(self.process.take())

    # What the writer does meanwhile.

    @rule(ms=st.sampled_from((1, 500, 3_000)))
    def time_passes(self, ms: int) -> None:
        self.now_ns += ms * MS

    @rule()
    def commit_all(self) -> None:
        self.process.gate.open()
        self.process.settle()
        self.process.gate.shut()
        self._committed(len(self.model.pending))

    @precondition(lambda self: self.step_by_step and sum(bool(step.facts) for step in self.model.pending) > 1)
    @rule(data=st.data())
    def commit_some(self, data: st.DataObject) -> None:
        pending = [at for at, step in enumerate(self.model.pending) if step.facts]
        appends = data.draw(st.integers(1, len(pending) - 1))
        self.process.gate.let_through(appends)
        self._committed(pending[appends])

    def _committed(self, steps: int) -> None:
        if any(step.facts for step in self.model.pending[:steps]):
            self.last_commit_ns = self.now_ns
        self.model.commit(steps)

    @rule()
    def drain(self) -> None:
        """All is committed and handed out: consumers believe what is true."""
        if self.unanswered:
            self._answer(frozenset())
        for _ in range(200):
            self.commit_all()
            if self.process.tracker.is_quiet:
                break
            self._take([])
        assert self.process.tracker.is_quiet, "there is always something more to hand out"
        rest = iter(self.handed_out)
        assert all(event in rest for event in self.expected), "a live event is missing, or came in another order"
        world = self.model.world()
        must, may = world.credits(most=False), world.credits(most=True)
        for watcher in self.watchers:
            watcher.check(must, may)

    # Deaths.

    @rule(
        loses=st.integers(0, 5),
        moody=st.booleans(),
        other_engine=st.sampled_from((False, False, False, False, True)),
        announce=strategies.announces,
        publish=strategies.publishes,
    )
    def die_and_recover(
        self, loses: int, moody: bool, other_engine: bool, announce: Announce, publish: Publish
    ) -> None:
        unlogged = self.publish == "at_once" and any(step.facts for step in self.model.pending)
        self._stop(self.process.kill)
        self._recover(loses, moody, other_engine, announce, publish, unlogged)

    @rule(moody=st.booleans(), announce=strategies.announces, publish=strategies.publishes)
    def end_and_start(self, moody: bool, announce: Announce, publish: Publish) -> None:
        self.model.end()
        self._stop(self.process.close)
        self.last_commit_ns = self.now_ns
        self._recover(0, moody, False, announce, publish, False)

    def _stop(self, how: Callable[[], None]) -> None:
        how()
        self.tier.answer()
        self.process.session.checker.join()

    def _recover(
        self, loses: int, moody: bool, other_engine: bool, announce: Announce, publish: Publish, unlogged: bool
    ) -> None:
        for watcher in self.watchers:
            watcher.restart(
                announce,
                drops=watcher.drops(moody),
                loses=loses if watcher.name == LOSES else 0,
                after_ns=self.last_commit_ns - self.tail_ns,
                unlogged=unlogged,
            )
        self.engine_number += other_engine
        self._start(announce, publish)

    # What must be true at all times.

    @invariant()
    def memory_agrees(self) -> None:
        if hasattr(self, "process"):
            check_memory(self.process.tracker, self.model)

    @invariant()
    def log_and_views_agree(self) -> None:
        if hasattr(self, "process") and self._checked != len(self.model.committed):
            self.log.check(self.model)
            self._checked = len(self.model.committed)

    def teardown(self) -> None:
        if not hasattr(self, "process"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.drain()
                self.memory_agrees()
                self.log_and_views_agree()
                self._stop(self.process.kill)
                self.home.check_whole()
        finally:
            self._stop(self.process.end)
            clock.steady_ns, tracker.writer.MOST_EVENTS_A_BATCH = self._steady, self._batch


class TestMachine(Machine.TestCase):  # type: ignore[misc, valid-type]
    """However calls, commits, resets, ends and deaths follow each other, all that can be asked agrees."""

    settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        report_multiple_bugs=False,
    )

    @classmethod
    def setUpClass(cls) -> None:
        Machine.home = Home()

    @classmethod
    def tearDownClass(cls) -> None:
        Machine.home.close()
