"""Chunks that consumers have yet to be told of, by what shares a hash at a place; changes with what belongs together.

Built on any thread, then used by the engine's alone, where every call costs what it tells and not what waits.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from eventstore.domain.kvevents import WireHash
from tracker.places import PlaceState
from tracker.publish import Publisher


class Member(msgspec.Struct):
    """A chunk at a place: what consumers may credit of it, and whether it is there.

    `credits`: how many stores of it consumers may have seen without a removal, at least 1.
    """

    place: PlaceState
    key: bytes
    packed: bytes
    locality: str | None
    credits: int
    resident: bool
    #: Its tier has been asked and has not answered yet.
    asked: bool = False


class Families:
    """Members by family. Every member is in one; families that share a hash at a place are one."""

    def __init__(self, publisher: Publisher, members: Iterable[Member] = ()) -> None:
        self._publisher = publisher
        self._families: dict[int, list[Member]] = {}
        #: By place and hash, the family's number; of a family that was told, a number that leads nowhere.
        self._by_hash: dict[int, dict[WireHash, int]] = {}
        self._unanswered: dict[int, int] = {}
        #: Numbers whose turn it is, the oldest first; some may be told or merged already.
        self._queue: deque[int] = deque()
        self._last = 0
        for member in members:
            self.add(member)

    def __bool__(self) -> bool:
        return bool(self._families)

    @property
    def ready(self) -> bool:
        """Whether some family waits for nothing but its turn."""
        return bool(self._queue)

    def add(self, member: Member) -> None:
        """One more member; families that it joins become one."""
        hashes = self._publisher.members(member.key, member.packed)
        table = self._by_hash.setdefault(member.place.number, {})
        joined = {number for one in hashes if (number := table.get(one, 0)) in self._families}
        if joined:
            number = self._merge(joined, table)
            self._families[number].append(member)
        else:
            self._last = number = self._last + 1
            self._families[number] = [member]
        for one in hashes:
            table[one] = number
        if member.asked:
            self._unanswered[number] = self._unanswered.get(number, 0) + 1
        elif not joined:
            self._queue.append(number)

    def _merge(self, numbers: set[int], table: dict[WireHash, int]) -> int:
        largest = max(numbers, key=lambda number: len(self._families[number]))
        for number in numbers - {largest}:
            moved = self._families.pop(number)
            for member in moved:
                table.update(dict.fromkeys(self._publisher.members(member.key, member.packed), largest))
            self._families[largest] += moved
            if number in self._unanswered:
                self._unanswered[largest] = self._unanswered.get(largest, 0) + self._unanswered.pop(number)
        if len(numbers) > 1 and largest not in self._unanswered:
            self._queue.append(largest)
        return largest

    def find(self, place: int, key: bytes) -> tuple[int, Member] | None:
        """A chunk's family and member, if it waits. Its last hash is its key's, described or not."""
        number = self._by_hash.get(place, {}).get(self._publisher.members(key, b"")[0])
        for member in self._families.get(number, ()) if number is not None else ():
            if member.key == key and number is not None:
                return number, member
        return None

    def drop(self, place: int, key: bytes) -> Member | None:
        """Take a chunk out: something else has told of it. Returns its member."""
        found = self.find(place, key)
        if found is None:
            return None
        number, member = found
        self._families[number].remove(member)
        if member.asked:
            self._settle(number)
        if not self._families[number]:
            del self._families[number]
            self._unanswered.pop(number, None)
        return member

    def answer(self, place: int, key: bytes, *, found: bool) -> bool:
        """A tier said whether a chunk is there. Returns whether its family waits, and so will tell of it."""
        waiting = self.find(place, key)
        if waiting is None:
            return False
        number, member = waiting
        member.resident = member.resident and found
        if member.asked:
            member.asked = False
            self._settle(number)
        return True

    def _settle(self, number: int) -> None:
        self._unanswered[number] -= 1
        if not self._unanswered[number]:
            del self._unanswered[number]
            self._queue.append(number)

    def take(self, place: int, hashes: Iterable[WireHash]) -> list[list[Member]]:
        """Take out the families that any of `hashes` at `place` belongs to."""
        table = self._by_hash.get(place)
        taken = []
        for one in hashes if table else ():
            number = table.get(one) if table else None
            if number is not None and (family := self._families.pop(number, None)) is not None:
                self._unanswered.pop(number, None)
                taken.append(family)
        return taken

    def ended(self) -> list[list[Member]]:
        """The families that have a member that is no longer there."""
        return [family for family in self._families.values() if not all(member.resident for member in family)]

    def take_next(self) -> list[Member] | None:
        """Take out the family whose turn it is; None where none is ready."""
        while self._queue:
            number = self._queue.popleft()
            if number in self._families and number not in self._unanswered:
                return self._families.pop(number)
        return None
