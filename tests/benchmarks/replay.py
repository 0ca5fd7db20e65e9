"""How many events a second come out of the log, by form.

    python -m tests.benchmarks.replay --json

`decoded`: events as objects with what stands beside them, page by page, and nothing else. `with_keys`: and each chunk's
key. `log` and `kv`: words of the log and KV events, each with its JSON lines written to nowhere. `pace`: how far from
its tenth of the recorded time a step goes out at ten times the speed, in milliseconds.
"""

import argparse
import json
import os
import platform
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import Connection, Engine

from eventstore.log.chunks import keys_of
from eventstore.log.cursor import beginning
from eventstore.log.read import page
from eventstore.log.stream import one_stream
from eventstore.replay.form import Form
from eventstore.replay.kvsteps import KVSteps
from eventstore.replay.lines import LogLines
from eventstore.replay.pace import Pace
from eventstore.replay.reader import Reader
from eventstore.replay.run import replay
from eventstore.replay.sinks import Callback, JsonLines
from eventstore.storage.store import open_for_reading
from tests.benchmarks import big_store
from tests.replay.handmade import CPU, SECOND, Handmade, described, key


def measure(events: int, rounds: int = 3) -> dict[str, Any]:
    """Events a second, the best of `rounds`, and the same a second of processor time."""
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "replay.db"
        big_store.make(store, events)
        engine = open_for_reading(str(store))
        with engine.begin() as connection:
            last = one_stream(connection, big_store.STREAM).last_seq
        found = {
            "events": last,
            "decoded": _best(rounds, last, lambda: _decode(engine, keys=False)),
            "with_keys": _best(rounds, last, lambda: _decode(engine, keys=True)),
            "log": _best(rounds, last, lambda: _lines(engine, LogLines(1, last), last)),
            "kv": _best(rounds, last, lambda: _lines(engine, KVSteps(), last)),
        }
        engine.dispose()
    return found


def measure_pace(steps: int = 200) -> dict[str, float]:
    """Steps that lie about 100 ms apart, at ten times the speed: how far off each goes out, in milliseconds."""
    rnd = random.Random(1)
    with tempfile.TemporaryDirectory() as name, Handmade(Path(name) / "pace.db") as log:
        for number in range(1, steps + 1):
            log.describe(key(number), described(number))
            log.store(key(number), CPU)
            log.step(round(rnd.expovariate(10) * SECOND))
        log.commit()
        seen: list[tuple[int, int]] = []
        sink = Callback(lambda step: seen.append((time.monotonic_ns(), step.time_ns)))
        replay(log.engine, Reader(KVSteps(), beginning(log.name), log.seq), sink, pace=Pace(10))
    began, first = seen[0]
    off = sorted(abs((at - began) - (recorded - first) / 10) / 1e6 for at, recorded in seen)
    return {"steps": steps, "median_ms": round(median(off), 3), "p99_ms": round(off[len(off) * 99 // 100], 3)}


def _best(rounds: int, events: int, work: Callable[[], None]) -> dict[str, int]:
    wall, processor = [], []
    for _ in range(rounds):
        before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - before[0])
        processor.append(time.process_time() - before[1])
    return {"events_a_second": round(events / min(wall)), "a_processor_second": round(events / min(processor))}


def _decode(engine: Engine, *, keys: bool) -> None:
    with engine.connect() as connection:
        after = 0
        while after is not None:
            with connection.begin():
                after = _decode_page(connection, after, keys=keys)


def _decode_page(connection: Connection, after: int, *, keys: bool) -> Any:
    events = page(connection, 1, after)
    if keys:
        keys_of(connection, 1, {event.chunk for event in events if event.chunk})
    return events[-1].seq if events else None


def _lines(engine: Engine, form: Form, last: int) -> None:
    with open(os.devnull, "wb") as nowhere:
        replay(engine, Reader(form, beginning(big_store.STREAM), last), JsonLines(nowhere))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replay", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--events", type=int, default=1_000_000, help="how long the log is")
    given = parser.parse_args()
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version} | measure(given.events)
    found["pace"] = measure_pace()
    if given.json:
        print(json.dumps({"schema_version": 1} | found, indent=2))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
