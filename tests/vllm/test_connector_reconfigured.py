"""One store through an engine's reconfigurations: nothing is believed of an engine that was another."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from vllm.distributed.kv_events import KVCacheEvent

from tests.vllm.engine import Engine, Truth
from tests.vllm.kv_stream import believed, read_stream
from tests.vllm.ledgers import CPU, Where, assert_sound, ends, held, resident
from tests.vllm.models import TOKENS_PER_BLOCK, Model
from tests.vllm.workload import batches

FS: Where = ("STORAGE", None)
NVME0: Where = ("STORAGE", "nvme0")


@dataclass
class Life:
    """What the log said when an engine had started, what a router that reads all lives believed then, and what the
    managers held when it had served."""

    survivors: dict[Where, set[bytes]]
    ended: Counter[tuple[str, str | None, str]]
    believed: set[Where]
    truth: Truth


@dataclass
class Lives:
    """One engine after the other over the same store and the same folders: with two tiers; without one of them; with
    another block size; and as it was before that."""

    store: Path
    both: Life
    one: Life
    other: Life
    again: Life


def _settings(model: Model, folder: Path) -> Engine:
    fs = {"type": "fs", "root_dir": str(folder / "fs"), "enable_kv_events": True, "n_read_threads": 1}
    nvme0 = fs | {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "owner": "nvme0"}
    return Engine(
        model,
        cpu_chunks=40,
        tiers=[fs, nvme0 | {"root_dir": str(folder / "nvme0"), "max_chunks": 100}],
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": {"store": str(folder / "ledger.db"), "stream": "test"}},
    )


@pytest.fixture(scope="module")
def lives(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    folder = tmp_path_factory.mktemp("reconfigured")
    store = folder / "ledger.db"
    told: list[KVCacheEvent] = []

    def live(settings: Engine, seed: int) -> Life:
        before = ends(store) if store.exists() else Counter()

        def places(events: list[KVCacheEvent]) -> set[Where]:
            return {(medium, owner) for medium, owner, _ in believed(told + events)}

        with settings as engine, read_stream(engine.replay_endpoint) as stream:
            engine.settle()
            survivors, ended = resident(store), ends(store) - before
            stream.read_until(lambda events: places(events) == set(survivors))
            believed_then = places(stream.events)
            for prompts in batches(seed, requests=16):
                engine.generate(prompts, tokens=2)
            truth = engine.truth()
            stream.read_until(lambda events: places(events) == set(resident(store)))
            told.extend(stream.events)
        return Life(survivors, ended, believed_then, truth)

    both = _settings(llama, folder)
    one = replace(both, tiers=both.tiers[:1])
    other = replace(one, tokens_per_block=2 * TOKENS_PER_BLOCK)
    return Lives(store, live(both, 1), live(one, 2), live(other, 3), live(one, 4))


def test_what_was_at_a_removed_tier_ends_and_the_rest_survives(lives: Lives) -> None:
    then = lives.both.truth
    assert lives.one.ended[*NVME0, "tier_removed"] == len(then.tiers["nvme0"])
    assert lives.one.survivors == {FS: set(then.tiers["fs"])}
    assert lives.one.believed == {FS}


def test_with_another_block_size_nothing_is_believed_of_before(lives: Lives) -> None:
    assert lives.other.ended == {
        (*CPU, "engine_restart"): len(lives.one.truth.cpu),
        (*FS, "config_changed"): len(lives.one.truth.tiers["fs"]),
    }
    assert (lives.other.survivors, lives.other.believed) == ({}, set())


def test_back_at_the_first_block_size_nothing_is_believed_of_either(lives: Lives) -> None:
    assert lives.again.ended[*FS, "config_changed"] == len(lives.other.truth.tiers["fs"])
    assert (lives.again.survivors, lives.again.believed) == ({}, set())


def test_what_each_engine_stored_itself_is_believed(lives: Lives) -> None:
    # The files of the first engines lie there still, and their chunks were not stored again.
    now = held(lives.again.truth, {"fs": FS})
    old = lives.one.truth.tiers["fs"]
    assert resident(lives.store)[CPU] == now[CPU]
    assert resident(lives.store)[FS] == now[FS] - old
    assert_sound(lives.store)
