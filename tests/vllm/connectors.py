"""The scheduler's side of a connector as vLLM builds it, from vLLM's own configuration, without an engine around it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

from tests.vllm.engine import Engine
from tracker.vllm.connector import KvledgerConnector


@contextmanager
def connector(
    settings: Engine, role: KVConnectorRole = KVConnectorRole.SCHEDULER, **parallel: Any
) -> Iterator[KvledgerConnector]:
    """The connector of an engine with these settings. `parallel`: fields of vLLM's parallel configuration."""
    config = settings.vllm_config()
    for name, value in parallel.items():
        setattr(config.parallel_config, name, value)
    made = KVConnectorFactory.create_connector(config, role, _cache(settings))
    assert isinstance(made, KvledgerConnector)
    try:
        yield made
    finally:
        made.shutdown()


def _cache(settings: Engine) -> KVCacheConfig:
    spec = FullAttentionSpec(settings.tokens_per_block, num_kv_heads=2, head_size=32, dtype=torch.float32)
    return KVCacheConfig(settings.gpu_blocks, [], [KVCacheGroupSpec(["layer 0", "layer 1"], spec)])


@contextmanager
def vllm_log() -> Iterator[list[str]]:
    """What kvledger says in vLLM's log from warnings on, line by line."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.addFilter(lambda record: "kvledger" in record.getMessage())
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("vllm")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
