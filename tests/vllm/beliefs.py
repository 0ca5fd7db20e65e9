"""What a router believes of an engine's offloading: references by place and wire hash; changes with how routers count.

Written from the description of a router and for the tests alone. It also notes what no event should be: a store
without tokens, a removal that leaves out a member of its chunk.
"""

from collections import Counter
from collections.abc import Iterable

from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent

#: (medium, ownership).
At = tuple[str | None, str | None]
Hash = int | bytes
#: A chunk as events name it: its KV-cache group and its last block's hash. No other chunk ends with the same.
Chunk = tuple[int, Hash]


class Beliefs:
    """References by place and hash. What is on the GPU, vLLM's own scheduler says; it is left out."""

    def __init__(self) -> None:
        self._credits: dict[At, Counter[Hash]] = {}
        self._members: dict[Chunk, tuple[Hash, ...]] = {}
        self._removals: list[BlockRemoved] = []
        self.placeholders = 0

    def read(self, event: KVCacheEvent) -> None:
        """Believe one event. A removal of what has no credit is ignored, as one of an unknown block is."""
        if isinstance(event, BlockStored) and event.medium != "GPU":
            self._store(event)
        elif isinstance(event, BlockRemoved) and event.medium != "GPU":
            self._remove(event)

    def at(self, place: At) -> Counter[Hash]:
        """What it credits to a place, with the count of references."""
        return +self._credits.get(place, Counter())

    def hashes_of(self, chunks: Iterable[Chunk]) -> Counter[Hash]:
        """The hashes of whole chunks, as far as stores have ever told them: of others, the one that names them."""
        return Counter(one for chunk in chunks for one in self._members.get(chunk, chunk[1:]))

    def forget(self) -> None:
        """Believe nothing any more, as a router that noticed a restart. How chunks are made up stays true."""
        self._credits.clear()

    def torn_removals(self) -> list[BlockRemoved]:
        """The removals since last asked that left out a member of a chunk: of one described before them or since."""
        removals, self._removals = self._removals, []
        return [event for event in removals if self._is_torn(event)]

    def _is_torn(self, event: BlockRemoved) -> bool:
        named, due = Counter(event.block_hashes), Counter[Hash]()
        for one, times in named.items():
            for member in self._members.get((event.group_idx or 0, one), ()):
                due[member] += times
        return bool(due - named)

    def _store(self, event: BlockStored) -> None:
        at, group, hashes = (event.medium, event.ownership), event.group_idx or 0, tuple(event.block_hashes)
        if not event.token_ids:
            self.placeholders += 1
        else:
            chunk = (group, hashes[-1])
            known = self._members.setdefault(chunk, hashes)
            assert known == hashes, f"the chunk {chunk} was said to be {known}, now {hashes}"
        self._credits.setdefault(at, Counter()).update(hashes)

    def _remove(self, event: BlockRemoved) -> None:
        self._removals.append(event)
        credited = self._credits.setdefault((event.medium, event.ownership), Counter())
        for one, times in Counter(event.block_hashes).items():
            credited[one] = max(0, credited[one] - times)
