"""When consumers are told again: after a restart, after a reset, once a placeholder is described; changes with when.

Survivors are lined up on another thread: those of a restart while the engine already runs, those of a reset once the
writer has read them, right after the reset is committed, because memory does not know what is at places that never
announce removals. Until they arrive, live events are noted, so that nothing stale is announced.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from eventstore.domain.events import End, Kind, Reason, StreamBody, locality_of
from eventstore.domain.residency import Resident
from tracker.announce import Announcements
from tracker.confirm import Asked, Confirmation
from tracker.families import Families, Member
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
    """The survivors of a restart or a reset, lined up, and what resets ended where memory could not know."""

    generation: int
    families: Families


class Retelling:
    """Announcements on their way, on the engine thread. `loaded` is filled from elsewhere."""

    def __init__(self, settings: Settings, index: Index, places: Places, publisher: Publisher) -> None:
        self.loaded: deque[Loaded] = deque()
        self._lined_up = threading.Condition()
        #: Resets whose survivors were not announced, since their log could not be read in time.
        self.given_up = 0
        #: Whether live events have to pass through `live`.
        self.active = False
        self._settings, self._index, self._places, self._publisher = settings, index, places, publisher
        self._families = Announcements(publisher)
        self.confirmation = Confirmation(settings, index, places, publisher, self._families)
        self._generation = 0
        #: Everything up to this one has been told. Set on the engine thread.
        self.told_generation = 0
        #: The writer's: what resets ended where memory could not know, by generation, until it is told.
        self._ended: list[tuple[int, list[Resident]]] = []
        #: By reset, the places where memory did not know all that it ended.
        self._unknown: dict[int, frozenset[int]] = {}
        self._noted: dict[tuple[int, bytes], _Live] | None = None

    @property
    def waiting(self) -> bool:
        """Whether consumers have yet to be told of survivors that are lined up."""
        return bool(self._families)

    @property
    def awaiting(self) -> bool:
        """Whether survivors are still being lined up."""
        return self._noted is not None

    @property
    def told(self) -> bool:
        """Whether nothing is due any more."""
        return not (self.waiting or self.awaiting)

    @property
    def has_news(self) -> bool:
        """Whether the next call has something to say that no engine event brings."""
        return bool(self.loaded or self._families.ready or (self.confirmation.answers and not self.awaiting))

    def restarted(self, asked: dict[tuple[int, bytes], Asked], *, survivors: bool) -> int:
        """The process begins. `asked`: the survivors whose tier is being asked. Returns the generation under which
        the survivors are to be `loaded`, if they are announced."""
        self.confirmation.begin(asked)
        self._noted = {} if survivors else None
        self._update_active()
        return self._generation

    def wait_lined_up(self, timeout_s: float) -> bool:
        """Wait until what is awaited is lined up, if anything is. Not for the engine thread."""
        with self._lined_up:
            return self._lined_up.wait_for(self._is_lined_up, timeout_s)

    def _is_lined_up(self) -> bool:
        return not self.awaiting or any(one.generation == self._generation for one in list(self.loaded))

    def line_up(self, generation: int, survivors: Callable[[], list[Member]]) -> None:
        """Line up on a thread of its own, for as long as it takes, what the next call then takes up."""

        def work() -> None:
            families = Families(self._publisher, survivors())
            with self._lined_up:
                self.loaded.append(Loaded(generation, families))
                self._lined_up.notify_all()

        threading.Thread(target=work, name="kvledger-survivors", daemon=True).start()

    def line_up_reset(self, generation: int, survivors: list[Resident], ended: list[Resident]) -> None:
        """What the log has of a reset. Called by the writer, right after the reset's commit."""
        states = self._places.by_number
        self._ended = [(of, some) for of, some in self._ended if of > self.told_generation]
        unknown = self._unknown.pop(generation)
        self._ended.append((generation, [one for one in ended if one.place in unknown]))
        # What earlier resets ended is still due where this one came before it was told.
        due = [one for _, some in self._ended for one in some]
        self.line_up(generation, lambda: together(states, survivors, due))

    def give_up(self, generation: int) -> None:
        """The log could not be read after a reset: its survivors are not announced."""
        self.given_up += 1
        self._unknown.pop(generation)
        self.line_up(generation, list)

    def _update_active(self) -> None:
        if self.told:
            self.told_generation = self._generation
        self.active = bool(self._families or self.confirmation) or self.awaiting

    def tell_now(self, members: list[Member]) -> list[Any]:
        """All of `members` at once: whatever shares a hash with one of them is among them."""
        return self._families.tell_all(members)

    def reset(self, step: Step, *, logging: bool) -> bool:
        """End in memory what does not survive a reset, say so in `step`, and ask for the survivors. Returns whether
        some of what ended can be told only once it was read from the log."""
        self._families.clear()
        ending = [state for state in self._places.by_number.values() if not state.survives_reset]
        self._generation += 1
        mode = self._settings.announce
        # What ended there memory may not know of; the others it has told already.
        unknown = frozenset(state.number for state in ending if state.unknown or not state.announces)
        wanted = mode == "full" or (mode == "closes" and bool(unknown))
        for state in ending:
            self._end(step, state)
        if self.confirmation:
            self.confirmation.ended({state.number for state in ending})
        self._noted = {} if wanted and logging else None
        if self.awaiting:
            self._unknown[self._generation] = unknown
        self._update_active()
        body = StreamBody(ends=[End(state.number, Reason.CACHE_RESET) for state in ending])
        step.controls.append(Control(Kind.CACHE_RESET, body, self._generation if self.awaiting else 0))
        return self.awaiting and bool(unknown)

    def _end(self, step: Step, state: PlaceState) -> None:
        index, gone = self._index, []
        for key, chunk in list(index.held()):
            if chunk.resident & state.bit:
                gone.append((key, chunk.packed, 1))
                chunk.resident ^= state.bit
            if state.primary:
                chunk.recorded = 0
            index.release(key, chunk)
        state.unknown = False
        if self._settings.announce != "none":
            step.out += self._publisher.removals(gone, state.word, state.place.ownership, None)

    def begin_call(self, step: Step) -> bool:
        """Take in what was lined up, and what tiers have answered, since the last call. Returns whether what an
        answer ended is told only by later calls, with its family."""
        while self.loaded:
            loaded = self.loaded.popleft()
            if loaded.generation == self._generation and self._noted is not None:
                self._line_up(step, loaded, self._noted)
                self._noted = None
        # Also when nothing is asked any more: families wait for the answers that live events have outrun.
        told_later = self._noted is None and bool(self.confirmation.answers) and self.confirmation.apply(step)
        self._update_active()
        return told_later

    def _line_up(self, step: Step, loaded: Loaded, noted: dict[tuple[int, bytes], _Live]) -> None:
        """Bring `loaded` up to what has happened since it was read."""
        families = loaded.families
        for (number, key), live in noted.items():
            found = families.find(number, key)
            if found is not None and not live.resident and not found[1].resident:
                continue  # ended by the reset, and still not there: its removal is due
            known = families.drop(number, key)
            if live.resident:
                # What a live removal has taken away in the meantime is not announced again; this is there.
                packed = live.packed or (known.packed if known else b"")
                credits = live.stores + (known.credits if known else 0)
                state = self._places.by_number[number]
                families.add(Member(state, key, packed, live.locality, max(credits, 1), resident=True))
        if self._settings.announce == "full":
            self._families.wait(families)
        else:
            for family in families.ended():
                step.out += self._families.tell(family)

    def live(self, place: PlaceState, key: bytes, chunk: Chunk, locality: str | None, *, stored: bool) -> list[Any]:
        """What must be published before this live event, if anything."""
        self.confirmation.noticed(place, key)
        return self._first(place, key, chunk, locality, stored=stored)

    def _first(self, place: PlaceState, key: bytes, chunk: Chunk, locality: str | None, *, stored: bool) -> list[Any]:
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
        """A resident placeholder is described now: the placeholder's removal, then the full store. It is ours to say,
        so that its tier has yet to be heard about the chunk."""
        out = self._first(place, key, chunk, None, stored=True) if self.active else []
        medium, owner = place.word, place.place.ownership
        out += self._publisher.removals([(key, b"", 1)], medium, owner, None)
        out.append(self._publisher.store(key, chunk.packed, medium, owner, None))
        return out


def member(place: PlaceState, found: Resident, *, resident: bool) -> Member:
    """A residency of the log as announcements see it."""
    locality = locality_of(found.flags)
    return Member(place, found.key, found.packed, locality.value if locality else None, found.stores, resident)


def together(states: dict[int, PlaceState], survivors: list[Resident], ended: list[Resident]) -> list[Member]:
    """Each chunk at each place once: what of it is there, and what consumers may credit of it in all."""
    members = {(one.place, one.key): member(states[one.place], one, resident=True) for one in survivors}
    for one in ended:
        known = members.get((one.place, one.key))
        if known is None:
            members[one.place, one.key] = member(states[one.place], one, resident=False)
        else:
            known.credits += one.stores
    return list(members.values())
