"""The connector in a real engine: log, published events and the managers' own truth are one, whatever the tiers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.consumer import Credit
from tests.vllm.engine import Engine, Truth
from tests.vllm.kv_stream import KVStream, Members, believed, offloaded, read_stream
from tests.vllm.ledgers import CPU, assert_sound, ends, held, last_events, resident, stored_undescribed
from tests.vllm.models import Model
from tests.vllm.workload import batches

PLACES = {"fs": ("STORAGE", None), "nvme0": ("STORAGE", "nvme0")}
REQUESTS = 160
#: The group with a sliding window, which is never described.
WINDOW = bytes(4)


@dataclass(frozen=True)
class Setting:
    """One kind of engine."""

    tiers: tuple[str, ...]
    blocks_per_chunk: int
    model: str
    in_process: bool

    def __str__(self) -> str:
        where = "in-process" if self.in_process else "child"
        return "-".join([*(self.tiers or ("no tier",)), f"{self.blocks_per_chunk} a chunk", self.model, where])


#: Every pair of choices is met once.
SETTINGS = [
    Setting((), 1, "llama", True),
    Setting((), 4, "hybrid", False),
    Setting(("fs",), 4, "llama", True),
    Setting(("fs",), 1, "hybrid", False),
    Setting(("nvme0",), 1, "hybrid", True),
    Setting(("nvme0",), 4, "llama", False),
    Setting(("fs", "nvme0"), 4, "hybrid", True),
    Setting(("fs", "nvme0"), 1, "llama", False),
]


def tier(name: str, folder: Path, chunks: int) -> dict[str, Any]:
    entry = {
        "type": "fs",
        "root_dir": str(folder / name),
        "enable_kv_events": True,
        "locality": "LOCAL",
        "n_read_threads": 2,
        "n_write_threads": 2,
    }
    if name != "fs":
        entry |= {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "max_chunks": chunks}
        entry |= {"owner": name}
    return entry


def engine(setting: Setting, model: Model, folder: Path) -> Engine:
    return Engine(
        model,
        in_process=setting.in_process,
        blocks_per_chunk=setting.blocks_per_chunk,
        cpu_chunks=40 // setting.blocks_per_chunk + 10,
        tiers=[tier(name, folder, 80 // setting.blocks_per_chunk) for name in setting.tiers],
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": {"store": str(folder / "ledger.db"), "stream": "test"}},
    )


def counted(credits: Mapping[Credit, int]) -> dict[Credit, int]:
    """Credits as they can be compared: vLLM's file tier tells of a file as often as it is written, so there only
    whether a block is credited."""
    return {credit: 1 if credit[:2] == PLACES["fs"] else count for credit, count in credits.items()}


@contextmanager
def served(setting: Setting, model: Model, folder: Path) -> Iterator[tuple[Truth, KVStream]]:
    """An engine that has served its requests and rests: its managers' truth, and all that it published."""
    with engine(setting, model, folder) as running, read_stream(running.replay_endpoint) as stream:
        for number, prompts in enumerate(batches(seed=5, requests=REQUESTS)):
            running.answer(prompts, tokens=3)
            if number % 16 == 15 and number < REQUESTS // 4 - 1:
                # Right after the answers, so that transfers to the tiers are still to be told of.
                running.forget_gpu_and_cpu()
        running.settle()
        yield running.truth(), stream


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_what_the_managers_hold_the_log_says_and_a_router_believes(
    setting: Setting, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = tmp_path / "ledger.db"
    with served(setting, request.getfixturevalue(setting.model), tmp_path) as (truth, stream):
        true = held(truth, PLACES)
        assert resident(store) == true
        stream.read_until(lambda events: counted(believed(events)) == counted(Members(events).credits(true)))
        assert counted(believed(stream.events)) == counted(Members(stream.events).credits(true))
        # The first life of a stream says nothing twice, so no store that consumers have to take for an old one.
        undescribed = {
            event["block_hashes"][-1]
            for event in offloaded(stream.events)
            if event["type"] == "BlockStored" and not event["token_ids"]
        }
    assert {key[:-4] for key in stored_undescribed(store)} == undescribed
    assert {key[-4:] for key in stored_undescribed(store)} == ({WINDOW} if setting.model == "hybrid" else set())
    assert set(true) == {CPU, *(PLACES[name] for name in setting.tiers)}
    ended = ends(store)
    assert ended[*CPU, "cache_reset"]
    assert ended[*CPU, "demoted" if setting.tiers else "evicted"]
    assert ("nvme0" in setting.tiers) == bool(
        ended["STORAGE", "nvme0", "evicted"] + ended["STORAGE", "nvme0", "demoted"]
    )
    # A clean end is said, and nothing after it.
    assert last_events(store) == ["epoch_ended"]
    assert_sound(store)
