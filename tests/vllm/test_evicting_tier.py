"""The evicting file tier: its room, what it announces, and how it starts over the folder of a killed engine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob

from tests.vllm.engine import Engine, make_prompts
from tests.vllm.kv_stream import fold, read_stream
from tests.vllm.models import TOKENS_PER_BLOCK, Model
from tracker.vllm.evicting_tier import EvictingFileTier

PREFIX_BLOCKS = 8
PREFIX_TOKENS = PREFIX_BLOCKS * TOKENS_PER_BLOCK
REQUEST = ReqContext(req_id="of-this-test")


def tier_entry(folder: Path, max_chunks: int) -> dict[str, Any]:
    return {
        "type": "EvictingFileTier",
        "module_path": "tracker.vllm.evicting_tier",
        "root_dir": str(folder),
        "max_chunks": max_chunks,
        "owner": "nvme0",
        "enable_kv_events": True,
        "locality": "LOCAL",
        "n_read_threads": 2,
        "n_write_threads": 2,
    }


def key_in(file_name: Path) -> bytes:
    return bytes.fromhex(file_name.stem) + int(file_name.parent.name.partition("_g")[2]).to_bytes(4, "big")


def files_in(folder: Path) -> dict[bytes, Path]:
    return {key_in(path): path for path in folder.rglob("*.bin")}


def test_what_is_announced_adds_up_to_what_lies_on_disk_within_the_room(hybrid: Model, tmp_path: Path) -> None:
    room = 24
    prompts = [make_prompts(seed, PREFIX_BLOCKS, count=1)[0] for seed in range(5)]
    with (
        Engine(hybrid, cpu_chunks=20, tiers=[tier_entry(tmp_path, room)], events=True) as engine,
        read_stream(engine.replay_endpoint) as stream,
    ):
        # The second round brings back some chunks of the first and stores the others again.
        for prompt in prompts + prompts:
            engine.generate([prompt])
            assert len(files_in(tmp_path)) <= room
        files = set(files_in(tmp_path))
        assert len(files) == room
        truth = engine.truth()
        assert truth.tiers == {"nvme0": files}
        assert stream.read_until(lambda events: fold(events, "STORAGE", "nvme0") == files)
        assert fold(stream.events, "CPU", None) == truth.cpu
        ours = [event for event in stream.events if getattr(event, "ownership", None) == "nvme0"]
        assert {type(event) for event in ours} == {BlockStored, BlockRemoved}
        assert {getattr(event, "locality", None) for event in ours} == {"LOCAL"}

        # A reset of the cache is none of the tier's business.
        engine.forget_gpu_and_cpu()
        assert engine.truth().tiers == {"nvme0": files}
        assert set(files_in(tmp_path)) == files


def test_an_engine_takes_up_the_folder_of_one_that_was_killed(llama: Model, tmp_path: Path) -> None:
    old, kept, cut_off = (make_prompts(seed, PREFIX_BLOCKS, count=1) for seed in (11, 12, 13))
    first_life = Engine(llama, in_process=False, blocks_per_chunk=4, tiers=[tier_entry(tmp_path, 64)])
    with first_life as engine:
        engine.generate(old)
        of_old = engine.truth().tiers["nvme0"]
        before = engine.generate(kept)
        of_kept = engine.truth().tiers["nvme0"] - of_old
        engine.answer(cut_off)
        engine.kill()
    assert len(of_kept) == 2
    for key in of_kept:
        newest = max(path.stat().st_mtime_ns for path in files_in(tmp_path).values())
        os.utime(files_in(tmp_path)[key], ns=(newest + 1, newest + 1))
    # What a power cut can leave too: the newest file of all has its name and not its bytes, another has no name yet.
    of_anyone = next(iter(files_in(tmp_path).values()))
    empty = of_anyone.with_stem(of_anyone.stem[:5] + "ab" * 29 + "c")
    empty.touch()
    unfinished = of_anyone.with_suffix(".bin_123456.tmp")
    unfinished.write_bytes(b"half")
    # Nor does it take what is in no place of vLLM's.
    stray = empty.with_stem("not a hash")
    stray.write_bytes(b"of someone else")
    found = {path: key_in(path) for path in tmp_path.rglob("*.bin") if path != stray}

    with (
        Engine(llama, blocks_per_chunk=4, tiers=[tier_entry(tmp_path, 2)], events=True) as engine,
        read_stream(engine.replay_endpoint) as stream,
    ):
        assert engine.truth().tiers == {"nvme0": of_kept}
        assert {path for path in tmp_path.rglob("*.bin*") if path != stray} == {
            path for path, key in found.items() if key in of_kept
        }
        assert stray.exists()
        after = engine.generate(kept)
        assert after[0].cached_tokens == PREFIX_TOKENS
        assert after[0].token_ids == before[0].token_ids
        removed = set(found.values()) - of_kept
        assert removed >= of_old | {key_in(empty)}
        assert stream.read_until(lambda events: removals(events) == removed)
        assert not [event for event in stream.events if isinstance(event, BlockStored) and event.medium == "STORAGE"]


def removals(events: list[KVCacheEvent]) -> set[bytes]:
    return {
        bytes(make_offload_key(bytes(block), event.group_idx or 0))
        for event in events
        if isinstance(event, BlockRemoved) and (event.medium, event.ownership) == ("STORAGE", "nvme0")
        for block in event.block_hashes
    }


class Driven:
    """The tier of a running engine, given jobs by hand between two of the engine's own steps."""

    def __init__(self, tier: EvictingFileTier) -> None:
        self.tier = tier
        self._job = 0

    def store(self, *keys: OffloadKey) -> int:
        return self._submit(self.tier.submit_store, keys, is_promotion=False)

    def load(self, *keys: OffloadKey) -> int:
        return self._submit(self.tier.submit_load, keys, is_promotion=True)

    def finish(self) -> dict[int, JobResult]:
        self.tier.drain_jobs()
        return {result.job_id: result for result in self.tier.get_finished_jobs()}

    def held(self) -> list[OffloadKey]:
        return list(self.tier.resident_keys)

    def file(self, key: OffloadKey) -> Path:
        return Path(self.tier.file_mapper.get_file_name(key))

    def _submit(self, submit: Any, keys: tuple[OffloadKey, ...], *, is_promotion: bool) -> int:
        self._job += 1
        submit(TransferJob(self._job, list(keys), np.arange(len(keys), dtype=np.int32), is_promotion, REQUEST))
        return self._job


@pytest.fixture(scope="module")
def tiny_engine(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    tiers = [tier_entry(tmp_path_factory.mktemp("tier"), 2)]
    with Engine(llama, tiers=tiers, events=True) as engine:
        yield engine


@pytest.fixture
def driven(tiny_engine: Engine) -> Driven:
    """A tier with room for two chunks that holds `OLD` and `NEW`, and has told of it."""
    (tier,) = tiny_engine.live_tiers
    assert isinstance(tier, EvictingFileTier)
    driven = Driven(tier)
    driven.finish()
    for key in (OLD, NEW):
        driven.store(key)
        driven.finish()
        tier.lookup(key, REQUEST)
    assert driven.held() == [OLD, NEW]
    list(tier.take_events())
    return driven


OLD, NEW, THIRD, FOURTH, FIFTH = (make_offload_key(bytes([at]) * 32, 0) for at in range(1, 6))


def event(key: OffloadKey, *, removed: bool) -> OffloadingEvent:
    return OffloadingEvent(
        keys=[key],
        medium=Medium.STORAGE,
        removed=removed,
        locality=Locality.LOCAL,
        ownership="nvme0",
        removal_expected=not removed,
    )


def test_the_least_recently_used_chunk_makes_room_and_both_ends_are_told(driven: Driven) -> None:
    assert driven.tier.lookup(OLD, REQUEST) is LookupResult.HIT
    job = driven.store(THIRD)
    # Before the newcomer is written, so that the room is never exceeded; and it is held only once it is written.
    assert not driven.file(NEW).exists()
    assert driven.tier.lookup(THIRD, REQUEST) is LookupResult.MISS
    assert driven.finish()[job].success
    assert driven.held() == [OLD, THIRD]
    assert driven.file(THIRD).stat().st_size == driven.tier.block_size_bytes
    assert list(driven.tier.take_events()) == [event(NEW, removed=True), event(THIRD, removed=False)]


def test_a_touched_prefix_loses_its_end_before_its_head(driven: Driven) -> None:
    driven.tier.touch([OLD, NEW, THIRD], REQUEST)
    driven.store(FOURTH)
    driven.finish()
    assert driven.held() == [OLD, FOURTH]


def test_a_chunk_that_is_being_read_is_passed_over(driven: Driven) -> None:
    load = driven.load(OLD)
    driven.store(THIRD)
    results = driven.finish()
    assert results[load].success
    assert driven.held() == [OLD, THIRD]


def test_a_store_for_which_no_room_can_be_made_is_declined(driven: Driven) -> None:
    loads = [driven.load(OLD, NEW), driven.load(OLD)]
    store = driven.store(THIRD)
    results = driven.finish()
    assert {job: result.success for job, result in results.items()} == {loads[0]: True, loads[1]: True, store: True}
    assert results[store].transfer_bytes == 0
    assert driven.held() == [OLD, NEW]
    assert not driven.file(THIRD).exists()
    assert list(driven.tier.take_events()) == []

    # Both reads are over, so the next one finds room.
    driven.store(THIRD)
    driven.finish()
    assert driven.held() == [NEW, THIRD]


def test_of_a_job_larger_than_the_room_as_much_is_stored_as_fits(driven: Driven) -> None:
    job = driven.store(THIRD, FOURTH, FIFTH)
    result = driven.finish()[job]
    assert (result.success, result.transfer_bytes) == (True, 2 * driven.tier.block_size_bytes)
    assert set(driven.held()) == {THIRD, FOURTH}
    assert not driven.file(FIFTH).exists()


def test_chunks_that_are_being_written_take_room(driven: Driven) -> None:
    for key in (THIRD, FOURTH, FIFTH):
        driven.store(key)
    written = [result.transfer_bytes for _, result in sorted(driven.finish().items())]
    assert written == [driven.tier.block_size_bytes, driven.tier.block_size_bytes, 0]
    assert set(driven.held()) == {THIRD, FOURTH}


def test_a_chunk_is_stored_and_announced_once_while_it_is_held(driven: Driven) -> None:
    driven.store(OLD)
    driven.store(OLD, NEW)
    driven.finish()
    assert list(driven.tier.take_events()) == []
    driven.store(THIRD)
    driven.store(THIRD)
    driven.finish()
    stored = [told for told in driven.tier.take_events() if not told.removed]
    assert stored == [event(THIRD, removed=False)]


def test_a_chunk_that_cannot_be_read_is_given_up(driven: Driven) -> None:
    driven.file(OLD).unlink()
    driven.file(NEW).write_bytes(b"short")
    jobs = [driven.load(OLD), driven.load(NEW)]
    results = driven.finish()
    assert [results[job].success for job in jobs] == [False, False]
    assert driven.held() == []
    assert not driven.file(NEW).exists()
    told = [key for told in driven.tier.take_events() if told.removed for key in told.keys]
    assert sorted(told) == [OLD, NEW]


def test_of_a_store_that_fails_half_way_what_was_written_is_held(driven: Driven) -> None:
    # A file lies where a folder would have to be made.
    unwritable = make_offload_key(bytes([6]) * 32, 0)
    in_the_way = driven.file(unwritable).parent
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    job = driven.store(THIRD, unwritable)
    assert not driven.finish()[job].success
    assert driven.held() == [THIRD]
    assert [told for told in driven.tier.take_events() if not told.removed] == [event(THIRD, removed=False)]


def test_a_room_for_nothing_is_refused(llama: Model, tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="max_chunks is 0: an evicting tier needs room"),
        Engine(llama, tiers=[tier_entry(tmp_path, 0)]),
    ):
        pass
