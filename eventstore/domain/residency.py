"""The one rule: what an event does to residency; changes only when the meaning of an event does.

Everything that holds residency goes through `effect`, or is tested against it where it must say the same in other
means: the SQL triggers of the views (migrations/) and the bit arithmetic of the tracker's memory (tracker/index.py).
"""

import enum
from collections.abc import Iterator

import msgspec

from eventstore.domain.events import METADATA_ONLY, PLACEHOLDER, REPEATED, Event, Kind, Reason, decode_body


class Change(enum.Enum):
    """What happens to one chunk's residency at one place."""

    NOTHING = "nothing"
    OPEN = "open"
    #: Stored again: the residency stays the one that it is.
    REPEAT = "repeat"
    CLOSE = "close"


def effect(kind: Kind, is_open: bool) -> Change:
    """What an event about a chunk at a place does there. It depends on the state alone, never on what a flag says."""
    if kind is Kind.CHUNK_STORED:
        return Change.REPEAT if is_open else Change.OPEN
    if kind in (Kind.CHUNK_REMOVED, Kind.RESIDENCY_CLOSED) and is_open:
        return Change.CLOSE
    return Change.NOTHING


def reason_of(event: Event, elsewhere: bool) -> Reason:
    """Why the residency that `event` closes ended; `elsewhere`: the chunk is resident at another place too."""
    if event.kind is Kind.RESIDENCY_CLOSED:
        return Reason(event.flags)
    if event.flags & METADATA_ONLY:
        return Reason.METADATA_ONLY
    return Reason.DEMOTED if elsewhere else Reason.EVICTED


class Residency(msgspec.Struct):
    """A chunk at a place, from the store that opened it. `stores` counts the stores published since then, the first
    included: what a consumer that counts references may credit."""

    chunk: int
    place: int
    opened_seq: int
    opened_ns: int
    flags: int
    stores: int = 1
    confirmed: bool = True

    @property
    def placeholder(self) -> bool:
        """Whether consumers know it by a placeholder only."""
        return bool(self.flags & PLACEHOLDER)


class Closed(msgspec.Struct, frozen=True):
    """A residency that ended."""

    residency: Residency
    closed_seq: int
    closed_ns: int
    reason: Reason


class Resident(msgspec.Struct, gc=False):
    """An open residency with its chunk. `packed` is the chunk's latest description, empty where it has none."""

    number: int
    key: bytes
    packed: bytes
    place: int
    flags: int
    stores: int


class Fold:
    """Residency as a fold over events in seq order: the rule applied, in memory, for any number of chunks."""

    def __init__(self) -> None:
        self.open: dict[int, dict[int, Residency]] = {}

    def apply(self, event: Event) -> list[Closed]:
        """Take in one event; returns what it ended, in order of chunk and place."""
        if event.kind in (Kind.EPOCH_STARTED, Kind.CACHE_RESET):
            return self._apply_to_all(event)
        if event.kind is Kind.CHUNK_DESCRIBED and event.body:
            for residency in self.open.get(event.chunk, {}).values():
                # Once described, the chunk is announced again in full, so it is no placeholder any more.
                residency.flags &= ~PLACEHOLDER
            return []
        places = self.open.get(event.chunk, {})
        if event.kind is Kind.RESIDENCY_CONFIRMED and event.place in places:
            places[event.place].confirmed = True
        change = effect(event.kind, event.place in places)
        if change is Change.OPEN:
            made = Residency(event.chunk, event.place, event.seq, event.time_ns, event.flags)
            self.open.setdefault(event.chunk, {})[event.place] = made
        elif change is Change.REPEAT:
            places[event.place].stores += not event.flags & REPEATED
            places[event.place].confirmed = True
        elif change is Change.CLOSE:
            return [self._close(event, places[event.place], reason_of(event, elsewhere=len(places) > 1))]
        return []

    def _apply_to_all(self, event: Event) -> list[Closed]:
        body = decode_body(event.body)
        reasons = {end.place: end.reason for end in body.ends}
        ended = [self._close(event, r, reasons[r.place]) for r in list(self) if r.place in reasons] if reasons else []
        for residency in self if body.unconfirmed else ():
            residency.confirmed = residency.confirmed and residency.place not in body.unconfirmed
        return ended

    def _close(self, event: Event, residency: Residency, reason: Reason) -> Closed:
        places = self.open[residency.chunk]
        del places[residency.place]
        if not places:
            del self.open[residency.chunk]
        return Closed(residency, event.seq, event.time_ns, reason)

    def __iter__(self) -> Iterator[Residency]:
        """All open residencies, in order of chunk and place."""
        for chunk in sorted(self.open):
            places = self.open[chunk]
            for place in sorted(places):
                yield places[place]
