"""A router that reads the stream of an engine killed again and again ends with what the tiers hold, each time."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm.deployment import Deployment
from tests.vllm.forked import Zygote
from tests.vllm.serve import ServedLife
from tests.vllm.torture import Start, Torture


def tortured(deployment: Deployment, start: Start, kills: int) -> dict[str, int]:
    seed = int(os.environ.get("TORTURE_SEED", random.SystemRandom().getrandbits(32)))
    print(f"TORTURE_SEED={seed}")
    torture = Torture(deployment, seed, start, print)
    torture.run(kills)
    return torture.reckoning.exercised()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


def test_vllm_serve_killed_under_http_load_tells_a_router_exactly_what_its_tiers_hold(tmp_path: Path) -> None:
    exercised = tortured(Deployment(tmp_path, blocks_per_chunk=2), ServedLife, kills=3)
    assert min(exercised.values()) > 0, exercised


@pytest.mark.parametrize("tier", ["fs", "evicting"])
def test_a_router_is_told_no_less_where_only_ends_and_the_tail_are_announced(
    zygote: Zygote, tier: str, tmp_path: Path
) -> None:
    deployment = Deployment(tmp_path, tiers=(tier,), integer_hashes=False, ledger={"announce": "closes"})
    exercised = tortured(deployment, zygote.fork, kills=6)
    assert min(exercised.values()) > 0, exercised


def test_published_at_once_a_router_believes_too_much_only_of_what_the_log_never_got(
    zygote: Zygote, tmp_path: Path
) -> None:
    # Commits lag behind, so that a kill takes what has been published.
    ledger = {"publish": "at_once", "flush_interval_ms": 100}
    exercised = tortured(Deployment(tmp_path, blocks_per_chunk=4, ledger=ledger), zygote.fork, kills=6)
    assert min(exercised.values()) > 0, exercised
