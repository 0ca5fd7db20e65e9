"""KV events as a trace's `out` has them, made from a trace's calls; changes with the wire format.

Written from vLLM's `kv_events.py`, so that nothing is shared with the product's own classes.
"""

from typing import Any

KVEvent = dict[str, Any]
#: (medium, ownership).
Place = tuple[str, str | None]

_LEFT_OUT_AT_THEIR_DEFAULT = ("ownership", "locality", "kv_cache_spec_kind", "kv_cache_spec_sliding_window")


def wire(hex_hash: str) -> int:
    """A block hash as events carry it: its low 64 bits."""
    return int(hex_hash[-16:], 16)


def own_hash(key: str) -> int:
    """The wire hash in a key: without the group, its last 4 bytes."""
    return wire(key[:-8])


def group_of(key: str) -> int:
    """The KV-cache group in a key."""
    return int(key[-8:], 16)


def description(record: dict[str, Any]) -> KVEvent:
    """What a record call says of its chunk, as every full store of it does, whatever the place."""
    group, lora = record["group"], record["lora"]
    return {
        "type": "BlockStored",
        "block_hashes": [wire(one) for one in record["block_hashes"]],
        "parent_block_hash": wire(record["parent"]) if record["parent"] is not None else None,
        "token_ids": record["token_ids"],
        "block_size": group["tokens_per_block"],
        "lora_id": lora and lora["adapter_id"],
        "lora_name": lora and lora["name"],
        "group_idx": group["idx"],
        "kv_cache_spec_kind": group["spec_kind"],
        "kv_cache_spec_sliding_window": group["spec_sliding_window"],
    }


def placeholder(key: str) -> KVEvent:
    """What can be said of a chunk that nobody described."""
    return {
        "type": "BlockStored",
        "block_hashes": [own_hash(key)],
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 0,
        "lora_id": None,
        "lora_name": None,
        "group_idx": group_of(key),
    }


def store(what: KVEvent, place: Place, locality: str | None) -> KVEvent:
    """The store of one chunk; `what` is its description, or its placeholder."""
    return _at(what, place, locality)


def removal(place: Place, group: int, hashes: list[int], locality: str | None) -> KVEvent:
    """One removal of blocks of one group."""
    return _at({"type": "BlockRemoved", "block_hashes": hashes, "group_idx": group}, place, locality)


def _at(event: KVEvent, place: Place, locality: str | None) -> KVEvent:
    whole = event | {"medium": place[0], "ownership": place[1], "locality": locality}
    return {name: value for name, value in whole.items() if value is not None or name not in _LEFT_OUT_AT_THEIR_DEFAULT}
