"""A killed engine and the one that follows it, idle: consumers learn all that they must without any traffic."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from vllm.distributed.kv_events import KVCacheEvent

from tests.consumer import Credit
from tests.vllm.engine import Engine, Truth
from tests.vllm.kv_stream import DEADLINE_S, Members, believed, read_stream
from tests.vllm.ledgers import Where, assert_sound, ends, held, query, resident
from tests.vllm.models import Model
from tests.vllm.workload import batches

PLACES: dict[str, Where] = {"fs": ("STORAGE", None), "nvme0": ("STORAGE", "nvme0")}
HEARTBEAT_MS = 200
DELETED = 3
#: An idle engine takes a step for whatever has been committed or answered since it last looked, and then none.
MOST_STEPS = 150


def engine(model: Model, folder: Path) -> Engine:
    fs = {"type": "fs", "root_dir": str(folder / "fs"), "enable_kv_events": True, "n_read_threads": 2}
    nvme0 = fs | {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "owner": "nvme0"}
    ledger = {"store": str(folder / "ledger.db"), "stream": "test", "heartbeat_ms": HEARTBEAT_MS}
    return Engine(
        model,
        in_process=False,
        blocks_per_chunk=2,
        cpu_chunks=30,
        tiers=[fs, nvme0 | {"root_dir": str(folder / "nvme0"), "max_chunks": 40}],
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": ledger},
    )


def expected(events: list[KVCacheEvent], truth: Truth) -> Counter[Credit]:
    return Members(events).credits(held(truth, PLACES))


def wait_until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not true() and time.monotonic() < give_up:
        time.sleep(HEARTBEAT_MS / 10_000)


@dataclass
class Watch:
    """What SQL says of the stream over time."""

    store: Path

    def state(self, awaited: str) -> str:
        """The stream's state, once it is the awaited one or time is up."""
        wait_until(lambda: self._state() == awaited)
        return self._state()

    def beats(self, count: int) -> None:
        """Wait for so many more heartbeats."""
        seen = {self._beat()}
        wait_until(lambda: seen.add(self._beat()) or len(seen) > count)
        assert len(seen) > count

    def _state(self) -> str:
        ((state,),) = query(self.store, "SELECT state FROM streams")
        return str(state)

    def _beat(self) -> int:
        ((beat,),) = query(self.store, "SELECT heartbeat_ns FROM streams")
        return int(beat)


@dataclass
class First:
    """A life under load, then idle, then killed."""

    truth: Truth
    events: list[KVCacheEvent]
    states: list[str]


@dataclass
class Second:
    """An idle life over the same folders, some files of which were deleted."""

    truth: Truth
    events: list[KVCacheEvent]
    states: list[str]
    steps: int
    steps_at_rest: int


@dataclass
class Lives:
    """Both."""

    store: Path
    first: First
    second: Second


@pytest.fixture(scope="module")
def lives(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    folder = tmp_path_factory.mktemp("lives")
    watch = Watch(folder / "ledger.db")
    first = _first(llama, folder, watch)
    for name in PLACES:
        deleted = {key[:-4].hex() for key in sorted(first.truth.tiers[name])[:DELETED]}
        for path in (folder / name).rglob("*.bin"):
            if path.stem in deleted:
                path.unlink()
    return Lives(watch.store, first, _second(llama, folder, watch, first.events))


def _first(llama: Model, folder: Path, watch: Watch) -> First:
    with engine(llama, folder) as running, read_stream(running.replay_endpoint) as stream:
        for prompts in batches(seed=7, requests=60):
            running.answer(prompts, tokens=2)
        # Nothing steps it from here on but itself.
        stream.read_until(lambda events: set(believed(events)) == set(expected(events, running.truth())))
        truth, state = running.truth(), watch.state("live")
        running.kill()
    return First(truth, stream.events, [state, watch.state("silent")])


def _second(llama: Model, folder: Path, watch: Watch, before: list[KVCacheEvent]) -> Second:
    with engine(llama, folder) as running, read_stream(running.replay_endpoint) as stream:
        truth = running.truth()
        stream.read_until(lambda events: believed(before + events) == expected(before + events, truth))
        state = watch.state("live")
        watch.beats(2)
        steps = running.steps()
        watch.beats(2)
        at_rest = running.steps() - steps
    return Second(truth, stream.events, [state, watch.state("ended")], steps, at_rest)


def test_an_idle_engine_tells_of_everything_that_its_last_requests_set_off(lives: Lives) -> None:
    first = lives.first
    assert set(believed(first.events)) == set(expected(first.events, first.truth))


def test_a_router_that_noticed_no_restart_believes_exactly_what_the_tiers_hold(lives: Lives) -> None:
    events = lives.first.events + lives.second.events
    assert believed(events) == expected(events, lives.second.truth)


def test_a_router_that_forgot_all_at_the_restart_believes_exactly_what_the_tiers_hold(lives: Lives) -> None:
    events = lives.second.events
    assert believed(events) == expected(events, lives.second.truth)


def test_the_log_says_what_the_tiers_hold(lives: Lives) -> None:
    assert resident(lives.store) == held(lives.second.truth, PLACES)
    assert_sound(lives.store)


def test_files_deleted_behind_the_tiers_backs_end_as_missing(lives: Lives) -> None:
    for name, place in PLACES.items():
        assert len(lives.second.truth.tiers[name]) == len(lives.first.truth.tiers[name]) - DELETED
        assert ends(lives.store)[*place, "missing"] == DELETED


def test_sql_tells_a_live_stream_from_a_silent_and_an_ended_one(lives: Lives) -> None:
    assert (lives.first.states, lives.second.states) == (["live", "silent"], ["live", "ended"])


def test_an_idle_engine_stops_once_it_has_told_everything(lives: Lives) -> None:
    assert lives.second.steps_at_rest == 0
    assert 0 < lives.second.steps <= MOST_STEPS
