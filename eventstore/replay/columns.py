"""What goes out as rows of a table: the columns of each kind of row, and one item as such rows; changes with a table.

Types are words, so that a table can be described without the library that writes it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from eventstore.replay.kvsteps import KVStep

Row = dict[str, Any]
#: (name, type): int, uint64, bool, text, time (nanoseconds UTC), float, or a list of such, as `list:uint64`.
Columns = tuple[tuple[str, str], ...]

LOG: Columns = (
    ("stream", "text"),
    ("seq", "int"),
    ("time", "time"),
    ("kind", "text"),
    ("key", "text"),
    ("medium", "text"),
    ("ownership", "text"),
    ("locality", "text"),
    ("removal_expected", "bool"),
    ("repeated", "bool"),
    ("placeholder", "bool"),
    ("metadata_only", "bool"),
    ("matched", "bool"),
    ("reason", "text"),
    ("state", "bool"),
    ("opened_seq", "int"),
    ("block_hashes", "list:text"),
    ("parent_block_hash", "text"),
    ("token_ids", "list:int"),
    ("block_size", "int"),
    ("group_idx", "int"),
    ("kv_cache_spec_kind", "text"),
    ("kv_cache_spec_sliding_window", "int"),
    ("lora_id", "int"),
    ("lora_name", "text"),
    ("extra_keys", "text"),
    # What an event about the stream carries, as JSON.
    ("body", "text"),
)
KV: Columns = (
    ("stream", "text"),
    ("epoch", "int"),
    ("first_seq", "int"),
    ("last_seq", "int"),
    ("time", "time"),
    ("state", "bool"),
    ("type", "text"),
    ("block_hashes", "list:uint64"),
    ("parent_block_hash", "uint64"),
    ("token_ids", "list:int"),
    ("block_size", "int"),
    ("lora_id", "int"),
    ("lora_name", "text"),
    ("extra_keys", "text"),
    ("medium", "text"),
    ("group_idx", "int"),
    ("kv_cache_spec_kind", "text"),
    ("kv_cache_spec_sliding_window", "int"),
    ("locality", "text"),
    ("ownership", "text"),
)

_LOG_NAMES = {name for name, _ in LOG}
_METADATA_NAMES = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "group_idx", "lora_id", "lora_name")
#: Of a line: what a table says in columns of other names, and what serves `import` alone.
_ELSEWHERE = {"time_ns", "metadata", "exact", "sum", "batch", "slice", "places"}


def log_rows(words: Row) -> list[Row]:
    """One line of the log as one row."""
    row = {name: value for name, value in words.items() if name in _LOG_NAMES}
    row["time"] = words["time_ns"]
    row["state"] = words.get("state", False)
    meta = words.get("metadata")
    if meta:
        row |= {name: meta[name] for name in _METADATA_NAMES}
        row["kv_cache_spec_kind"], row["kv_cache_spec_sliding_window"] = meta["kind"], meta["sliding_window"]
        row["extra_keys"] = _json(meta["extra_keys"])
    if "key" not in words:
        row.pop("reason", None)
        body = {name: value for name, value in words.items() if name not in _ELSEWHERE and name not in row}
        row["body"] = _json(body | ({"reason": words["reason"]} if "reason" in words else {}))
    return [row]


def kv_rows(step: KVStep) -> list[Row]:
    """A step as one row a KV event."""
    same = {
        "stream": step.stream,
        "epoch": step.epoch,
        "first_seq": step.first_seq,
        "last_seq": step.last_seq,
        "time": step.time_ns,
        "state": step.state,
    }
    rows = []
    for event in step.events:
        row = same | msgspec.structs.asdict(event) | {"type": type(event).__name__}
        row["extra_keys"] = _json(row.get("extra_keys"))
        for of_the_gpu in ("session_id", "lookahead_token_ids"):
            row.pop(of_the_gpu, None)
        rows.append(row)
    return rows


ROWS: dict[str, tuple[Columns, Callable[[Any], list[Row]]]] = {"log": (LOG, log_rows), "kv": (KV, kv_rows)}


def _json(value: Any) -> str | None:
    return msgspec.json.encode(value).decode() if value is not None else None
