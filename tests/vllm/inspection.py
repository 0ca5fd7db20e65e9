"""What an engine core says of its offloading, asked in the process where it runs, whatever the connector is."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_offload.base import OffloadingManager
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from tracker.vllm.chunk_files import find_chunks
from tracker.vllm.evicting_tier import EvictingFileTier

SETTLE_S = 60.0


class InspectedScheduler(Scheduler):
    """vLLM's scheduler; importing it where the engine core runs lets the core be asked about its offloading."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps = self.preemptions = 0
        EngineCore.offloading_settled = _settle  # type: ignore[attr-defined]
        EngineCore.offloading_truth = _truth  # type: ignore[attr-defined]
        EngineCore.offloading_steps = lambda core: core.scheduler.steps  # type: ignore[attr-defined]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self.steps += 1
        return super().schedule(*args, **kwargs)

    def _preempt_request(self, *args: Any, **kwargs: Any) -> None:
        self.preemptions += 1
        super()._preempt_request(*args, **kwargs)


def _settle(core: EngineCore) -> None:
    step: Callable[[], Any] = getattr(core, "_process_engine_step", core.step_fn)
    give_up = time.monotonic() + SETTLE_S
    while core.scheduler.has_requests():
        step()
        if time.monotonic() > give_up:
            raise TimeoutError(f"the engine still has work {SETTLE_S} s after its last request")


def connector_of(core: Any) -> Any:
    """Return the scheduler's side of an engine core's offloading connector, the one that is or the one among many."""
    connector = core.scheduler.connector
    among = getattr(connector, "sub_connectors", [connector])
    return next(one for one in among if hasattr(one, "connector_scheduler"))


def manager_of(core: Any) -> OffloadingManager:
    """Return the offloading manager behind the connector of an engine core."""
    manager = connector_of(core).connector_scheduler.manager
    assert isinstance(manager, OffloadingManager)
    return manager


def _truth(core: EngineCore) -> dict[str, Any]:
    manager = manager_of(core)
    tiers: Sequence[SecondaryTierManager] = ()
    if isinstance(manager, TieringOffloadingManager):
        tiers = manager.secondary_tiers
        manager = manager.primary_tier
    assert isinstance(manager, CPUOffloadingManager)
    policy = manager._policy
    assert isinstance(policy, LRUCachePolicy)
    return {
        "cpu": [key.hex() for key, chunk in policy.chunks.items() if chunk.is_ready],
        "tiers": {_tier_name(tier): _tier_keys(tier) for tier in tiers},
    }


def _tier_name(tier: SecondaryTierManager) -> str:
    return tier.owner if isinstance(tier, EvictingFileTier) else tier.tier_type


def _tier_keys(tier: SecondaryTierManager) -> list[str]:
    if isinstance(tier, EvictingFileTier):
        return [key.hex() for key in tier.resident_keys]
    assert isinstance(tier, FileSystemTierManager)
    return [chunk.key.hex() for chunk in find_chunks(tier.file_mapper)]
