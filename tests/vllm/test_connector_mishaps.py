"""What goes wrong in an engine's life: none of it loses, invents or double-counts a residency."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_events import BlockStored
from vllm.lora.request import LoRARequest

from eventstore.domain.metadata import unpack
from tests.vllm.engine import Engine, Truth, make_prompts
from tests.vllm.kv_stream import KVStream, Members, believed, read_stream
from tests.vllm.ledgers import CPU, assert_sound, ends, held, query, resident
from tests.vllm.models import TOKENS_PER_BLOCK, Model, write_lora
from tracker.vllm.chunk_files import chunk_root

PLACES = {"fs": ("STORAGE", None), "nvme0": ("STORAGE", "nvme0")}
PREFIX_BLOCKS = 8


@dataclass
class Running:
    """An engine with all that it published and logged."""

    engine: Engine
    stream: KVStream
    store: Path
    lora: LoRARequest

    def agree(self) -> Truth:
        """Log, router and managers say the same once the engine rests; what that is."""
        self.engine.settle()
        truth = self.engine.truth()
        true = held(truth, PLACES)
        assert resident(self.store) == true
        self.stream.read_until(lambda events: _counted(believed(events)) == _counted(Members(events).credits(true)))
        assert _counted(believed(self.stream.events)) == _counted(Members(self.stream.events).credits(true))
        return truth


def _counted(credits: Any) -> dict[Any, int]:
    # vLLM's file tier tells of a file as often as it is written.
    return {credit: 1 if credit[:2] == PLACES["fs"] else count for credit, count in credits.items()}


@pytest.fixture(scope="module")
def running(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("mishaps")
    fs = {"type": "fs", "root_dir": str(folder / "fs"), "enable_kv_events": True, "n_read_threads": 1}
    nvme0 = fs | {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "owner": "nvme0"}
    settings = Engine(
        llama,
        cpu_chunks=24,
        tiers=[nvme0 | {"root_dir": str(folder / "nvme0"), "max_chunks": 40}, fs],
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": {"store": str(folder / "ledger.db"), "stream": "test"}},
        llm_arguments={"enable_lora": True, "max_lora_rank": 8, "max_loras": 1},
    )
    lora = LoRARequest("poet", 7, str(write_lora(folder / "poet")))
    with settings as engine, read_stream(engine.replay_endpoint) as stream:
        yield Running(engine, stream, folder / "ledger.db", lora)
    assert_sound(folder / "ledger.db")


def prompt(seed: int) -> list[int]:
    (made,) = make_prompts(seed, PREFIX_BLOCKS, count=1)
    return made


def test_the_adapter_of_a_request_is_in_its_stores_and_in_the_log(running: Running) -> None:
    plain = running.engine.generate([prompt(1)])
    before = running.agree().cpu
    adapted = running.engine.generate([prompt(1)], lora=running.lora)
    keys = running.agree().cpu - before
    # The same tokens, and another prefix: the hashes hold the adapter's name.
    assert len(keys) == PREFIX_BLOCKS
    assert adapted[0].token_ids != plain[0].token_ids
    told = {
        event.block_hashes[-1]: (event.lora_id, event.lora_name)
        for event in running.stream.events
        if isinstance(event, BlockStored) and event.medium != "GPU"
    }
    assert {told[key[:-4]] for key in keys} == {(7, "poet")}
    assert {told[key[:-4]] for key in before} == {(None, None)}
    rows = query(running.store, 'SELECT c."key", p.body FROM chunk AS c JOIN payload AS p USING (stream, chunk)')
    logged = {key: unpack(key, body) for key, body in rows}
    assert {(logged[key].lora_id, logged[key].lora_name) for key in keys} == {(7, "poet")}


def test_a_request_is_aborted_while_its_chunks_are_being_stored(running: Running) -> None:
    scheduler = running.engine.live_connector.connector_scheduler
    request = running.engine.begin(prompt(2), tokens=100)
    while not any(job.is_store for job in scheduler._jobs.values()):
        running.engine.step()
    running.engine.abort(request)
    running.agree()


def test_requests_are_preempted(running: Running) -> None:
    scheduler = running.engine.live_scheduler
    before = scheduler.preemptions
    # Four of them grow to more blocks than the engine has.
    running.engine.generate([prompt(seed) for seed in range(10, 14)], tokens=3 * TOKENS_PER_BLOCK)
    assert scheduler.preemptions > before
    running.agree()


@contextmanager
def no_folder(running: Running) -> Iterator[None]:
    """Nothing can be written to either tier: a file lies where the folder of their chunks was."""
    roots = [chunk_root(tier.file_mapper) for tier in running.engine.live_tiers]
    for root in roots:
        root.rename(root.with_suffix(".away"))
        root.touch()
    try:
        yield
    finally:
        for root in roots:
            root.unlink()
            root.with_suffix(".away").rename(root)


def test_stores_to_the_tiers_fail(running: Running) -> None:
    running.engine.generate([prompt(20)])
    with no_folder(running):
        running.engine.generate([prompt(21)])
    truth = running.agree()
    only_in_memory = truth.cpu - truth.tiers["fs"] - truth.tiers["nvme0"]
    assert len(only_in_memory) == PREFIX_BLOCKS
    assert {query(running.store, "SELECT count(*) FROM gaps")[0]} == {(0,)}


def test_files_are_deleted_behind_the_tiers_backs(running: Running) -> None:
    before = running.agree().cpu
    first = running.engine.generate([prompt(30)])
    deleted = running.agree().cpu - before
    assert len(deleted) == PREFIX_BLOCKS
    running.engine.forget_gpu_and_cpu()
    for tier in running.engine.live_tiers:
        for key in deleted:
            Path(tier.file_mapper.get_file_name(key)).unlink()
    again = running.engine.generate([prompt(30)])
    assert again[0].token_ids == first[0].token_ids
    # The evicting tier told of what it found gone, and both of what was then stored again.
    removed = query(running.store, "SELECT \"key\" FROM lifecycle WHERE ownership = 'nvme0' AND reason IS NOT NULL")
    assert deleted <= {bytes.fromhex(key) for (key,) in removed}
    truth = running.agree()
    assert deleted <= truth.cpu & truth.tiers["fs"] & truth.tiers["nvme0"]


def test_events_that_are_pending_at_a_reset_come_before_it(running: Running) -> None:
    scheduler = running.engine.live_connector.connector_scheduler
    tracker, pending = scheduler._events_tracker, []
    drained = tracker._pending
    tracker._pending = lambda: pending.extend(drained()) or pending
    # Steps until files are being written, of which the next step would tell.
    request = running.engine.begin(prompt(40), tokens=100)
    while not scheduler.manager._jobs:
        running.engine.step()
    running.engine.abort(request)
    running.engine.forget_gpu_and_cpu()
    tracker._pending = drained
    stored = {key for event in pending if not event.removed and event.medium.value == "STORAGE" for key in event.keys}
    assert stored
    truth = running.agree()
    assert stored <= truth.tiers["fs"]
    ((reset,),) = query(running.store, "SELECT max(seq) FROM events WHERE kind = 'cache_reset'")
    seqs = query(running.store, 'SELECT "key", max(seq) FROM events WHERE kind = \'chunk_stored\' GROUP BY "key"')
    assert all(seq < reset for key, seq in seqs if bytes.fromhex(key) in stored - truth.cpu)
    assert ends(running.store)[*CPU, "cache_reset"]
