"""Which survivors a restarted engine still believes in: its own shape and each tier's type and folder decide."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.kv_offload.base import Medium, OffloadingEvent, make_offload_key

from tests.vllm.connectors import connector
from tests.vllm.engine import Engine
from tests.vllm.ledgers import assert_sound, ends, resident
from tests.vllm.models import Model, write_llama
from tracker.vllm.connector import KvledgerConnector

KEY = make_offload_key(bytes(range(32)), 0)
OTHER = make_offload_key(bytes(range(1, 33)), 0)


@pytest.fixture
def settings(llama: Model, tmp_path: Path) -> Engine:
    """An engine with a file tier; a chunk that has a file in it is there, whatever the file holds."""
    return Engine(
        llama,
        connector="KvledgerConnector",
        events=True,
        tiers=[fs(tmp_path / "one")],
        extra_config={"kvledger": {"store": str(tmp_path / "ledger.db"), "stream": "test"}},
    )


def fs(folder: Path, **more: Any) -> dict[str, Any]:
    return {"type": "fs", "root_dir": str(folder), "enable_kv_events": True, "n_read_threads": 1} | more


def evicting(folder: Path) -> dict[str, Any]:
    entry = {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "max_chunks": 9, "owner": "nvme0"}
    return fs(folder, **entry)


def store(made: KvledgerConnector, *keys: bytes, medium: Medium = Medium.STORAGE, owner: str | None = None) -> None:
    """A tier reports chunks stored, and their files are there."""
    for tier in made.connector_scheduler.manager.secondary_tiers:
        for key in keys:
            path = Path(tier.file_mapper.get_file_name(key))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(tier.block_size_bytes))
    event = OffloadingEvent(
        keys=list(keys), medium=medium, removed=False, ownership=owner, removal_expected=bool(owner)
    )
    tracker = made.connector_scheduler._events_tracker
    list(tracker.take_events([event]))


def finish(made: KvledgerConnector) -> None:
    """The engine has told consumers of everything."""
    assert made.ledger is not None
    session = made.ledger.session
    while not session.tracker.is_quiet:
        assert session.settle()
        session.tracker.take_events([])


def other_model(settings: Engine, folder: Path) -> Engine:
    return replace(settings, model=write_llama(folder / "other model"))


CHANGES: dict[str, Callable[[Engine, Path], Engine]] = {
    "the block size": lambda settings, _: replace(settings, tokens_per_block=64),
    "the chunk size": lambda settings, _: replace(settings, blocks_per_chunk=2),
    "the dtype": lambda settings, _: replace(settings, llm_arguments={"dtype": "bfloat16"}),
    "the hash": lambda settings, _: replace(settings, llm_arguments={"prefix_caching_hash_algo": "sha256_cbor"}),
    "the model": other_model,
    "the tier's folder": lambda settings, folder: replace(settings, tiers=[fs(folder / "two")]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_believed_of_an_engine_that_was_another(what: str, settings: Engine, tmp_path: Path) -> None:
    with connector(settings) as made:
        store(made, KEY)
    with connector(CHANGES[what](settings, tmp_path)) as made:
        assert resident(tmp_path / "ledger.db") == {}
    assert ends(tmp_path / "ledger.db") == {("STORAGE", None, "config_changed"): 1}
    # Nor is it believed again once the first engine comes back.
    with connector(settings) as made:
        finish(made)
    assert resident(tmp_path / "ledger.db") == {}
    assert_sound(tmp_path / "ledger.db")


def test_nothing_is_believed_where_hashes_start_from_another_seed(
    settings: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connector(settings) as made:
        store(made, KEY)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with connector(settings) as made:
        finish(made)
    assert ends(tmp_path / "ledger.db") == {("STORAGE", None, "config_changed"): 1}


def test_nothing_is_believed_where_every_process_draws_a_seed(settings: Engine, tmp_path: Path) -> None:
    assert "PYTHONHASHSEED" not in os.environ
    drawn = replace(settings, llm_arguments={"prefix_caching_hash_algo": "xxhash"})
    with connector(drawn) as made:
        store(made, KEY)
    with connector(drawn) as made:
        finish(made)
    assert ends(tmp_path / "ledger.db") == {("STORAGE", None, "config_changed"): 1}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda settings: settings, id="nothing"),
        pytest.param(lambda settings: replace(settings, cpu_chunks=32), id="the pool's size"),
        pytest.param(lambda settings: replace(settings, gpu_blocks=50), id="the engine's own pool"),
        pytest.param(
            lambda settings: replace(settings, tiers=[settings.tiers[0] | {"n_write_threads": 3}]),
            id="a tier's threads",
        ),
    ],
)
def test_what_changes_no_chunk_ends_none(change: Callable[[Engine], Engine], settings: Engine, tmp_path: Path) -> None:
    with connector(settings) as made:
        store(made, KEY)
    with connector(change(settings)) as made:
        finish(made)
    assert resident(tmp_path / "ledger.db") == {("STORAGE", None): {KEY}}


def test_what_was_at_a_tier_that_is_gone_ends_as_tier_removed(settings: Engine, tmp_path: Path) -> None:
    both = replace(settings, tiers=[*settings.tiers, evicting(tmp_path / "two")])
    with connector(both) as made:
        store(made, KEY, owner="nvme0")
        store(made, KEY)
    with connector(settings) as made:
        finish(made)
    assert ends(tmp_path / "ledger.db") == {("STORAGE", "nvme0", "tier_removed"): 1}
    assert resident(tmp_path / "ledger.db") == {("STORAGE", None): {KEY}}


def test_what_was_in_the_pool_ends_with_its_process(settings: Engine, tmp_path: Path) -> None:
    with connector(settings) as made:
        store(made, KEY, medium=Medium.CPU)
    with connector(settings) as made:
        finish(made)
    assert ends(tmp_path / "ledger.db") == {("CPU", None, "engine_restart"): 1}


@pytest.mark.parametrize("kind", ["fs", "evicting"])
def test_a_chunk_whose_file_is_gone_ends_as_missing(kind: str, settings: Engine, tmp_path: Path) -> None:
    owner = "nvme0" if kind == "evicting" else None
    tiered = replace(settings, tiers=[evicting(tmp_path / "one") if owner else fs(tmp_path / "one")])
    with connector(tiered) as made:
        store(made, KEY, OTHER, owner=owner)
        (tier,) = made.connector_scheduler.manager.secondary_tiers
        Path(tier.file_mapper.get_file_name(OTHER)).unlink()
    with connector(tiered) as made:
        finish(made)
    assert ends(tmp_path / "ledger.db") == {("STORAGE", owner, "missing"): 1}
    assert resident(tmp_path / "ledger.db") == {("STORAGE", owner): {KEY}}
