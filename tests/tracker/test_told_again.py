"""What consumers are told after resets and restarts that follow each other too soon."""

import pytest

from eventstore.domain.place import Place
from eventstore.domain.policy import PolicyTable, TierPolicy
from tests.consumer import Credit, Router
from tests.scheduler import removed, stored
from tests.tracker.process import Process, Start, words
from tests.tracker.samples import A0, A1, B0, FOUR, LATE, LORA, PRIMARY, STORE_ONLY, TIER_A, Sample
from tracker.settings import Announce, Settings

#: Storage that a reset empties, and that says nothing when it removes: memory does not know what is there.
EMPTIED = PolicyTable({STORE_ONLY: TierPolicy(survives_reset=False)})


def credits(place: Place, *samples: Sample) -> set[Credit]:
    """What a consumer must credit for these at `place`."""
    return {(place.medium.value, place.ownership, one) for sample in samples for one in sample.hashes}


def believed(*processes: Process) -> set[Credit]:
    """What a router believes that read all that they handed out and noticed nothing else."""
    router = Router()
    for process in processes:
        router.read(words(process.handed_out))
    return set(router.believed)


def record_and_store(process: Process, place: Place, *samples: Sample, flag: bool = False) -> None:
    """Each sample described and stored, in one call."""
    for sample in samples:
        sample.record_store(process.tracker)
    process.take(stored(place, *(sample.key for sample in samples), flag=flag))


@pytest.mark.parametrize("announce", ["full", "closes"])
def test_what_a_reset_ended_is_told_though_another_reset_follows_at_once(start: Start, announce: Announce) -> None:
    process = start(Settings(announce=announce, policies=EMPTIED))
    record_and_store(process, STORE_ONLY, A0, B0)
    process.drain()
    process.tracker.reset()
    process.tracker.reset()
    process.drain()
    assert believed(process) == set()


def test_what_a_reset_ended_is_told_though_another_reset_follows_before_its_turn(start: Start) -> None:
    process = start(Settings(policies=EMPTIED, survivors_a_call=1))
    record_and_store(process, STORE_ONLY, A0, A1, FOUR, LORA)
    process.drain()
    process.tracker.reset()
    process.settle()
    process.take()
    process.tracker.reset()
    process.drain()
    assert believed(process) == set()


@pytest.mark.parametrize("announce", ["full", "closes"])
def test_what_is_stored_again_after_a_reset_keeps_its_credit(start: Start, announce: Announce) -> None:
    # B0 shares a hash with A0, which the reset ended, and comes before that is told.
    process = start(Settings(announce=announce, policies=EMPTIED))
    record_and_store(process, STORE_ONLY, A0)
    process.drain()
    process.tracker.reset()
    record_and_store(process, STORE_ONLY, B0)
    process.drain()
    assert believed(process) == credits(STORE_ONLY, B0)


def test_a_process_that_dies_before_it_told_all_that_a_reset_ended_leaves_it_to_the_next(start: Start) -> None:
    first = start(Settings(policies=EMPTIED, survivors_a_call=1), tail_ns=0)
    record_and_store(first, STORE_ONLY, A0, A1, LORA)
    first.drain()
    first.tracker.reset()
    first.settle()
    # One of the three is told; what these calls bring is committed and handed out, and so is the reset.
    first.take(stored(TIER_A, A0.key, flag=True))
    first.settle()
    first.take(stored(TIER_A, A1.key, flag=True))
    first.settle()
    assert believed(first) & credits(STORE_ONLY, LORA)
    first.kill()
    second = start(Settings(policies=EMPTIED), tail_ns=0)
    second.drain()
    assert believed(first, second) == credits(TIER_A, A0, A1)


def test_what_ended_at_a_place_that_announced_removals_only_later_is_told(start: Start) -> None:
    process = start(Settings(policies=PolicyTable({LATE: TierPolicy(survives_reset=False)})))
    record_and_store(process, LATE, A0)
    record_and_store(process, LATE, LORA, flag=True)
    process.tracker.reset()
    process.drain()
    assert believed(process) == set()


def test_survivors_of_an_older_reset_do_not_pass_for_those_of_the_latest(start: Start) -> None:
    process = start()
    process.gate.shut()
    process.tracker.reset()
    process.tracker.reset()
    process.tracker.retelling.line_up(1, list)
    assert not process.tracker.retelling.wait_lined_up(timeout_s=0.05)
    process.gate.open()
    assert process.tracker.retelling.wait_lined_up(timeout_s=20)


def test_a_survivor_removed_before_its_turn_is_believed_gone(start: Start) -> None:
    first = start()
    record_and_store(first, TIER_A, A0, A1, LORA, flag=True)
    first.drain()
    first.take(removed(PRIMARY, A0.key))
    first.drain()
    first.kill()
    second = start(Settings(survivors_a_call=1), tail_ns=0)
    second.take(removed(TIER_A, LORA.key))
    second.drain()
    assert believed(first, second) == believed(second) == credits(TIER_A, A0, A1)
