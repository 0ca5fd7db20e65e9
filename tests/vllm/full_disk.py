"""An engine whose tier and ledger share a disk that fills up, and is given room again: `python -m tests.vllm.full_disk
FOLDER`, in a mount namespace of its own. Prints what came of it as one line of JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.vllm.connectors import vllm_log
from tests.vllm.engine import Engine
from tests.vllm.kv_stream import Members, believed, read_stream
from tests.vllm.ledgers import CPU, Where, assert_sound, held, query, resident
from tests.vllm.models import write_llama
from tests.vllm.workload import batches

DISK_BYTES = 16 * 1024 * 1024
PLACES: dict[str, Where] = {"nvme0": ("STORAGE", "nvme0")}


def main(folder: Path) -> dict[str, Any]:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disk)], check=True)
    store, filler = disk / "ledger.db", disk / "filler"
    tier = {
        "type": "EvictingFileTier",
        "module_path": "tracker.vllm.evicting_tier",
        "root_dir": str(disk / "nvme0"),
        "max_chunks": 60,
        "owner": "nvme0",
        "enable_kv_events": True,
        "n_read_threads": 1,
        "n_write_threads": 1,
    }
    ledger = {"store": str(store), "stream": "test", "degraded_after_ms": 100}
    settings = Engine(
        write_llama(folder / "model"),
        tiers=[tier],
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": ledger},
    )
    facts: dict[str, Any] = {"agree": {}}
    # The log is listened to once the engine stands: starting it sets up the log anew.
    with settings as engine, vllm_log() as log, read_stream(engine.replay_endpoint) as stream:

        def serve(seed: int) -> int:
            return sum(len(engine.generate(prompts, tokens=2)) for prompts in batches(seed, requests=8))

        def a_router_knows() -> bool:
            true = held(engine.truth(), PLACES)
            return stream.read_until(lambda events: believed(events) == Members(events).credits(true))

        def events_logged() -> int:
            ((count,),) = query(store, "SELECT count(*) FROM events")
            return int(count)

        serve(1)
        before = engine.truth().tiers["nvme0"]
        _fill(filler)
        facts["served_while_full"] = serve(2)
        facts["agree"]["router while full"] = a_router_knows()
        facts["at_the_tier_while_full"] = sorted(key.hex() for key in engine.truth().tiers["nvme0"] - before)
        facts["log_while_full"] = events_logged()
        filler.unlink()
        serve(3)
        facts["agree"]["router"] = a_router_knows()
        assert engine.live_connector.ledger.session.settle()
        facts["log_afterwards"] = events_logged()
        facts["agree"]["log"] = resident(store) == held(engine.truth(), PLACES)
        assert CPU in resident(store)
    assert_sound(store)
    facts["said"] = log
    return facts


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
