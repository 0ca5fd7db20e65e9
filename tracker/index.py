"""The tracker's memory: every chunk that is held or retained, and nothing else; changes with what keeps metadata alive.

Residency is kept as a bit a place. The rule is `eventstore.domain.residency`'s, said in bits because this is the
engine's hot path; the tests hold the two together.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

import msgspec

#: What a retained chunk costs beside its packed metadata, in bytes: key, dictionary slots, the object.
OVERHEAD = 320


class Chunk(msgspec.Struct, gc=False):
    """One chunk in memory.

    packed: the packed metadata, empty while the chunk is not described.
    resident: bit n is set while it is resident at place n, for places that announce removals.
    recorded: the number of the record call that holds it at the primary place, 0 for none.
    number: the chunk's number in the log, 0 until the writer has found or made it.
    """

    packed: bytes
    resident: int = 0
    recorded: int = 0
    number: int = 0


class Index:
    """Chunks by key. A chunk in it is held, or described and retained.

    Holds of record calls that nothing followed are bounded by the last `record_window` calls, retained metadata by
    `retained_bytes`; what leaves either leaves oldest first.
    """

    def __init__(self, retained_bytes: int, record_window: int) -> None:
        self.chunks: dict[bytes, Chunk] = {}
        self.retained: OrderedDict[bytes, None] = OrderedDict()
        self.retained_size = 0
        self._retained_limit = retained_bytes
        self._window: deque[bytes] = deque()
        self._window_limit = record_window
        self._calls = 0

    def record(self, key: bytes, chunk: Chunk) -> None:
        """A record call holds `chunk` at the primary place."""
        if key in self.retained:
            self.unretain(key, chunk)
        self._calls = chunk.recorded = self._calls + 1
        window = self._window
        window.append(key)
        if len(window) > self._window_limit:
            oldest = window.popleft()
            lapsed = self.chunks.get(oldest)
            if lapsed is not None and lapsed.recorded == self._calls - len(window):
                lapsed.recorded = 0
                self.release(oldest, lapsed)

    def unretain(self, key: bytes, chunk: Chunk) -> None:
        """`chunk` is about to be held, so the retained set has it no longer."""
        if key in self.retained:
            del self.retained[key]
            self.retained_size -= len(chunk.packed) + OVERHEAD

    def release(self, key: bytes, chunk: Chunk) -> None:
        """A hold of `chunk` ended: where it was the last, the metadata is retained, or gone if there is none."""
        if chunk.resident or chunk.recorded or key in self.retained:
            return
        if not chunk.packed:
            self.chunks.pop(key, None)
            return
        self.retained[key] = None
        self.retained_size += len(chunk.packed) + OVERHEAD

    def trim(self) -> None:
        """Bring the retained set under its limit, oldest first. Called between batches: within one, a removal may
        come before the store that needs the same metadata."""
        while self.retained_size > self._retained_limit and self.retained:
            key, _ = self.retained.popitem(last=False)
            self.retained_size -= len(self.chunks.pop(key).packed) + OVERHEAD

    def retain_older(self, key: bytes, chunk: Chunk) -> None:
        """Put a chunk of the log into the retained set, as the first to leave it. For recovery, newest first."""
        self.chunks[key] = chunk
        self.release(key, chunk)
        self.retained.move_to_end(key, last=False)

    def has_room(self, packed: bytes) -> bool:
        """Whether the retained set could take one more without losing another."""
        return self.retained_size + len(packed) + OVERHEAD <= self._retained_limit

    def held(self) -> Iterator[tuple[bytes, Chunk]]:
        """Every chunk with a hold."""
        return ((key, chunk) for key, chunk in self.chunks.items() if chunk.resident or chunk.recorded)

    def held_count(self) -> int:
        """How many chunks have a hold."""
        return len(self.chunks) - len(self.retained)
