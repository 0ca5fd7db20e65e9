"""A file tier with bounded room, which announces what it removes as well as what it stores.

vLLM's own file tier (`vllm/v1/kv_offload/tiering/fs/manager.py`) grows without bound and never announces a removal.
This one evicts the least recently used chunk to make room, before the new one is written. Its entry in
`secondary_tiers` takes every setting of vLLM's `fs` tier and two more:

    {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier", "root_dir": "/mnt/kv",
     "max_chunks": 1000, "owner": "nvme0", "enable_kv_events": true, "locality": "LOCAL"}

The folder belongs to one engine at a time: what is held is known from memory, so a file that another process adds
is not found before the next start.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import LookupResult, OffloadingEvent, OffloadKey, ReqContext
from vllm.v1.kv_offload.tiering.base import JobId, JobResult, TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

from tracker.vllm.chunk_files import find_chunks, find_unfinished

if TYPE_CHECKING:
    from vllm.v1.kv_offload.base import OffloadingSpec

logger = init_logger(f"vllm.{__name__}")


class EvictingFileTier(FileSystemTierManager):
    """vLLM's file tier, with at most `max_chunks` files, least recently used out first.

    Like every tier it is entered by one thread at a time (`SecondaryTierManager` in
    `vllm/v1/kv_offload/tiering/base.py`); only the reading and writing of files happens elsewhere.
    """

    def __init__(
        self,
        offloading_spec: "OffloadingSpec",
        primary_kv_view: memoryview,
        tier_type: str,
        *,
        root_dir: str,
        max_chunks: int,
        owner: str,
        enable_kv_events: bool = False,
        **file_tier_settings: Any,
    ) -> None:
        """Take up what lies in the folder, oldest out first where it exceeds the room.

        What is taken up is not announced as stored: whoever folds the events of both lives has heard of it, but for
        chunks written and not yet announced when the former life ended. The removal of one of those is the first
        that a consumer hears of it.

        Args:
            offloading_spec: vLLM's, passed on.
            primary_kv_view: vLLM's, of shape (chunks, bytes a chunk), passed on.
            tier_type: vLLM's, passed on.
            root_dir: the folder, of this engine alone.
            max_chunks: the room, in chunk files. Files being written count.
            owner: the `ownership` of every event.
            enable_kv_events: announce; needs KV events enabled for the engine too.
            file_tier_settings: what else the `fs` tier takes.

        Raises:
            ValueError: there is no room for even one chunk.
        """
        if max_chunks < 1:
            raise ValueError(f"max_chunks is {max_chunks}: an evicting tier needs room for at least one chunk")
        # vLLM's events name no owner, and repeat a store of what is held already: this class makes its own.
        super().__init__(
            offloading_spec, primary_kv_view, tier_type, root_dir, enable_kv_events=False, **file_tier_settings
        )
        self._max_chunks = max_chunks
        self.owner = owner
        self._announces = enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events
        if enable_kv_events and not self._announces:
            logger.warning("tier %r announces nothing: KV cache events are disabled for the engine", owner)
        self._announcements: list[OffloadingEvent] = []
        # Written and not removed; the next to go is first.
        self._resident: OrderedDict[OffloadKey, None] = OrderedDict()
        self._arriving: set[OffloadKey] = set()
        self._stores: dict[JobId, list[OffloadKey]] = {}
        self._loads: dict[JobId, list[OffloadKey]] = {}
        self._readers: Counter[OffloadKey] = Counter()
        self._done_at_once: list[JobId] = []
        self._take_up()

    @property
    def resident_keys(self) -> Collection[OffloadKey]:
        """The chunks that a lookup finds here, the next to be evicted first."""
        return self._resident.keys()

    # A lookup on disk could find a file that is evicted before its load is submitted. Memory cannot, and answers at
    # once where the disk's answer takes another scheduler step.
    @override
    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        if key not in self._resident:
            return LookupResult.MISS
        self._resident.move_to_end(key)
        return LookupResult.HIT

    @override
    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        # The end of a prefix is of no use without its head, so the head is to go last.
        for key in reversed(list(keys)):
            if key in self._resident:
                self._resident.move_to_end(key)

    @override
    def submit_store(self, job_metadata: TransferJob) -> None:
        """Write what is not held yet, as far as room can be made; the rest of the job is declined."""
        keys = list(job_metadata.keys)
        self.touch(keys, job_metadata.req_context)
        new = [at for at, key in enumerate(keys) if key not in self._resident and key not in self._arriving]
        new = new[: self._make_room(len(new), spare=set(keys))]
        if not new:
            self._done_at_once.append(job_metadata.job_id)
            return
        stored = [keys[at] for at in new]
        self._stores[job_metadata.job_id] = stored
        self._arriving.update(stored)
        super().submit_store(replace(job_metadata, keys=stored, chunk_ids=job_metadata.chunk_ids[new]))

    @override
    def submit_load(self, job_metadata: TransferJob) -> None:
        keys = list(job_metadata.keys)
        self._loads[job_metadata.job_id] = keys
        self._readers.update(keys)
        super().submit_load(job_metadata)

    @override
    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = [JobResult(job_id, success=True, transfer_bytes=0) for job_id in self._done_at_once]
        self._done_at_once.clear()
        for result in super().get_finished_jobs():
            if stored := self._stores.pop(result.job_id, None):
                self._end_store(stored, result)
            elif loaded := self._loads.pop(result.job_id, None):
                self._end_load(loaded, result)
            results.append(result)
        return results

    @override
    def take_events(self) -> Iterable[OffloadingEvent]:
        taken, self._announcements = self._announcements, []
        return taken

    def _take_up(self) -> None:
        for leftover in find_unfinished(self.file_mapper):
            leftover.unlink(missing_ok=True)
        found = sorted(find_chunks(self.file_mapper), key=lambda chunk: chunk.written_ns)
        self._resident.update((chunk.key, None) for chunk in found)
        # A power cut can leave a file that was renamed and never filled.
        broken = [chunk.key for chunk in found if chunk.size != self.block_size_bytes]
        self._remove(broken)
        self._make_room(0, spare=set())

    def _make_room(self, wanted: int, spare: set[OffloadKey]) -> int:
        """Evict until `wanted` more chunks fit, and return how many of them do."""
        free = self._max_chunks - len(self._resident) - len(self._arriving)
        victims: list[OffloadKey] = []
        for key in self._resident:
            if free + len(victims) >= wanted:
                break
            if key not in spare and not self._readers[key]:
                victims.append(key)
        self._remove(victims)
        return max(0, min(wanted, free + len(victims)))

    def _end_store(self, keys: list[OffloadKey], result: JobResult) -> None:
        self._arriving.difference_update(keys)
        if not result.success:
            # The writer stops at the first file that fails; those before it are there.
            keys = [key for key in keys if self._path(key).exists()]
        self._resident.update(dict.fromkeys(keys))
        self._announce(keys, removed=False)

    def _end_load(self, keys: list[OffloadKey], result: JobResult) -> None:
        self._readers -= Counter(keys)
        if result.success:
            return
        loaded = set(result.successful_keys or ())
        # Found again, it would be tried again, for ever: a chunk that cannot be read is as good as gone.
        self._remove([key for key in keys if key not in loaded and key in self._resident and not self._readers[key]])

    def _remove(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            del self._resident[key]
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("could not delete %s, which the tier gives up: %s", path, error)
        self._announce(keys, removed=True)

    def _announce(self, keys: Sequence[OffloadKey], *, removed: bool) -> None:
        if self._announces and keys:
            self._announcements.append(
                OffloadingEvent(
                    keys=list(keys),
                    medium=self.medium,
                    removed=removed,
                    locality=self.locality,
                    ownership=self.owner,
                    removal_expected=not removed,
                )
            )

    def _path(self, key: OffloadKey) -> Path:
        return Path(self.file_mapper.get_file_name(key))
