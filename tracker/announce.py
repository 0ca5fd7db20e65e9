"""What consumers are told after a restart or a reset; changes with how they are told.

Consumers count references by place and wire hash, and two chunks can carry one hash. So what shares a hash at a place
belongs together, a family: removals for all of it, then stores for what of it is resident, with no live event of the
same hashes between. That leaves the right count whether a consumer had dropped everything or noticed nothing: a
removal of what a consumer does not credit does nothing.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

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


class Announcements:
    """Families of survivors that wait for their turn, and the making of what is told of a family."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._queue: deque[int] = deque()
        self._families: dict[int, list[Member]] = {}
        self._by_hash: dict[tuple[int, WireHash], int] = {}
        self._unanswered: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._families)

    def __len__(self) -> int:
        return sum(map(len, self._families.values()))

    def clear(self) -> None:
        """Forget what waits; something newer says it all again."""
        self._queue.clear()
        self._families.clear()
        self._by_hash.clear()
        self._unanswered.clear()

    def wait(self, members: Iterable[Member]) -> None:
        """Line up `members`, family by family, for `next` and `before`."""
        self.clear()
        self._families = {number: family for number, family in enumerate(self.families(members))}
        for number, family in self._families.items():
            asked = sum(member.asked for member in family)
            if asked:
                self._unanswered[number] = asked
            else:
                self._queue.append(number)
            for member in family:
                for one in self._publisher.members(member.key, member.packed):
                    self._by_hash[member.place.number, one] = number

    def before(self, place: PlaceState, key: bytes, packed: bytes) -> list[Any]:
        """What has to be told before a live event of this chunk at `place`: its family, if that still waits."""
        out: list[Any] = []
        for one in self._publisher.members(key, packed):
            number = self._by_hash.get((place.number, one))
            if number is not None and number in self._families:
                out += self.tell(self._families.pop(number))
        return out

    def answered(self, place: PlaceState, key: bytes, packed: bytes, *, found: bool) -> bool:
        """The tier said whether a chunk is there. Returns whether its family still waits, and so will tell of it."""
        number = self._by_hash.get((place.number, self._publisher.members(key, packed)[-1]))
        family = self._families.get(number) if number is not None else None
        if family is None or number is None:
            return False
        for member in family:
            if member.key == key:
                member.resident = member.resident and found
                if member.asked:
                    member.asked = False
                    self._unanswered[number] -= 1
        if not self._unanswered.get(number, 1):
            del self._unanswered[number]
            self._queue.append(number)
        return True

    @property
    def ready(self) -> bool:
        """Whether `next` has something to tell."""
        return bool(self._queue)

    def next(self, chunks: int) -> list[Any]:
        """The next families, until at least `chunks` chunks are told; a family is never split."""
        out: list[Any] = []
        while self._queue and chunks > 0:
            family = self._families.pop(self._queue.popleft(), None)
            if family is not None:
                out += self.tell(family)
                chunks -= len(family)
        if not self._families:
            self.clear()
        return out

    def families(self, members: Iterable[Member]) -> list[list[Member]]:
        """`members` by what shares a hash at a place, in the order in which the families appear."""
        parent: dict[tuple[int, WireHash], tuple[int, WireHash]] = {}

        def root(node: tuple[int, WireHash]) -> tuple[int, WireHash]:
            while parent[node] != node:
                parent[node] = node = parent[parent[node]]
            return node

        anchors = []
        for member in members:
            nodes = [(member.place.number, one) for one in self._publisher.members(member.key, member.packed)]
            for node in nodes:
                parent.setdefault(node, node)
            first = root(nodes[0])
            for node in nodes[1:]:
                parent[root(node)] = first
            anchors.append((first, member))
        made: dict[tuple[int, WireHash], list[Member]] = {}
        for node, member in anchors:
            made.setdefault(root(node), []).append(member)
        return list(made.values())

    def tell(self, family: list[Member]) -> list[Any]:
        """Removals for all of `family`, then stores for what of it is resident."""
        place, publisher = family[0].place, self._publisher
        by_locality: dict[str | None, list[Member]] = {}
        for member in family:
            by_locality.setdefault(member.locality, []).append(member)
        out: list[Any] = []
        for locality, some in by_locality.items():
            triples = ((one.key, one.packed, one.credits) for one in some)
            out += publisher.removals(triples, place.word, place.place.ownership, locality)
        out += [
            publisher.store(one.key, one.packed, place.word, place.place.ownership, one.locality)
            for one in family
            if one.resident
        ]
        return out

    def tell_all(self, members: list[Member]) -> list[Any]:
        """Everything about `members` at once, where all that shares a hash with one of them is among them.

        Removals first, place by place, so that a frame holds many.
        """
        out: list[Any] = []
        by_place: dict[int, list[Member]] = {}
        for member in members:
            by_place.setdefault(member.place.number, []).append(member)
        for some in by_place.values():
            out += self.tell(some)
        return out


def related(
    publisher: Publisher, touched: list[Member], residents: Iterable[Member]
) -> tuple[list[Member], list[Member]]:
    """`residents` parted into those that share a hash at a place with one of `touched`, over any number of steps, and
    the rest. A chunk that is itself touched is with the first."""
    if not touched:
        return [], list(residents)
    hashes = {(one.place.number, h) for one in touched for h in publisher.members(one.key, one.packed)}
    waiting = [(one, [(one.place.number, h) for h in publisher.members(one.key, one.packed)]) for one in residents]
    found: list[Member] = []
    grown = True
    while grown:
        grown, rest = False, []
        for one, nodes in waiting:
            if hashes.isdisjoint(nodes):
                rest.append((one, nodes))
            else:
                found.append(one)
                hashes.update(nodes)
                grown = True
        waiting = rest
    return found, [one for one, _ in waiting]
