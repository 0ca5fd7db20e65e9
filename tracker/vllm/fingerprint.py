"""What decides whether survivors of a restart still hold: the engine's shape, and each tier's type and folder.

A chunk on disk is of use only to an engine that would compute the same bytes under the same hashes; changes when
vLLM's hashes or layouts come to depend on something else.
"""

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vllm.v1.core.kv_cache_utils import DEFAULT_NONE_HASH_SEED

from eventstore.domain.place import Medium, Place
from eventstore.recovery.epoch import ENGINE
from tracker.checker import Check

#: Settings of a tier entry that say where its chunks are. The others change nothing about what is there.
_WHERE = ("type", "module_path", "root_dir", "bucket", "endpoint", "endpoint_url", "prefix", "owner")


def engine_fingerprint(vllm_config: Any, config: Any) -> dict[str, Any]:
    """What all chunks of this engine share, in plain values. `config` is vLLM's `OffloadingConfig`."""
    algorithm = str(vllm_config.cache_config.prefix_caching_hash_algo)
    return {
        "model": config.model.name,
        "dtype": config.model.dtype,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "groups": [[group.group_id, group.tokens_per_block, list(group.layer_names)] for group in config.groups],
        "parallel": _layout(config),
        "hash": algorithm,
        "hash_seed": _hash_seed(algorithm),
    }


def _layout(config: Any) -> list[int]:
    """How a chunk's bytes are spread over workers; the same for all layouts whose bytes are (vLLM's `FileMapper`)."""
    parallel = config.parallel
    if parallel.is_parallelism_agnostic or config.replicated_layout:
        return [1, int(config.replicated_layout), int(config.canonical_layout)]
    return [parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size]


def _hash_seed(algorithm: str) -> str:
    """What the first hash of every prefix starts from, as vLLM will resolve it once the engine runs
    (`resolve_none_hash_seed` in vllm/v1/core/kv_cache_utils.py). Digested: a seed can be a secret."""
    seed = os.environ.get("PYTHONHASHSEED")
    if seed is None:
        # Not collision resistant: vLLM draws a new seed for each process, so no hash outlives it.
        seed = os.urandom(16).hex() if algorithm.startswith("xxhash") else DEFAULT_NONE_HASH_SEED
    return blake2b(seed.encode(), digest_size=8).hexdigest()


def place_of(tier: Any) -> Place:
    """The place that a secondary tier's events name: its medium, and its owner where it has one."""
    medium = getattr(tier, "medium", None)
    word = str(getattr(medium, "value", medium or Medium.STORAGE.value))
    return Place(Medium(word) if word in Medium.__members__ else Medium.STORAGE, getattr(tier, "owner", None))


def fingerprint(
    vllm_config: Any, config: Any, tiers: Sequence[Any], entries: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """By `ENGINE` and by place. Two tiers at one place are told apart no more than their events are."""
    found: dict[str, Any] = {ENGINE: engine_fingerprint(vllm_config, config)}
    for tier, entry in zip(tiers, entries, strict=False):
        found.setdefault(str(place_of(tier)), []).append(_where(entry))
    return found


def _where(entry: dict[str, Any]) -> dict[str, Any]:
    found = {name: entry[name] for name in _WHERE if name in entry}
    if "root_dir" in found:
        found["root_dir"] = os.path.abspath(found["root_dir"])
    return found


def checks(tiers: Sequence[Any]) -> dict[str, Check]:
    """For file tiers, how to ask whether a chunk's file exists. A place that a tier without files shares has none."""
    by_place: dict[str, list[Any]] = {}
    for tier in tiers:
        by_place.setdefault(str(place_of(tier)), []).append(getattr(tier, "file_mapper", None))
    return {place: _exists(mappers) for place, mappers in by_place.items() if all(mappers)}


def _exists(mappers: Sequence[Any]) -> Callable[[Sequence[bytes]], list[bool]]:
    def check(keys: Sequence[bytes]) -> list[bool]:
        return [any(Path(mapper.get_file_name(key)).exists() for mapper in mappers) for key in keys]

    return check
