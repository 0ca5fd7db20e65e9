"""How long a restarted process takes until its tracker is ready."""

import tempfile
import time
from pathlib import Path
from typing import Any

from eventstore.storage.store import open_for_writing
from tests.benchmarks.load import RawEvent, group, requests
from tracker.session import Session, this_process
from tracker.settings import Settings


def measure(resident: int) -> dict[str, Any]:
    """Seconds from a crash's leftovers with `resident` chunks on a tier that announces removals to a ready tracker."""
    made = group(1)
    with tempfile.TemporaryDirectory() as name:
        engine, _ = open_for_writing(str(Path(name) / "recovery.db"))
        session = Session(engine, this_process("bench"), Settings(outbox_events=10**9))
        for request in requests(3, made, 64, resident // 64):
            for number, key in enumerate(request.keys):
                session.tracker.record_store(request, made, number, key)
            event = RawEvent(request.keys, "STORAGE", False, "LOCAL", "nvme0", removal_expected=True)
            session.tracker.take_events([event])
        session.settle(600)
        session.abandon()
        found: dict[str, Any] = {"resident": resident // 64 * 64}
        for announce in ("none", "full"):
            started = time.perf_counter()
            again = Session(engine, this_process("bench"), Settings(announce=announce))
            found[f"seconds_until_ready_announce_{announce}"] = round(time.perf_counter() - started, 3)
            if len(again.tracker.pending) != found["resident"]:
                raise RuntimeError("recovery did not bring back what was resident")
            again.abandon()
        engine.dispose()
    return found
