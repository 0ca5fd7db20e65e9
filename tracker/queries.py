"""Questions to the tracker, answered from memory; changes with what the offload path and tests may ask."""

from collections.abc import Iterator, Mapping

import msgspec

from eventstore.domain.metadata import Metadata, unpack
from eventstore.domain.place import PRIMARY, Medium, Place
from tracker.index import Chunk, Index
from tracker.places import Places


class Held(msgspec.Struct, frozen=True):
    """What holds a chunk's metadata: a set of (medium, ownership)."""

    active_residencies: frozenset[tuple[Medium, str | None]]


class Queries:
    """For places that announce removals. Of the others the views know (`eventstore.views.residency`)."""

    index: Index
    places_known: Places

    def places(self, key: bytes) -> set[Place]:
        """Where the chunk is resident."""
        chunk = self.index.chunks.get(key)
        return {state.place for state in self.places_known.by_number.values() if chunk and chunk.resident & state.bit}

    def is_resident(self, key: bytes, place: Place) -> bool:
        """Whether the chunk is resident at `place`."""
        return place in self.places(key)

    def metadata(self, key: bytes) -> Metadata | None:
        """The chunk's description, if memory has it: held or retained."""
        chunk = self.index.chunks.get(key)
        return unpack(key, chunk.packed) if chunk is not None and chunk.packed else None

    @property
    def pending(self) -> "Pending":
        """The chunks that are held, by key; read-only."""
        return Pending(self)

    def holds(self, chunk: Chunk) -> Held:
        """The holds of one chunk."""
        found = {s.place for s in self.places_known.by_number.values() if chunk.resident & s.bit}
        if chunk.recorded:
            found.add(PRIMARY)
        return Held(frozenset((place.medium, place.ownership) for place in found))


class Pending(Mapping[bytes, Held]):
    """Upstream's `_pending_event_metadata` as a view: each held chunk's key and holds."""

    def __init__(self, tracker: Queries) -> None:
        self._tracker = tracker

    def __getitem__(self, key: bytes) -> Held:
        chunk = self._tracker.index.chunks[key]
        if not (chunk.resident or chunk.recorded):
            raise KeyError(key)
        return self._tracker.holds(chunk)

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._tracker.index.held())

    def __len__(self) -> int:
        return self._tracker.index.held_count()
