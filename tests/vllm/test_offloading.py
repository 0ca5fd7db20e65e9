"""Offloading without a GPU, end to end: an engine answers the same when its prefix comes back from elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.vllm.engine import Answer, Engine, make_prompts
from tests.vllm.models import TOKENS_PER_BLOCK, Model

# Two chunks of four blocks, eight of one.
PREFIX_BLOCKS = 8
PREFIX_TOKENS = PREFIX_BLOCKS * TOKENS_PER_BLOCK


@pytest.fixture(params=["llama", "hybrid"])
def model(request: pytest.FixtureRequest) -> Model:
    chosen = request.getfixturevalue(request.param)
    assert isinstance(chosen, Model)
    return chosen


def assert_same(answers: list[Answer], expected: list[Answer]) -> None:
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in expected]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def cached(answers: list[Answer]) -> list[int]:
    return [answer.cached_tokens for answer in answers]


@pytest.mark.parametrize("blocks_per_chunk", [1, 4])
def test_a_prefix_comes_back_from_the_cpu_pool(model: Model, blocks_per_chunk: int) -> None:
    prompts = make_prompts(seed=1, prefix_blocks=PREFIX_BLOCKS, count=3)
    beginning = prompts[0][: 2 * TOKENS_PER_BLOCK + 5]
    others = make_prompts(seed=2, prefix_blocks=PREFIX_BLOCKS, count=1)
    with Engine(model, blocks_per_chunk=blocks_per_chunk) as engine:
        first = engine.generate(prompts[:1])
        assert cached(first) == [0]
        assert engine.truth().cpu
        computed = engine.generate(prompts[1:])

        # The engine's own pool is empty: what is not computed can only have come from the CPU pool.
        engine.forget_gpu()
        again = engine.generate(prompts)
        assert cached(again)[0] == PREFIX_TOKENS
        assert_same(again, first + computed)

        # Two blocks are still in the engine, so that with four blocks a chunk the load starts inside one.
        engine.forget_gpu_and_cpu()
        expected = engine.generate(prompts[:1])
        assert cached(expected) == [0]
        engine.forget_gpu()
        engine.generate([beginning])
        assert cached(engine.generate([beginning])) == [2 * TOKENS_PER_BLOCK]
        partly = engine.generate(prompts[:1])
        assert cached(partly) == [PREFIX_TOKENS]
        assert_same(partly, first)

        # And another prompt finds nothing, here or there.
        assert cached(engine.generate(others)) == [0]


def test_a_prefix_comes_back_when_the_engine_runs_in_a_process_of_its_own(hybrid: Model) -> None:
    prompts = make_prompts(seed=3, prefix_blocks=PREFIX_BLOCKS, count=1)
    with Engine(hybrid, in_process=False, blocks_per_chunk=4) as engine:
        first = engine.generate(prompts)
        engine.forget_gpu()
        again = engine.generate(prompts)
        assert (cached(first), cached(again)) == ([0], [PREFIX_TOKENS])
        assert_same(again, first)
        held = engine.truth().cpu
    # Two chunks of the group with full attention, and of the other the one that its window still reaches.
    assert sorted(key[-4:] for key in held) == [b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\1"]


@pytest.mark.parametrize("blocks_per_chunk", [1, 4])
@pytest.mark.parametrize("evicting", [False, True], ids=["fs", "evicting"])
def test_a_prefix_comes_back_from_a_storage_tier_in_this_life_and_the_next(
    model: Model, blocks_per_chunk: int, evicting: bool, tmp_path: Path
) -> None:
    tier = {"type": "fs", "root_dir": str(tmp_path), "n_read_threads": 2, "n_write_threads": 2}
    name = "fs"
    if evicting:
        name = "nvme0"
        tier |= {
            "type": "EvictingFileTier",
            "module_path": "tracker.vllm.evicting_tier",
            "max_chunks": 64,
            "owner": name,
        }
    prompts = make_prompts(seed=4, prefix_blocks=PREFIX_BLOCKS, count=2)
    life = Engine(model, blocks_per_chunk=blocks_per_chunk, tiers=[tier])
    with life as engine:
        first = engine.generate(prompts[:1])
        stored = engine.truth()
        assert cached(first) == [0]
        assert stored.cpu
        assert stored.tiers == {name: stored.cpu}

        # Engine and CPU pool are empty: what is not computed can only have come from the tier, through the pool.
        engine.forget_gpu_and_cpu()
        assert engine.truth().cpu == frozenset()
        again = engine.generate(prompts[:1])
        assert cached(again) == [PREFIX_TOKENS]
        assert_same(again, first)
        assert engine.truth().cpu == stored.cpu

    with replace(life) as engine:
        assert engine.truth() == replace(stored, cpu=frozenset())
        reborn = engine.generate(prompts[:1])
        assert cached(reborn) == [PREFIX_TOKENS]
        assert_same(reborn, first)
        assert cached(engine.generate(prompts[1:])) == [PREFIX_TOKENS]
