"""How KV pages move between the engine's caches and the offload pool when both are CPU memory.

vLLM's own worker (`vllm/v1/kv_offload/cpu/gpu_worker.py`) copies with a GPU's copy engine and refuses a CPU
platform. On a CPU the model has finished a step before any transfer of the next one is submitted, so a copy can
be made in the submitting call: there is no stream to order it against, and nothing left to wait for.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)

logger = init_logger(f"vllm.{__name__}")


class GroupPages(NamedTuple):
    """Where the blocks of one KV-cache group lie on both sides: three arrays of one length, an entry a block."""

    group: int
    blocks: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]


def pair_pages(
    engine: GPULoadStoreSpec, chunk_ids: npt.NDArray[np.integer], blocks_per_chunk: int
) -> Iterator[GroupPages]:
    """Pair every engine block of a transfer with its slot in a pool chunk, group by group.

    Both sides list their ids group after group. A group's first block sits `block_index % blocks_per_chunk` slots
    into its first chunk, and its last chunk may be partial too (`GPULoadStoreSpec` in `vllm/v1/kv_offload/base.py`).

    Raises:
        ValueError: the chunk ids are not as many as the blocks need.
    """
    blocks = engine.block_ids.astype(np.int64)
    chunks = chunk_ids.astype(np.int64)
    block_at = chunk_at = 0
    for group, (size, first) in enumerate(zip(engine.group_sizes, engine.block_indices, strict=True)):
        if size == 0:
            continue
        places = first % blocks_per_chunk + np.arange(size)
        group_chunks = chunks[chunk_at : chunk_at + int(places[-1]) // blocks_per_chunk + 1]
        if len(group_chunks) <= places[-1] // blocks_per_chunk:
            raise ValueError(f"group {group} needs more chunks than the {len(chunks)} of the transfer")
        yield GroupPages(
            group,
            blocks[block_at : block_at + size],
            group_chunks[places // blocks_per_chunk],
            places % blocks_per_chunk,
        )
        block_at += size
        chunk_at += len(group_chunks)
    if chunk_at != len(chunks):
        raise ValueError(f"the transfer lists {len(chunks)} chunks where its blocks need {chunk_at}")


class TorchTransferWorker(OffloadingWorker):
    """An `OffloadingWorker` that copies pages with torch, in the call that submits the transfer.

    A transfer that fails is reported by `get_finished` as not successful, never raised: the caller may have others.
    """

    def __init__(
        self,
        kv_caches: CanonicalKVCaches,
        pool: Sequence[torch.Tensor],
        blocks_per_chunk: int,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the pages of both sides.

        Args:
            kv_caches: the engine's caches; tensor i has shape (blocks, page bytes) once seen as int8.
            pool: for tensor i an int8 tensor of shape (chunks, page bytes * blocks_per_chunk). Its rows may lie
                apart, as they do in a shared region.
            blocks_per_chunk: engine blocks in one chunk of the pool.
            release: called once, at shutdown, when no view of the pool is held here any more.

        Raises:
            ValueError: a tensor lies on a device, or the two sides differ in shape.
        """
        self._blocks_per_chunk = blocks_per_chunk
        self._group_refs = kv_caches.group_data_refs
        self._release = release
        self._finished: list[TransferResult] = []
        self._engine_pages: list[torch.Tensor] = []
        self._pool_pages: list[torch.Tensor] = []
        for cache, chunks in zip(kv_caches.tensors, pool, strict=True):
            if cache.tensor.device.type != "cpu":
                raise ValueError(
                    f"the KV cache lies on {cache.tensor.device}: this worker copies between CPU tensors only; "
                    "use vLLM's own offloading spec there"
                )
            if chunks.shape[1] != cache.page_size_bytes * blocks_per_chunk:
                raise ValueError(
                    f"a pool row of {chunks.shape[1]} bytes does not hold {blocks_per_chunk} pages of "
                    f"{cache.page_size_bytes} bytes"
                )
            self._engine_pages.append(cache.tensor.view(torch.int8).view(-1, cache.page_size_bytes))
            self._pool_pages.append(chunks.view(chunks.shape[0], blocks_per_chunk, cache.page_size_bytes))

    @override
    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        """Copy engine pages into the pool. Always true: the outcome is in `get_finished`."""
        return self._run(job_id, src_spec, dst_spec, self._store_group)

    # `expedited` came with vLLM 0.33.0; here every load is done when this returns.
    @override
    def submit_load(
        self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec, expedited: bool = False
    ) -> bool:
        """Copy pool pages into the engine. Always true: the outcome is in `get_finished`."""
        return self._run(job_id, dst_spec, src_spec, self._load_group)

    @override
    def get_finished(self) -> list[TransferResult]:
        """Return what was submitted since the last call, in that order. Sizes in bytes, times in seconds."""
        finished, self._finished = self._finished, []
        return finished

    @override
    def wait(self, job_ids: set[int]) -> None:
        """Return at once: a submitted transfer is a finished one."""

    @override
    def shutdown(self) -> None:
        """Let go of both sides' memory, the pool's owner last."""
        self._engine_pages.clear()
        self._pool_pages.clear()
        release, self._release = self._release, lambda: None
        release()

    def _run(
        self,
        job_id: int,
        engine: GPULoadStoreSpec,
        pool: LoadStoreSpec,
        copy_group: Callable[[GroupPages], int],
    ) -> bool:
        started = time.perf_counter()
        try:
            if not isinstance(pool, BlockIDsLoadStoreSpec):
                raise TypeError(f"a pool side of type {type(pool).__name__} lists no chunk ids")
            # All pairs first: a transfer that does not add up must not move half of its pages.
            groups = list(pair_pages(engine, pool.block_ids, self._blocks_per_chunk))
            size = sum(copy_group(pages) for pages in groups)
        except Exception:
            logger.exception("KV transfer %d failed", job_id)
            self._finished.append(TransferResult(job_id=job_id, success=False))
        else:
            elapsed = time.perf_counter() - started
            self._finished.append(TransferResult(job_id, True, transfer_size=size, transfer_time=elapsed))
        return True

    # A page's padding is not copied: a ref's page size is the unpadded one.
    def _store_group(self, pages: GroupPages) -> int:
        blocks, chunks, slots = map(torch.from_numpy, pages[1:])
        refs = self._group_refs[pages.group]
        for ref in refs:
            page = slice(0, ref.page_size_bytes)
            self._pool_pages[ref.tensor_idx][chunks, slots, page] = self._engine_pages[ref.tensor_idx][blocks, page]
        return len(blocks) * sum(ref.page_size_bytes for ref in refs)

    def _load_group(self, pages: GroupPages) -> int:
        blocks, chunks, slots = map(torch.from_numpy, pages[1:])
        refs = self._group_refs[pages.group]
        for ref in refs:
            page = slice(0, ref.page_size_bytes)
            self._engine_pages[ref.tensor_idx][blocks, page] = self._pool_pages[ref.tensor_idx][chunks, slots, page]
        return len(blocks) * sum(ref.page_size_bytes for ref in refs)
