"""vLLM's offloading specs with the torch copy in place of the GPU's: KV offloading on a machine without a GPU.

Both are loaded by name from `kv_connector_extra_config`: `{"spec_name": <class name>, "spec_module_path":
"tracker.vllm.cpu_spec", ...}`. The manager, the tiers and the configuration are vLLM's own
(`vllm/v1/kv_offload/cpu/spec.py`, `vllm/v1/kv_offload/tiering/spec.py`).
"""

import torch
from typing_extensions import override
from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingWorker
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from tracker.vllm.cpu_transfer import TorchTransferWorker


class TorchCPUOffloadingSpec(CPUOffloadingSpec):
    """Offloading into a CPU pool that the worker process alone uses."""

    _transfers: TorchTransferWorker | None = None

    @override
    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if self._transfers is None:
            pool = [
                torch.zeros((self.num_chunks, cache.page_size_bytes * self.blocks_per_chunk), dtype=torch.int8)
                for cache in kv_caches.tensors
            ]
            self._transfers = TorchTransferWorker(kv_caches, pool, self.blocks_per_chunk)
        return self._transfers


class TorchTieringOffloadingSpec(TieringOffloadingSpec):
    """Offloading into the region that the scheduler process shares, from where its tiers read and write."""

    _transfers: TorchTransferWorker | None = None

    @override
    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if self._transfers is None:
            self._transfers = self._create_transfers(kv_caches)
        return self._transfers

    def _create_transfers(self, kv_caches: CanonicalKVCaches) -> TorchTransferWorker:
        if self.config.canonical_layout:
            raise ValueError(
                "canonical_layout rearranges bytes within a page, and the torch transfer worker copies pages as "
                "they are: remove canonical_layout from kv_connector_extra_config"
            )
        region = SharedOffloadRegion(
            engine_id=self.config.engine_id,
            num_chunks=self.num_chunks,
            rank=0 if self.replicated_layout else self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        try:
            pool = [
                region.create_next_worker_view(cache.page_size_bytes * self.blocks_per_chunk)
                for cache in kv_caches.tensors
            ]
            return TorchTransferWorker(kv_caches, pool, self.blocks_per_chunk, release=region.cleanup)
        except Exception:
            # The region's file in shared memory outlives the process unless it is removed here.
            region.cleanup()
            raise
