"""Makes a sample of the newest schema: `python -m tests.migration.samples.make`, once, before the next migration.

A short cut of a recorded engine is driven into a store, its restart included. What is resident at its end is worked out
from the calls themselves, with plain dicts.
"""

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from eventstore.log.verify import verify
from eventstore.storage.migration import revisions
from tests.cli.command import kvledger
from tests.facts import recorded
from tests.stores import reading

SAMPLES = Path(__file__).parent
#: How many calls of each of the recording's processes are taken.
CALLS = 90


def cut_of(name: str) -> list[dict[str, Any]]:
    """The beginnings of both processes of a recorded trace."""
    with gzip.open(recorded(name)) as file:
        calls = [json.loads(line) for line in file]
    starts = [at for at, call in enumerate(calls) if call["call"] == "open"]
    return [call for start in starts for call in calls[start : start + CALLS]]


def resident_after(calls: list[dict[str, Any]]) -> list[list[str | None]]:
    """[key, medium, owner] of what is where in the end: the CPU's copies die with their process."""
    there: set[tuple[str, str, str | None]] = set()
    for call in calls:
        if call["call"] == "open":
            there = {one for one in there if one[1] != "CPU"}
        for event in call.get("events", ()):
            named = {(key, event["medium"], event["ownership"]) for key in event["keys"]}
            there = there - named if event["removed"] else there | named
    return sorted(map(list, there), key=str)


def described(calls: list[dict[str, Any]], keys: list[str]) -> dict[str, Any]:
    """What the last record call of each key said of it."""
    names = ("block_hashes", "parent", "token_ids")
    records = {call["key"]: {name: call[name] for name in names} for call in calls if "block_hashes" in call}
    return {key: records[key] for key in keys}


def main() -> None:
    """Write `schema_N.sqlite.gz` and `schema_N.json` for the newest N."""
    name = f"schema_{revisions()[-1]}"
    calls = cut_of("two_tier")
    assert not any(call["call"] == "reset" for call in calls)
    with tempfile.TemporaryDirectory() as folder:
        trace, store = Path(folder, "two_tier.calls.jsonl.gz"), Path(folder, "k.db")
        trace.write_bytes(gzip.compress("\n".join(map(json.dumps, calls)).encode()))
        driven = kvledger("drive", trace, "--store", store)
        assert driven.code == 0, driven.err
        with reading(store) as (connection, row):
            checked = verify(connection, row)
        assert not checked.findings
        database = sqlite3.connect(store)
        database.execute("VACUUM INTO ?", (str(Path(folder, "sample")),))
        database.close()
        # Without the time of day in its header, the same store gives the same file.
        (SAMPLES / f"{name}.sqlite.gz").write_bytes(gzip.compress(Path(folder, "sample").read_bytes(), mtime=0))
    resident = resident_after(calls)
    found = {
        "stream": checked.stream,
        "events": checked.events,
        "chain": checked.chain,
        "resident": resident,
        "described": described(calls, [str(key) for key, _, _ in resident[:3]]),
    }
    (SAMPLES / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
