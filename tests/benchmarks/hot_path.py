"""What a chunk costs the engine thread: recorded, stored, removed; against upstream's tracker where vLLM is there."""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from eventstore.storage.store import open_for_writing
from tests.benchmarks.load import RawEvent, Request, group, requests
from tracker.publish import Publisher
from tracker.session import Session, this_process
from tracker.settings import Settings

CHUNKS_A_STEP = 64


def _steps(blocks: int, chunks: int, seed: int) -> list[Request]:
    return list(requests(seed, group(blocks), CHUNKS_A_STEP, chunks // CHUNKS_A_STEP))


class _Took(NamedTuple):
    """Seconds of the engine thread: waiting for the GIL included, and its CPU time alone."""

    wall: float
    cpu: float


def _drive(tracker: Any, blocks: int, steps: list[Request], medium: object, event: Callable[..., Any]) -> _Took:
    """What the engine thread's part of all chunks takes; removals come 16 steps after the store."""
    made = group(blocks)
    record, take = tracker.record_store, tracker.take_events
    wall, cpu = time.perf_counter(), time.thread_time()
    for at, request in enumerate(steps):
        for number, key in enumerate(request.keys):
            record(request, made, number, key)
        events = [event(request.keys, medium, False)]
        if at >= 16:
            events.append(event(steps[at - 16].keys, medium, True))
        for _ in take(events):
            pass
    return _Took(time.perf_counter() - wall, time.thread_time() - cpu)


def _ours(
    blocks: int, steps: list[Request], folder: Path, medium: object, event: Callable[..., Any], **classes: Any
) -> _Took:
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
    """Microseconds a chunk with the writer committing, and the ratio to upstream's in the same rounds.

    Of either the median over the rounds: of the time, where the engine thread waits while the writer has the GIL, and
    of the engine thread's CPU time alone, which other work on the machine disturbs less.
    """
    upstream = _upstream()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for blocks in (1, 16):
            steps = _steps(blocks, chunks if blocks == 1 else chunks // 4, seed=blocks)
            count = len(steps) * CHUNKS_A_STEP
            # As vLLM does once its engine is up: what lives on is not looked through at every collection.
            gc.collect()
            gc.freeze()
            ours: list[_Took] = []
            theirs: list[_Took] = []
            for _ in range(rounds):
                if upstream is None:
                    ours.append(_ours(blocks, steps, folder, "CPU", RawEvent))
                    continue
                make, medium, event, classes = upstream
                theirs.append(_drive(make(), blocks, steps, medium, event))
                ours.append(_ours(blocks, steps, folder, medium, event, **classes))
            wall, cpu = _medians(ours)
            found[f"microseconds_a_chunk_{blocks}_blocks"] = round(wall / count * 1e6, 2)
            found[f"cpu_microseconds_a_chunk_{blocks}_blocks"] = round(cpu / count * 1e6, 2)
            if theirs:
                ratios = [_Took(a.wall / b.wall, a.cpu / b.cpu) for a, b in zip(ours, theirs, strict=True)]
                wall, cpu = _medians(ratios)
                found[f"ratio_to_upstream_{blocks}_blocks"] = round(wall, 3)
                found[f"cpu_ratio_to_upstream_{blocks}_blocks"] = round(cpu, 3)
    found["upstream"] = "measured in the same rounds" if upstream else "vllm is not installed here"
    return found


def _medians(took: list[_Took]) -> _Took:
    return _Took(statistics.median(one.wall for one in took), statistics.median(one.cpu for one in took))
