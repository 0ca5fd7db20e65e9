"""The installed vLLM's own tracker, and what it says of chunks; changes with upstream's interface."""

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import msgspec
import vllm
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import OffloadingEventsTracker
from vllm.v1.kv_offload.base import Locality, Medium, OffloadingEvent, OffloadingKVEventsConfig

from tests.vllm.sequences import GROUPS, PRIMARY, Chunk, Place, Raw, Record

KVEvent = BlockStored | BlockRemoved
Hash = int | bytes
#: By key of each chunk that is held, where.
Holds = dict[bytes, frozenset[Place]]
VERSION = ".".join(vllm.__version__.split(".")[:2])
#: 0.33 has removals that are never announced.
HAS_METADATA_ONLY = any(field.name == "metadata_only" for field in fields(OffloadingEvent))
_GROUP_SPECS = {group.group_idx: group.kv_event_group_spec for group in GROUPS}
_TAKES_GROUP_SPECS = "group_specs" in inspect.signature(OffloadingEventsTracker.__init__).parameters


def group_specs(self_describing: bool) -> dict[int, Any] | None:
    """What placeholders say of their group, where this vLLM has them say it."""
    return _GROUP_SPECS if _TAKES_GROUP_SPECS and self_describing else None


def use_hashes(*, integers: bool) -> None:
    """Choose how upstream puts hashes into events; it looks each time."""
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(int(integers))


class Upstream:
    """One of upstream's trackers."""

    def __init__(self, *, self_describing: bool) -> None:
        config = OffloadingKVEventsConfig(enable_kv_cache_events=True, self_describing_kv_events=self_describing)
        more = {"group_specs": _GROUP_SPECS} if _TAKES_GROUP_SPECS else {}
        self.tracker = OffloadingEventsTracker(config, **more)

    def holds(self) -> Holds:
        """By key of each chunk that it has metadata of, the residencies that keep it."""
        return {
            key: frozenset((medium.value, owner) for medium, owner in known.active_residencies)
            for key, known in self.tracker._pending_event_metadata.items()
        }

    def take_events(self, events: Sequence[OffloadingEvent]) -> list[list[KVEvent]]:
        """What it publishes for each of `events`, taken as one batch. It publishes as it goes."""
        made: list[list[KVEvent]] = [[] for _ in events]
        at = 0

        def one_by_one() -> Iterator[OffloadingEvent]:
            nonlocal at
            for at, event in enumerate(events):
                yield event

        for event in self.tracker.take_events(one_by_one()):
            made[at].append(event)
        return made


def record(tracker: Any, call: Record) -> None:
    """Make the call on a tracker of either kind."""
    chunk, partial = call.chunk, "partial_" if call.chunk.partial else ""
    method = getattr(tracker, f"record_{partial}{'store' if call.store else 'lookup'}")
    method(chunk.prompts[call.variant], chunk.group, chunk.at, chunk.key)


def event_of(raw: Raw) -> OffloadingEvent:
    """The raw event as vLLM's own."""
    medium, owner = raw.place
    more = {"metadata_only": raw.metadata_only} if HAS_METADATA_ONLY else {}
    return OffloadingEvent(
        keys=[chunk.key for chunk in raw.chunks],
        medium=Medium(medium),
        removed=raw.removed,
        locality=Locality(raw.locality) if raw.locality is not None else None,
        ownership=owner,
        removal_expected=raw.flag,
        **more,
    )


@cache
def full_store(chunk: Chunk, variant: int, integers: bool) -> BlockStored:
    """What upstream publishes for the store of a chunk that was just recorded, at the primary place."""
    fresh = Upstream(self_describing=True)
    record(fresh.tracker, Record(True, chunk, variant))
    return _store(fresh, chunk, integers)


@cache
def placeholder(chunk: Chunk, self_describing: bool, integers: bool) -> BlockStored:
    """What upstream publishes for the store of a chunk that was never recorded, at the primary place."""
    return _store(Upstream(self_describing=self_describing), chunk, integers)


def _store(fresh: Upstream, chunk: Chunk, integers: bool) -> BlockStored:
    use_hashes(integers=integers)
    ((store,),) = fresh.take_events([event_of(Raw(False, PRIMARY, (chunk,), False, None, False))])
    return store


def at(event: KVEvent, place: Place, locality: str | None) -> KVEvent:
    """`event` at another place."""
    return msgspec.structs.replace(event, medium=place[0], ownership=place[1], locality=locality)


def removal(place: Place, group: int, hashes: list[Hash], locality: str | None) -> BlockRemoved:
    """One removal of blocks of one group."""
    return BlockRemoved(hashes, place[0], group, locality, place[1])
