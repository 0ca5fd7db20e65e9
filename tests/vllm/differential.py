"""Upstream's tracker and ours, called alike: what ours publishes and holds is upstream's but for named improvements.

`python -m tests.vllm.differential` runs it with the vLLM that is first on the path, and prints what it found.
"""

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from sqlalchemy import Engine
from vllm.distributed.kv_events import BlockRemoved, BlockStored

from eventstore.storage.store import open_for_writing
from tests.vllm.expected import Expected, check_published
from tests.vllm.explain import Explanation
from tests.vllm.held import Standing
from tests.vllm.improvements import Improvement
from tests.vllm.rules import Rules
from tests.vllm.sequences import Record, Sequence, Take, sequences
from tests.vllm.upstream import HAS_METADATA_ONLY, VERSION, KVEvent, Upstream, event_of, group_specs, record, use_hashes
from tracker.publish import Publisher
from tracker.session import Session, this_process
from tracker.settings import Publish, Settings
from tracker.tracker import Tracker

COMMIT_S = 60.0


class Pair:
    """One of each, over one sequence."""

    def __init__(self, sequence: Sequence, session: Session) -> None:
        use_hashes(integers=sequence.integer_hashes)
        self._sequence, self._session = sequence, session
        self._ours: Tracker = session.tracker
        self._theirs = Upstream(self_describing=sequence.self_describing)
        self._rules = Rules(sequence)
        self._explanation, self._standing = Explanation(self._rules), Standing(self._rules)
        self._published: list[KVEvent] = []
        self._expected: Expected = []
        self._late = 0

    def run(self) -> Counter[Improvement]:
        """Make the calls; returns what each improvement did. Raises `Unexplained`, or another `AssertionError`."""
        for call in self._sequence.calls:
            before, lapsed = self._theirs.holds(), []
            if isinstance(call, Record):
                self._explanation.record(call, before)
                record(self._theirs.tracker, call)
                record(self._ours, call)
                lapsed = self._rules.record(call)
            elif isinstance(call, Take):
                self._take(call)
            else:
                self._theirs.tracker.reset()
                self._ours.reset()
                self._explanation.reset()
                # What survived is told once it was read from the log; then it comes with the next call.
                assert self._session.settle(COMMIT_S)
            ours = _holds(self._ours)
            assert ours == self._rules.holds(), f"after {call}"
            self._standing.check(call, before, ours, self._theirs.holds(), lapsed)
        return self._finish()

    def _take(self, call: Take) -> None:
        before = self._theirs.holds()
        events = [event_of(raw) for raw in call.events]
        expected = self._explanation.take(call.events, self._theirs.take_events(events), before)
        published = self._ours.take_events(events)
        if self._sequence.publish == "at_once":
            check_published(published, expected)
            return
        self._expected += expected
        self._published += published

    def _finish(self) -> Counter[Improvement]:
        counts = self._explanation.counts + self._standing.counts
        if self._sequence.publish == "after_commit":
            # What is published by now came no earlier than it may; the rest comes once it is in the log.
            waits = self._ours.outbox.waiting
            self._take(Take(()))
            assert self._session.settle(COMMIT_S)
            self._take(Take(()))
            check_published(self._published, self._expected)
            counts[Improvement.COMMITTED_FIRST] += bool(waits)
        return counts


def _holds(tracker: Tracker) -> dict[bytes, Any]:
    return {key: held.active_residencies for key, held in tracker.pending.items()}


class Ledger:
    """A store with a stream for each sequence."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._streams = engine, 0

    def check(self, sequence: Sequence) -> Counter[Improvement]:
        """Run a sequence on a stream of its own."""
        self._streams += 1
        session = Session(
            self._engine,
            this_process(f"sequence {self._streams}"),
            Settings(
                self_describing=sequence.self_describing,
                publish=sequence.publish,
                announce=sequence.announce,
                policies=sequence.policy_table(),
                retained_bytes=64 * 2**20 if sequence.retains else 0,
                record_window=sequence.record_window,
                degraded_after_ms=int(COMMIT_S * 1_000),
            ),
            Publisher(
                BlockStored,
                BlockRemoved,
                integer_hashes=sequence.integer_hashes,
                group_specs=group_specs(self_describing=sequence.self_describing),
            ),
        )
        try:
            return Pair(sequence, session).run()
        finally:
            session.abandon()


@contextmanager
def _ledger() -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory(prefix="kvledger-differential-") as folder:
        engine, _ = open_for_writing(str(Path(folder) / "ledger.db"))
        try:
            yield Ledger(engine)
        finally:
            engine.dispose()


def compare(count: int, publish: Publish, seed_: int) -> Counter[Improvement]:
    """Compare the two over `count` sequences; returns what each improvement did in all of them."""
    found: Counter[Improvement] = Counter()
    with _ledger() as ledger:

        @seed(seed_)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(sequences(publish, metadata_only=HAS_METADATA_ONLY))
        def run(sequence: Sequence) -> None:
            found.update(ledger.check(sequence))

        run()
    return found


def main() -> None:
    """Compare, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.vllm.differential", description=__doc__)
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--publish", choices=("at_once", "after_commit"), default="at_once")
    parser.add_argument("--seed", type=int, default=None)
    given_ = parser.parse_args()
    chosen = random.randrange(2**32) if given_.seed is None else given_.seed
    found = compare(given_.sequences, given_.publish, chosen)
    said = {"vllm": VERSION, "sequences": given_.sequences, "publish": given_.publish, "seed": chosen}
    print(json.dumps(said | {"improvements": {one.name: found[one] for one in Improvement}}))


if __name__ == "__main__":
    main()
