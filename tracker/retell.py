"""When consumers are told again: after a restart, after a reset, once a placeholder is described; changes with when.

Survivors of a restart are known before the first call. Survivors of a reset are read by the writer, right after the
reset is committed, because memory does not know what is at places that never announce removals; until they arrive,
live events are noted so that nothing stale is announced.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from eventstore.domain.events import End, Kind, Reason, StreamBody, locality_of
from eventstore.domain.residency import Resident
from tracker.announce import Announcements, Member
from tracker.confirm import Asked, Confirmation
from tracker.index import Chunk, Index
from tracker.outbox import Control, Step
from tracker.places import Places, PlaceState
from tracker.publish import Publisher
from tracker.settings import Settings

#: Live events noted while survivors are awaited. Beyond it they are not announced: the store must be out of reach.
MOST_NOTED = 1_000_000


class _Live(msgspec.Struct):
    """What happened to a chunk at a place since the reset: stores published, and whether it is there now."""

    stores: int
    resident: bool
    locality: str | None
    packed: bytes


class Loaded(msgspec.Struct, frozen=True):
    """What the log knows of a reset: what survived it, and what it ended."""

    generation: int
    survivors: list[Resident]
    ended: list[Resident]


class Retelling:
    """Announcements on their way, on the engine thread. `loaded` is filled by the writer."""

    def __init__(self, settings: Settings, index: Index, places: Places, publisher: Publisher) -> None:
        self.loaded: deque[Loaded] = deque()
        #: Resets whose survivors were not announced, since their log could not be read in time.
        self.given_up = 0
        #: Whether live events have to pass through `live`.
        self.active = False
        self._settings, self._index, self._places, self._publisher = settings, index, places, publisher
        self._families = Announcements(publisher)
        self.confirmation = Confirmation(settings, index, places, publisher, self._families)
        self._generation = 0
        self._noted: dict[tuple[int, bytes], _Live] | None = None

    @property
    def waiting(self) -> int:
        """Survivors that consumers have yet to be told of."""
        return len(self._families)

    @property
    def awaiting(self) -> bool:
        """Whether the writer has yet to say what survived a reset."""
        return self._noted is not None

    def restarted(self, survivors: Iterable[Member], asked: dict[tuple[int, bytes], Asked]) -> None:
        """Line up what survived the restart. `asked`: those of all survivors whose tier is being asked."""
        self._families.wait(survivors)
        self.confirmation.begin(asked)
        self._update_active()

    def _update_active(self) -> None:
        self.active = bool(self._families or self.confirmation) or self._noted is not None

    @property
    def has_news(self) -> bool:
        """Whether the next call has something to say that no engine event brings."""
        return bool(self.loaded or self.confirmation.answers or self._families.ready)

    def tell_now(self, members: list[Member]) -> list[Any]:
        """All of `members` at once: whatever shares a hash with one of them is among them."""
        return self._families.tell_all(members)

    def reset(self, step: Step, *, logging: bool) -> None:
        """End in memory what does not survive a reset, say so in `step`, and ask for the survivors."""
        self._families.clear()
        ending = [state for state in self._places.by_number.values() if not state.survives_reset]
        for state in ending:
            self._end(step, state)
        self._generation += 1
        mode = self._settings.announce
        wanted = mode == "full" or (mode == "closes" and any(not state.announces for state in ending))
        self._noted = {} if wanted and logging else None
        self._update_active()
        body = StreamBody(ends=[End(state.number, Reason.CACHE_RESET) for state in ending])
        step.controls.append(Control(Kind.CACHE_RESET, body, self._generation if self.awaiting else 0))

    def _end(self, step: Step, state: PlaceState) -> None:
        index, gone = self._index, []
        for key, chunk in list(index.held()):
            if chunk.resident & state.bit:
                gone.append((key, chunk.packed, 1))
                chunk.resident ^= state.bit
            if state.primary:
                chunk.recorded = 0
            index.release(key, chunk)
        if self._settings.announce != "none":
            step.out += self._publisher.removals(gone, state.word, state.place.ownership, None)

    def begin_call(self, step: Step) -> None:
        """Take in what the writer has read since the last call."""
        while self.loaded:
            loaded = self.loaded.popleft()
            if loaded.generation == self._generation and self._noted is not None:
                self._line_up(step, loaded, self._noted)
                self._noted = None
        if self.confirmation:
            self.confirmation.apply(step, self._missing)
        self._update_active()

    def _missing(self, place: PlaceState, key: bytes, chunk: Chunk) -> None:
        if self._noted is not None:
            self.live(place, key, chunk, None, stored=False)

    def _line_up(self, step: Step, loaded: Loaded, noted: dict[tuple[int, bytes], _Live]) -> None:
        members: dict[tuple[int, bytes], Member] = {}
        states = self._places.by_number
        for there, some in ((True, loaded.survivors), (False, loaded.ended)):
            for one in some:
                if not there and states[one.place].announces:
                    continue  # memory knew of it and has told already
                members[one.place, one.key] = member(states[one.place], one, resident=there)
        for (number, key), live in noted.items():
            known = members.get((number, key))
            if known is None:
                known = members[number, key] = Member(states[number], key, live.packed, live.locality, 0, False)
            known.resident, known.packed = live.resident, live.packed or known.packed
            known.credits += live.stores
        # What a live removal has taken away in the meantime is not announced again.
        told = [one for at, one in members.items() if one.resident or at not in noted]
        if self._settings.announce == "full":
            self._families.wait(told)
        else:
            step.out += self._families.tell_all([one for one in told if not one.resident])

    def live(self, place: PlaceState, key: bytes, chunk: Chunk, locality: str | None, *, stored: bool) -> list[Any]:
        """What must be published before this live event, if anything."""
        self.confirmation.noticed(place, key)
        noted = self._noted
        if noted is None:
            return self._families.before(place, key, chunk.packed)
        found = noted.get((place.number, key))
        if found is None:
            if len(noted) >= MOST_NOTED:
                self._noted = None
                self.given_up += 1
                return []
            found = noted[place.number, key] = _Live(0, stored, locality, chunk.packed)
        found.stores = found.stores + 1 if stored else 0
        found.resident, found.packed = stored, chunk.packed or found.packed
        return []

    def next(self) -> list[Any]:
        """The next survivors, a bounded number a call."""
        out = self._families.next(self._settings.survivors_a_call)
        self._update_active()
        return out

    def described(self, place: PlaceState, key: bytes, chunk: Chunk) -> list[Any]:
        """A resident placeholder is described now: the placeholder's removal, then the full store."""
        out = self.live(place, key, Chunk(b""), None, stored=True) if self.active else []
        medium, owner = place.word, place.place.ownership
        out += self._publisher.removals([(key, b"", 1)], medium, owner, None)
        out.append(self._publisher.store(key, chunk.packed, medium, owner, None))
        return out


def member(place: PlaceState, found: Resident, *, resident: bool) -> Member:
    """A residency of the log as announcements see it."""
    locality = locality_of(found.flags)
    return Member(place, found.key, found.packed, locality.value if locality else None, found.stores, resident)
