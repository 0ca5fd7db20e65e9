"""The torch transfer worker on tensors of its own: which byte goes where, and what it says of it."""

import numpy as np
import pytest
import torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    LoadStoreSpec,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from tracker.vllm.cpu_transfer import TorchTransferWorker, pair_pages

PAGE = 8
PADDED = 2
BLOCKS = 12
CHUNKS = 4
PER_CHUNK = 4


class Sides:
    """Two caches in two groups: group 0 has tensor 0, whose pages end in padding; group 1 has tensors 0 and 1."""

    def __init__(self) -> None:
        numbers = torch.arange(2 * BLOCKS * PAGE, dtype=torch.int64) % 251
        self.engine = list(numbers.to(torch.uint8).view(torch.int8).view(2, BLOCKS, PAGE))
        # Rows of a shared region lie apart: here a worker's two cells of a row, and a cell that is not its own.
        self.region = torch.zeros((CHUNKS, 3 * PAGE * PER_CHUNK), dtype=torch.int8)
        width = PAGE * PER_CHUNK
        self.pool = [self.region[:, :width], self.region[:, width : 2 * width]]
        refs = [
            [CanonicalKVCacheRef(0, PAGE - PADDED)],
            [CanonicalKVCacheRef(0, PAGE), CanonicalKVCacheRef(1, PAGE)],
        ]
        caches = CanonicalKVCaches([CanonicalKVCacheTensor(tensor, PAGE) for tensor in self.engine], refs)
        self.worker = TorchTransferWorker(caches, self.pool, PER_CHUNK)


# Group 0: the request's blocks 2 to 6, so its first chunk is entered at slot 2 and its second left after slot 2.
# Group 1: block 9 alone, at slot 1 of a chunk.
BOTH_GROUPS = GPULoadStoreSpec([7, 3, 5, 0, 11, 2], group_sizes=[5, 1], block_indices=[2, 9])
THEIR_CHUNKS = CPULoadStoreSpec([3, 1, 0])
PAGES_OF_GROUP_0 = [(7, 3, 2), (3, 3, 3), (5, 1, 0), (0, 1, 1), (11, 1, 2)]
PAGE_OF_GROUP_1 = (2, 0, 1)


def test_a_store_puts_each_block_into_its_slot_and_touches_nothing_else() -> None:
    sides = Sides()
    assert sides.worker.submit_store(1, BOTH_GROUPS, THEIR_CHUNKS)
    expected = torch.zeros_like(sides.region)
    width = PAGE * PER_CHUNK
    for block, chunk, slot in PAGES_OF_GROUP_0:
        expected[chunk, slot * PAGE : slot * PAGE + PAGE - PADDED] = sides.engine[0][block, : PAGE - PADDED]
    block, chunk, slot = PAGE_OF_GROUP_1
    expected[chunk, slot * PAGE : (slot + 1) * PAGE] = sides.engine[0][block]
    expected[chunk, width + slot * PAGE : width + (slot + 1) * PAGE] = sides.engine[1][block]
    assert torch.equal(sides.region, expected)


def test_a_load_brings_back_what_a_store_took_away_into_other_blocks() -> None:
    sides = Sides()
    sides.worker.submit_store(1, BOTH_GROUPS, THEIR_CHUNKS)
    before = [tensor.clone() for tensor in sides.engine]
    elsewhere = GPULoadStoreSpec([1, 4, 6, 8, 9, 10], group_sizes=[5, 1], block_indices=[2, 9])
    assert sides.worker.submit_load(2, THEIR_CHUNKS, elsewhere)
    expected = [tensor.clone() for tensor in before]
    for (stored, _, _), loaded in zip(PAGES_OF_GROUP_0, [1, 4, 6, 8, 9], strict=True):
        expected[0][loaded, : PAGE - PADDED] = before[0][stored, : PAGE - PADDED]
    expected[0][10] = before[0][2]
    expected[1][10] = before[1][2]
    assert torch.equal(sides.engine[0], expected[0])
    assert torch.equal(sides.engine[1], expected[1])


def test_a_result_names_job_bytes_and_seconds_and_is_given_once() -> None:
    sides = Sides()
    sides.worker.submit_store(41, BOTH_GROUPS, THEIR_CHUNKS)
    sides.worker.submit_load(42, THEIR_CHUNKS, BOTH_GROUPS)
    sides.worker.wait({41, 42})
    store, load = sides.worker.get_finished()
    assert [(store.job_id, store.success), (load.job_id, load.success)] == [(41, True), (42, True)]
    # Five pages of group 0 without their padding, one page in each of group 1's two tensors.
    assert store.transfer_size == load.transfer_size == 5 * 6 + 2 * 8
    assert store.transfer_time is not None
    assert 0 < store.transfer_time < 10
    assert sides.worker.get_finished() == []


@pytest.mark.parametrize(
    ("blocks", "chunks"),
    [
        pytest.param(BOTH_GROUPS, CPULoadStoreSpec([3, 1]), id="a chunk too few"),
        pytest.param(BOTH_GROUPS, CPULoadStoreSpec([3, 1, 0, 2]), id="a chunk too many"),
        pytest.param(BOTH_GROUPS, CPULoadStoreSpec([3, 1, CHUNKS]), id="a chunk that the pool lacks"),
        pytest.param(BOTH_GROUPS, LoadStoreSpec(), id="no chunk ids at all"),
    ],
)
def test_a_transfer_that_cannot_be_is_reported_and_leaves_the_worker_at_work(
    blocks: GPULoadStoreSpec, chunks: LoadStoreSpec
) -> None:
    sides = Sides()
    assert sides.worker.submit_load(7, chunks, blocks)
    assert sides.worker.submit_store(8, BOTH_GROUPS, THEIR_CHUNKS)
    assert [(result.job_id, result.success) for result in sides.worker.get_finished()] == [(7, False), (8, True)]


def test_a_transfer_that_does_not_add_up_moves_no_byte() -> None:
    sides = Sides()
    sides.worker.submit_store(1, BOTH_GROUPS, CPULoadStoreSpec([3, 1, 0, 2]))
    assert not sides.region.any()


def test_a_group_without_blocks_takes_no_chunk() -> None:
    engine = GPULoadStoreSpec([5], group_sizes=[0, 1], block_indices=[0, 3])
    (pages,) = pair_pages(engine, np.array([2]), blocks_per_chunk=4)
    assert (pages.group, pages.blocks.tolist(), pages.chunks.tolist(), pages.slots.tolist()) == (1, [5], [2], [3])


def test_a_cache_on_a_device_is_refused_by_name() -> None:
    on_device = CanonicalKVCacheTensor(torch.empty((BLOCKS, PAGE), dtype=torch.int8, device="meta"), PAGE)
    caches = CanonicalKVCaches([on_device], [[CanonicalKVCacheRef(0, PAGE)]])
    with pytest.raises(ValueError, match="lies on meta"):
        TorchTransferWorker(caches, [torch.empty((CHUNKS, PAGE), dtype=torch.int8)], blocks_per_chunk=1)


def test_a_pool_of_another_shape_is_refused() -> None:
    caches = CanonicalKVCaches(
        [CanonicalKVCacheTensor(torch.empty((BLOCKS, PAGE), dtype=torch.int8), PAGE)], [[CanonicalKVCacheRef(0, PAGE)]]
    )
    with pytest.raises(ValueError, match="a pool row of 8 bytes does not hold 4 pages of 8 bytes"):
        TorchTransferWorker(caches, [torch.empty((CHUNKS, PAGE), dtype=torch.int8)], blocks_per_chunk=4)


def test_shutdown_lets_go_of_the_pool_before_it_is_released() -> None:
    released = []
    caches = CanonicalKVCaches(
        [CanonicalKVCacheTensor(torch.zeros((BLOCKS, PAGE), dtype=torch.int8), PAGE)], [[CanonicalKVCacheRef(0, PAGE)]]
    )
    pool = torch.zeros((CHUNKS, PAGE), dtype=torch.int8)
    worker = TorchTransferWorker(caches, [pool], 1, release=lambda: released.append(len(worker._pool_pages)))
    worker.shutdown()
    worker.shutdown()
    assert released == [0]
