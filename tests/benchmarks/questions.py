"""Times every question of docs/questions.md on a large store, and looks at its query plan.

`seconds` is what a user waits, `cpu_seconds` what the query took of one core: on a machine that is busy with other work
the second says more, and still too much, since others use the caches too.

    python -m tests.benchmarks.questions --events 10000000 --json

The store is made in the system's temporary folder and deleted, unless one is named with `--store`.
"""

import argparse
import json
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from eventstore.storage.store import open_for_reading
from tests.benchmarks.big_store import make
from tests.documented import Question, ask, plan, questions, scans_of_residencies, scans_of_the_log

#: Questions about one chunk or one prefix have to be fast; all others have two seconds.
BY_KEY = frozenset({2, 6})
LIMIT_S, LIMIT_BY_KEY_S = 2.0, 0.1
ROUNDS = 3


def parameters(connection: Connection) -> dict[str, Any]:
    """What is asked for: a recent key, the last fifth of the log, its last hundredth, two points in that part."""
    last: int = connection.exec_driver_sql("SELECT last_seq FROM streams").scalar_one()
    key = connection.exec_driver_sql(
        'SELECT "key" FROM residency WHERE chunk > ? AND NOT placeholder LIMIT 1', (last * 9 // 10,)
    ).scalar_one()
    return {
        "ownership": "nvme0",
        "key": key,
        "since": last * 4 // 5,
        "recent": last - last // 100,
        "epoch": 3,
        "a": last - last // 200,
        "b": last - last // 1_000,
        "seq": last // 2,
    }


def measure(store: Path) -> dict[str, Any]:
    """Seconds for each question, median of a few rounds, and the scans in its plan."""
    engine = open_for_reading(str(store))
    try:
        with engine.begin() as connection:
            given = parameters(connection)
            found = [_one(connection, question, given) for question in questions().values()]
            whole = [
                _one(connection, question, given | {"since": 0}, rounds=1)
                for question in questions().values()
                if "since" in question.parameters
            ]
            events = connection.exec_driver_sql("SELECT sum(last_seq) FROM streams").scalar_one()
    finally:
        engine.dispose()
    return {
        "events": events,
        "store_bytes": store.stat().st_size,
        "ok": all(one["ok"] for one in found),
        "questions": found,
        "over_the_whole_log": whole,
    }


def _one(connection: Connection, question: Question, given: dict[str, Any], rounds: int = ROUNDS) -> dict[str, Any]:
    times, cpu_times, rows = [], [], 0
    for _ in range(rounds):
        started, cpu_started = time.perf_counter(), time.process_time()
        rows = len(ask(connection, question, given))
        times.append(time.perf_counter() - started)
        cpu_times.append(time.process_time() - cpu_started)
    steps = plan(connection, question.sql, given)
    seconds = statistics.median(times)
    limit = LIMIT_BY_KEY_S if question.number in BY_KEY else LIMIT_S
    scans = scans_of_the_log(steps) + (scans_of_residencies(steps) if question.number in BY_KEY else [])
    return {
        "question": question.number,
        "title": question.title,
        "seconds": round(seconds, 4),
        "cpu_seconds": round(statistics.median(cpu_times), 4),
        "limit_s": limit,
        "rows": rows,
        "unwanted_scans": scans,
        "ok": seconds < limit and not scans,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.questions", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, help="a store that `tests.benchmarks.big_store` made")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvledger-questions-") as folder:
        store = given.store or Path(folder) / "big.db"
        if given.store is None:
            print(f"making a store of {given.events:,} events ...", file=sys.stderr)
            make(store, given.events)
        measured = measure(store)
    found: dict[str, Any] = {
        "schema_version": 1,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    } | measured
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['events']:,} events, {found['store_bytes']:,} bytes, SQLite {found['sqlite']}")
        for one in found["questions"] + found["over_the_whole_log"]:
            times = f"{one['seconds']:8.3f} s  {one['cpu_seconds']:8.3f} s of a core"
            print(f"{one['question']:>3} {times}  {one['rows']:>8,} rows  {one['title']}", end="")
            print("" if one["ok"] else f"  NOT WITHIN {one['limit_s']} s or scans {one['unwanted_scans']}")
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
