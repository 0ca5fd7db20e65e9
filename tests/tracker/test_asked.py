"""Survivors whose tier is still being asked, when a reset, a store or a description comes before the answer."""

from pathlib import Path

import pytest

from eventstore.domain.policy import PolicyTable, TierPolicy
from tests.consumer import Router
from tests.scheduler import removed, stored
from tests.tracker import seen
from tests.tracker.process import Process, Start, words
from tests.tracker.samples import A0, A1, B0, LORA, PRIMARY, TIER_B, WIDE0, WINDOW0, Sample
from tests.tracker.tier import Tier
from tracker.settings import Settings

EMPTIED = PolicyTable({TIER_B: TierPolicy(announces_removals=True, survives_reset=False)})


def store_and_die(start: Start, *samples: Sample, described: bool = True, times: int = 1) -> Process:
    """A process that stores `samples` at TIER_B, has handed out what it said of it, and dies."""
    process = start()
    for sample in samples if described else ():
        sample.record_store(process.tracker)
    for _ in range(times):
        process.take(stored(TIER_B, *(sample.key for sample in samples), flag=described))
    process.drain()
    # One more commit, which says that those before were handed out.
    process.take(removed(PRIMARY, WINDOW0.key))
    process.drain()
    process.kill()
    return process


def ask(start: Start, settings: Settings | None = None) -> tuple[Process, Tier]:
    """The next process. It asks TIER_B's tier, which has not answered yet."""
    tier = Tier()
    process = start(settings, checks={str(TIER_B): tier.check}, checked=frozenset({str(TIER_B)}), tail_ns=0)
    process.settle()
    process.take()
    return process, tier


def answer(process: Process, tier: Tier, *missing: Sample) -> None:
    """The tier answers, and all that follows from it is handed out."""
    tier.answer(frozenset(sample.key for sample in missing))
    process.session.checker.join()
    process.drain()


def believed(*processes: Process) -> dict[int, int]:
    """By hash, what a router credits at TIER_B that read all and noticed nothing else."""
    router = Router()
    for process in processes:
        router.read(words(process.handed_out))
    return {block: count for (medium, owner, block), count in router.believed.items() if owner == TIER_B.ownership}


@pytest.mark.parametrize("missing", [(), (A0,)])
def test_an_answer_about_what_a_reset_has_ended_is_not_logged(
    store: Path, start: Start, missing: tuple[Sample, ...]
) -> None:
    first = store_and_die(start, A0)
    second, tier = ask(start, Settings(policies=EMPTIED))
    second.tracker.reset()
    answer(second, tier, *missing)
    assert believed(first, second) == {}
    assert seen.log(store)[-2:] == ["epoch_started", "cache_reset"]


def test_a_store_again_before_the_answer_keeps_no_family_waiting(start: Start) -> None:
    first = store_and_die(start, A0)
    second, tier = ask(start)
    second.take(stored(TIER_B, A0.key, flag=True))
    answer(second, tier, A0)
    assert second.tracker.is_quiet
    assert believed(first, second) == dict.fromkeys(A0.hashes, 1)


def test_a_description_is_not_the_tiers_word(store: Path, start: Start) -> None:
    first = start()
    first.take(stored(TIER_B, A0.key, flag=True))
    first.drain()
    first.kill()
    second, tier = ask(start)
    A0.record_store(second.tracker)
    second.take()
    answer(second, tier, A0)
    assert seen.lives(store) == ["a0 at STORAGE/b: missing"]
    assert believed(first, second) == {}


def test_a_missing_survivor_told_before_the_answer_is_removed_once(start: Start) -> None:
    # Stored three times where no removal is announced. The live event of window0, which has the same hash, makes it be
    # told again, as one store.
    first = store_and_die(start, WIDE0, described=False, times=3)
    second, tier = ask(start)
    second.take(stored(TIER_B, WINDOW0.key))
    answer(second, tier, WIDE0)
    assert believed(first, second) == {WINDOW0.own_hash: 1}


def test_a_removal_that_waits_for_its_family_does_not_count_as_told(start: Start) -> None:
    # One family a call: those of a1 and lora come first, and the process dies before a0's removal is handed out.
    first = store_and_die(start, A0, B0, A1, LORA)
    second, tier = ask(start, Settings(survivors_a_call=1))
    tier.answer(frozenset({A0.key}))
    second.session.checker.join()
    for sample in (A0, B0, A1):
        second.take(stored(PRIMARY, sample.key))
        second.settle()
    second.kill()
    third = start(Settings(announce="closes"), tail_ns=0)
    third.drain()
    assert believed(first, second, third) == dict.fromkeys([*B0.hashes, *A1.hashes, *LORA.hashes], 1)
