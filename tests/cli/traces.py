"""Call traces of a few lines, whole and spoiled; changes with the format of traces (docs/traces.md)."""

import gzip
import json
from pathlib import Path
from typing import Any

OPEN: dict[str, Any] = {"call": "open", "self_describing": True}
HASHES = ["22" * 32, "11" * 32]
GROUP: dict[str, Any] = {"idx": 0, "tokens_per_block": 2, "tokens_per_chunk": 4, "hashes_per_chunk": 2}
KEY = HASHES[-1] + "00000000"
RECORD: dict[str, Any] = {
    "call": "record_store",
    "req": "r1",
    "group": GROUP,
    "chunk_idx": 0,
    "key": KEY,
    "parent": None,
    "block_hashes": HASHES,
    "token_ids": [1, 2, 3, 4],
}
PARTIAL: dict[str, Any] = {name: value for name, value in RECORD.items() if name != "chunk_idx"} | {
    "call": "record_partial_store",
    "boundary_tokens": 2,
    "block_hashes": HASHES[-1:],
    "token_ids": [1, 2],
}
STORED: dict[str, Any] = {"keys": [KEY], "medium": "CPU", "removed": False}


def take(**changed: Any) -> dict[str, Any]:
    """A `take_events` call with one event."""
    return {"call": "take_events", "step": 0, "events": [STORED | changed]}


def record(**changed: Any) -> dict[str, Any]:
    """A `record_store` call."""
    return RECORD | changed


def grouped(**changed: Any) -> dict[str, Any]:
    """A `record_store` call whose group is changed."""
    return RECORD | {"group": GROUP | changed}


def partial(**changed: Any) -> dict[str, Any]:
    """A `record_partial_store` call."""
    return PARTIAL | changed


def without(call: dict[str, Any], *names: str) -> dict[str, Any]:
    """A call that lacks some of its fields."""
    return {name: value for name, value in call.items() if name not in names}


def write_trace(folder: Path, *lines: Any, name: str = "made") -> Path:
    """A trace of these calls; text and bytes stand in it as they are."""
    path = folder / f"{name}.calls.jsonl.gz"
    raw = [one if isinstance(one, bytes) else one.encode() for one in map(_text, lines)]
    path.write_bytes(gzip.compress(b"\n".join(raw)))
    return path


def _text(line: Any) -> str | bytes:
    return line if isinstance(line, str | bytes) else json.dumps(line)
