"""A store that fails after the start: the engine serves on, consumers are told, and the log catches up."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lockholder import lock_held
from tests.vllm.connectors import vllm_log
from tests.vllm.engine import Engine
from tests.vllm.kv_stream import DEADLINE_S, KVStream, Members, believed, read_stream
from tests.vllm.ledgers import CPU, assert_sound, query, resident
from tests.vllm.models import Model
from tests.vllm.workload import batches

REPOSITORY = Path(__file__).parents[2]


@dataclass
class Running:
    """An engine with all that it published and logged."""

    engine: Engine
    stream: KVStream
    store: Path

    def serve(self, seed: int) -> None:
        for prompts in batches(seed, requests=8):
            self.engine.generate(prompts, tokens=2)

    def a_router_knows(self) -> bool:
        """Whether a router believes exactly what the manager holds."""
        truth = {CPU: self.engine.truth().cpu}
        return self.stream.read_until(lambda events: believed(events) == Members(events).credits(truth))

    def the_log_knows(self) -> bool:
        """Whether the log has exactly what the manager holds, once everything is committed."""
        ledger = self.engine.live_connector.ledger
        assert ledger.session.settle()
        return resident(self.store) == {CPU: set(self.engine.truth().cpu)}


@pytest.fixture(scope="module")
def running(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("trouble")
    store = folder / "ledger.db"
    ledger = {"store": str(store), "stream": "test", "degraded_after_ms": 100}
    settings = Engine(llama, events=True, connector="KvledgerConnector", extra_config={"kvledger": ledger})
    with settings as engine, read_stream(engine.replay_endpoint) as stream:
        yield Running(engine, stream, store)
    assert_sound(store)


def test_while_another_process_holds_the_stores_lock_the_engine_serves_and_consumers_are_told(
    running: Running,
) -> None:
    with vllm_log() as log:
        with lock_held(running.store) as holder:
            running.serve(1)
            assert running.a_router_knows()
            assert not resident(running.store)
            # SQLite waits a while before it says that it cannot have the lock.
            give_up = time.monotonic() + DEADLINE_S
            while not log and time.monotonic() < give_up:
                time.sleep(0.1)
            assert holder.holds()
            holder.let_go()
        assert running.the_log_knows()
    assert query(running.store, "SELECT count(*) FROM gaps") == [(0,)]
    first, last = log
    assert "another process holds its lock" in first
    assert last == "kvledger: the store takes commits again"


def test_while_the_stores_file_is_away_the_engine_serves_and_consumers_are_told(running: Running) -> None:
    away = running.store.with_suffix(".away")
    with vllm_log() as log:
        running.store.rename(away)
        running.serve(2)
        assert running.a_router_knows()
        assert not running.store.exists()
        away.rename(running.store)
        assert running.the_log_knows()
    first, last = log
    assert str(running.store) in first
    assert last == "kvledger: the store takes commits again"


def test_on_a_full_disk_neither_tier_nor_ledger_takes_the_engine_down_and_both_go_on_afterwards(
    tmp_path: Path,
) -> None:
    # A disk of its own, which takes a namespace of its own.
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.vllm.full_disk"]
    ended = subprocess.run([*command, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout.splitlines()[-1])
    assert facts["served_while_full"]
    assert facts["at_the_tier_while_full"] == []
    assert facts["log_while_full"] < facts["log_afterwards"]
    assert facts["agree"] == {"router while full": True, "router": True, "log": True}
    assert any("no room left" in line for line in facts["said"])
    assert facts["said"][-1] == "kvledger: the store takes commits again"
