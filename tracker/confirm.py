"""What a tier's answers do to the survivors of a restart; changes with what an answer means.

A survivor is unconfirmed from the opening of the epoch until its tier has been asked. One that is not found is closed
as missing, and its removal published without a store. A live event of the chunk at that place outruns the answer.
"""

from collections import deque
from collections.abc import Container

import msgspec

from eventstore.domain.events import Kind, Reason
from tracker.announce import Announcements
from tracker.checker import Answer
from tracker.families import Member
from tracker.index import Chunk, Index
from tracker.outbox import Run, Step
from tracker.places import Places, PlaceState
from tracker.publish import Publisher
from tracker.settings import Settings

_CONFIRMED = int(Kind.RESIDENCY_CONFIRMED) | int(Reason.RESTATED) << 4
_MISSING = int(Kind.RESIDENCY_CLOSED) | int(Reason.MISSING) << 4


class Asked(msgspec.Struct, frozen=True):
    """A survivor that a question is out for. `number` is the chunk's in the log."""

    number: int
    member: Member


class Confirmation:
    """The open questions, on the engine thread. `answers` is filled by the checker."""

    def __init__(
        self, settings: Settings, index: Index, places: Places, publisher: Publisher, families: Announcements
    ) -> None:
        self.answers: deque[Answer] = deque()
        self.missing = 0
        self._settings, self._index, self._places = settings, index, places
        self._publisher, self._families = publisher, families
        self._asked: dict[tuple[int, bytes], Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def begin(self, asked: dict[tuple[int, bytes], Asked]) -> None:
        """These survivors wait for an answer."""
        self._asked = asked

    def noticed(self, place: PlaceState, key: bytes) -> None:
        """The tier spoke of the chunk itself, so what it answers about the time before does not count."""
        self._asked.pop((place.number, key), None)

    def ended(self, places: Container[int]) -> None:
        """A reset ended everything at `places`: what their tiers answer about the time before does not count."""
        for number, key in [one for one in self._asked if one[0] in places]:
            del self._asked[number, key]

    def apply(self, step: Step) -> bool:
        """Take up one batch of answers. Returns whether what it ended is told only later, with its family."""
        if not self.answers:
            return False
        answer = self.answers.popleft()
        state = self._places.by_number[answer.place]
        found = self._settled(state, answer.found, found=True)
        missing = self._settled(state, answer.missing, found=False)
        for code, some in ((_CONFIRMED, found), (_MISSING, missing)):
            if some:
                chunks = [self._chunk(key, asked) for key, asked, _ in some]
                step.runs.append(Run(code | state.code, [key for key, _, _ in some], chunks))
                step.count += len(some)
        untold = []
        for key, asked, told_later in missing:
            packed = self._end(state, key, asked.member.packed)
            if not told_later and self._settings.announce != "none":
                untold.append((key, packed, asked.member.credits))
        self.missing += len(missing)
        step.out += self._publisher.removals(untold, state.word, state.place.ownership, None)
        return any(told_later for _, _, told_later in missing)

    def _settled(self, state: PlaceState, keys: list[bytes], *, found: bool) -> list[tuple[bytes, Asked, bool]]:
        """Those of `keys` that are still asked for, and whether their family will tell of them."""
        settled = []
        for key in keys:
            asked = self._asked.pop((state.number, key), None)
            # Where an event of the chunk outran the answer, the family need wait for it no longer either.
            waits = self._families.answered(state, key, found=found or asked is None)
            if asked is not None:
                settled.append((key, asked, waits))
        return settled

    def _chunk(self, key: bytes, asked: Asked) -> Chunk:
        return self._index.chunks.get(key) or Chunk(asked.member.packed, number=asked.number)

    def _end(self, state: PlaceState, key: bytes, packed: bytes) -> bytes:
        """Returns what consumers know the chunk by: `packed`, unless it was described to them since."""
        chunk = self._index.chunks.get(key)
        if chunk is None or not chunk.resident & state.bit:
            return packed
        chunk.resident ^= state.bit
        self._index.release(key, chunk)
        return chunk.packed
