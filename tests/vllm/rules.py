"""What our tracker is to know and hold after each call, as plain sets; changes when a rule of docs/differences.md does.

It shares no code with the product. A description is known by the prompt that it came with; what it says is asked of
upstream (tests/vllm/upstream.py).
"""

from collections import deque
from dataclasses import dataclass, field

from tests.vllm.sequences import PRIMARY, Chunk, Place, Raw, Record, Sequence


@dataclass(frozen=True)
class Stay:
    """A chunk at a place, as the log has it. `stores`: how many stores of it were published."""

    locality: str | None
    stores: int


@dataclass(frozen=True)
class Opened:
    """How a residency at a place that announces removals began."""

    flag: bool
    described: bool


@dataclass
class Rules:
    """Memory and log of one process."""

    sequence: Sequence
    #: By chunk, the prompt that memory's description came with; and the log's, which is never forgotten.
    described: dict[Chunk, int] = field(default_factory=dict)
    logged: dict[Chunk, int] = field(default_factory=dict)
    #: Places in the order in which events named them.
    places: list[Place] = field(default_factory=lambda: [PRIMARY])
    #: Where memory knows chunks to be: at places that announce removals.
    known: dict[Place, dict[Chunk, Opened]] = field(default_factory=lambda: {PRIMARY: {}})
    #: Where the log has chunks.
    stays: dict[Place, dict[Chunk, Stay]] = field(default_factory=lambda: {PRIMARY: {}})
    #: Places that took stores before they turned out to announce removals.
    _unsure: set[Place] = field(default_factory=set)
    #: Chunks whose placeholders are due to be announced again.
    _late: list[Chunk] = field(default_factory=list)
    _recorded: dict[Chunk, int] = field(default_factory=dict)
    _window: deque[tuple[int, Chunk]] = field(default_factory=deque)
    _calls: int = 0

    def holds(self) -> dict[bytes, frozenset[Place]]:
        """Every hold of every chunk, by key."""
        found: dict[bytes, set[Place]] = {chunk.key: {PRIMARY} for chunk in self._recorded}
        for place, there in self.known.items():
            for chunk in there:
                found.setdefault(chunk.key, set()).add(place)
        return {key: frozenset(places) for key, places in found.items()}

    def record(self, call: Record) -> list[Chunk]:
        """Take in a record call; returns the chunks that record calls hold no longer, since there were so many."""
        chunk = call.chunk
        if not self.sequence.self_describing or not chunk.is_describable:
            return []
        if call.store or chunk not in self.described:
            if chunk not in self.described and any(chunk in there for there in self.known.values()):
                self._late.append(chunk)
            self.described[chunk] = self.logged[chunk] = call.variant
        elif chunk.partial:
            return []
        return [] if chunk in self.known[PRIMARY] else self._hold(chunk)

    def _hold(self, chunk: Chunk) -> list[Chunk]:
        self._calls += 1
        self._recorded[chunk] = self._calls
        self._window.append((self._calls, chunk))
        lapsed = []
        while len(self._window) > self.sequence.record_window:
            number, oldest = self._window.popleft()
            if self._recorded.get(oldest) == number:
                del self._recorded[oldest]
                lapsed.append(oldest)
        return lapsed

    def take_described_late(self) -> list[tuple[Chunk, Place]]:
        """Where consumers know a chunk by its placeholder, and it is described now."""
        late = [(chunk, place) for chunk in self._late for place in self.places if chunk in self.known.get(place, {})]
        self._late = []
        return late

    def stored(self, raw: Raw, chunk: Chunk) -> bool:
        """A tier stored a chunk; returns whether it was known to be there."""
        self._meet(raw)
        there = self.known.get(raw.place)
        repeated = there is not None and chunk in there
        if there is None:
            self._unsure.add(raw.place)
        elif not repeated:
            there[chunk] = Opened(raw.flag, chunk in self.described)
        if raw.place == PRIMARY:
            self._recorded.pop(chunk, None)
        stays = self.stays[raw.place]
        stay = stays.get(chunk, Stay(raw.locality, 0))
        stays[chunk] = Stay(stay.locality, stay.stores + (not repeated))
        return repeated

    def removed(self, raw: Raw, chunk: Chunk) -> bool:
        """A tier gave a chunk up; returns whether it may have been there."""
        self._meet(raw)
        there = self.known.get(raw.place)
        matched = there is None or chunk in there or raw.place in self._unsure
        if there is not None:
            there.pop(chunk, None)
        if raw.place == PRIMARY:
            self._recorded.pop(chunk, None)
        self.stays[raw.place].pop(chunk, None)
        return matched

    def _meet(self, raw: Raw) -> None:
        """A place announces removals by what the user says of it, else from the first store with the flag on."""
        place = raw.place
        if place not in self.stays:
            self.places.append(place)
            self.stays[place] = {}
        if self.sequence.policies.get(place, raw.flag):
            self.known.setdefault(place, {})

    def reset(self) -> None:
        """The scheduler reset the cache: what is at the primary is gone, all else stays."""
        self.stays[PRIMARY].clear()
        self.known[PRIMARY].clear()
        self._recorded.clear()
        self.forget()

    def forget(self) -> None:
        """The call is over: what nothing holds is kept, or it is not."""
        if not self.sequence.retains:
            held = self.holds()
            self.described = {chunk: variant for chunk, variant in self.described.items() if chunk.key in held}
