"""What consumers are told after a restart or a reset; changes with how they are told.

Consumers count references by place and wire hash, and two chunks can carry one hash. So what shares a hash at a place
belongs together, a family: removals for all of it, then stores for what of it is resident, with no live event of the
same hashes between. That leaves the right count whether a consumer had dropped everything or noticed nothing: a
removal of what a consumer does not credit does nothing.
"""

from collections.abc import Iterable
from typing import Any

from tracker.families import Families, Member
from tracker.places import PlaceState
from tracker.publish import Publisher


class Announcements:
    """Families of survivors that wait for their turn, and the making of what is told of a family."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting = Families(publisher)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether `next` has something to tell."""
        return self._waiting.ready

    def clear(self) -> None:
        """Forget what waits; something newer says it all again."""
        self._waiting = Families(self._publisher)

    def wait(self, families: Families) -> None:
        """Line up `families` for `next` and `before`, in place of what waited."""
        self._waiting = families

    def before(self, place: PlaceState, key: bytes, packed: bytes) -> list[Any]:
        """What has to be told before a live event of this chunk at `place`: its family, if that still waits."""
        taken = self._waiting.take(place.number, self._publisher.members(key, packed))
        return [event for family in taken for event in self.tell(family)]

    def answered(self, place: PlaceState, key: bytes, *, found: bool) -> bool:
        """The tier said whether a chunk is there. Returns whether its family still waits, and so will tell of it."""
        return self._waiting.answer(place.number, key, found=found)

    def next(self, chunks: int) -> list[Any]:
        """The next families, until at least `chunks` chunks are told; a family is never split."""
        out: list[Any] = []
        while chunks > 0 and (family := self._waiting.take_next()) is not None:
            out += self.tell(family)
            chunks -= len(family)
        if not self._waiting:
            self.clear()
        return out

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
        for one in family:
            if one.resident:
                out.append(publisher.store(one.key, one.packed, place.word, place.place.ownership, one.locality))
                # For whoever asks its tier still: a removal now is due once.
                one.credits = 1
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
    hashes: dict[int, set[Any]] = {}
    for one in touched:
        hashes.setdefault(one.place.number, set()).update(publisher.members(one.key, one.packed))
    rest: list[Member] = []
    waiting = []
    for one in residents:
        if one.place.number in hashes:
            waiting.append((one, publisher.members(one.key, one.packed)))
        else:
            rest.append(one)
    found: list[Member] = []
    grown = True
    while grown:
        grown, unrelated = False, []
        for one, nodes in waiting:
            known = hashes[one.place.number]
            if known.isdisjoint(nodes):
                unrelated.append((one, nodes))
            else:
                found.append(one)
                known.update(nodes)
                grown = True
        waiting = unrelated
    return found, rest + [one for one, _ in waiting]
