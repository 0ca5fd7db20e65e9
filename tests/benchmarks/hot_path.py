"""What a chunk costs the engine thread: recorded, stored, removed; against upstream's tracker where vLLM is there."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventstore.storage.store import open_for_writing
from tests.benchmarks.load import RawEvent, Request, group, requests
from tracker.publish import Publisher
from tracker.session import Session, this_process
from tracker.settings import Settings

CHUNKS_A_STEP = 64


def _steps(blocks: int, chunks: int, seed: int) -> list[Request]:
    return list(requests(seed, group(blocks), CHUNKS_A_STEP, chunks // CHUNKS_A_STEP))


def _drive(tracker: Any, blocks: int, steps: list[Request], medium: object, event: Callable[..., Any]) -> float:
    """Seconds for the engine thread's part of all chunks; removals come 16 steps after the store."""
    made = group(blocks)
    record, take = tracker.record_store, tracker.take_events
    started = time.perf_counter()
    for at, request in enumerate(steps):
        for number, key in enumerate(request.keys):
            record(request, made, number, key)
        events = [event(request.keys, medium, False)]
        if at >= 16:
            events.append(event(steps[at - 16].keys, medium, True))
        for _ in take(events):
            pass
    return time.perf_counter() - started


def _ours(
    blocks: int, steps: list[Request], folder: Path, medium: object, event: Callable[..., Any], **classes: Any
) -> float:
    store = folder / f"hot{time.monotonic_ns()}.db"
    engine, _ = open_for_writing(str(store))
    session = Session(engine, this_process("bench"), Settings(), Publisher(**classes))
    try:
        return _drive(session.tracker, blocks, steps, medium, event)
    finally:
        session.abandon()
        engine.dispose()


def _upstream() -> tuple[Callable[[], Any], object, Callable[..., Any], dict[str, Any]] | None:
    try:
        from vllm.distributed.kv_events import BlockRemoved, BlockStored
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import OffloadingEventsTracker
        from vllm.v1.kv_offload.base import Medium, OffloadingEvent, OffloadingKVEventsConfig
    except ImportError:
        return None
    config = OffloadingKVEventsConfig(enable_kv_cache_events=True, self_describing_kv_events=True)
    return (
        (lambda: OffloadingEventsTracker(config)),
        Medium.CPU,
        OffloadingEvent,
        {"stored": BlockStored, "removed": BlockRemoved},
    )


def measure(rounds: int, chunks: int) -> dict[str, Any]:
    """Microseconds a chunk with the writer committing, and the ratio to upstream's in the same rounds."""
    upstream = _upstream()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for blocks in (1, 16):
            steps = _steps(blocks, chunks if blocks == 1 else chunks // 4, seed=blocks)
            count = len(steps) * CHUNKS_A_STEP
            ours, ratios = [], []
            for _ in range(rounds):
                if upstream is None:
                    ours.append(_ours(blocks, steps, folder, "CPU", RawEvent))
                    continue
                make, medium, event, classes = upstream
                theirs = _drive(make(), blocks, steps, medium, event)
                ours.append(_ours(blocks, steps, folder, medium, event, **classes))
                ratios.append(ours[-1] / theirs)
            found[f"microseconds_a_chunk_{blocks}_blocks"] = round(statistics.median(ours) / count * 1e6, 2)
            if ratios:
                found[f"ratio_to_upstream_{blocks}_blocks"] = round(statistics.median(ratios), 3)
    found["upstream"] = "measured in the same rounds" if upstream else "vllm is not installed here"
    return found
