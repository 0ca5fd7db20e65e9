"""Runs the measurements and prints them; `--json` for a program, `--quick` for a first look."""

import argparse
import json
import platform
import sqlite3
from typing import Any

from tests.benchmarks import append, hot_path, recovery


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--resident", type=int, default=None, help="chunks resident while appending")
    given = parser.parse_args()
    scale = 10 if given.quick else 1
    resident = given.resident or 300_000 // scale
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "append_alone": append.measure(resident, 800_000 // scale, spinning=False),
        "append_beside_a_spinning_thread": append.measure(resident, 400_000 // scale, spinning=True),
        "hot_path": hot_path.measure(rounds=5, chunks=40_000 // scale),
        "recovery": recovery.measure(100_000 // scale),
    }
    if given.json:
        print(json.dumps({"schema_version": 1} | found, indent=2))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value}" if not isinstance(value, dict) else name.replace("_", " "))
        for inner, figure in value.items() if isinstance(value, dict) else ():
            print(f"    {inner.replace('_', ' ')}: {figure}")


if __name__ == "__main__":
    main()
