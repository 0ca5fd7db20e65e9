"""What the log says after any number of facts, as plain dicts: the rule of residency again, from its description;
changes when the meaning of a fact does.

It shares no code with the product, and knows nothing of bits, numbers, batches or SQL.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from eventstore.domain.place import Medium, Place
from tests.tracker.samples import BY_KEY, PRIMARY

#: (medium, ownership, wire hash).
Credit = tuple[str, str | None, int]


class Policy(NamedTuple):
    """What is true of a place. `announces` None: it does from the first store on that carries the flag."""

    announces: bool | None
    survives_restart: bool
    survives_reset: bool


DEFAULTS = {
    "primary": Policy(True, False, False),
    Medium.CPU: Policy(None, False, True),
    Medium.STORAGE: Policy(None, True, True),
}


class Fact(NamedTuple):
    """One event of the log. `flags`: those that it has; `again`: where a placeholder is told again, in full; `engine`:
    what an epoch says that the engine is."""

    kind: Literal["described", "stored", "removed", "confirmed", "closed", "reset", "started", "ended"]
    key: bytes = b""
    place: Place = PRIMARY
    flags: frozenset[str] = frozenset()
    again: frozenset[Place] = frozenset()
    announce: str = ""
    engine: int = 0


@dataclass
class Stay:
    """An open residency. `told`: the hashes that consumers were told of it; `stores`: how many published stores."""

    opened: int
    stores: int
    told: set[int]


@dataclass
class World:
    """What the log says after the facts that it was given."""

    policies: dict[Place, Policy]
    facts: int = 0
    open: dict[tuple[bytes, Place], Stay] = field(default_factory=dict)
    closed: list[tuple[bytes, Place, int, int, str, int]] = field(default_factory=list)
    places: list[Place] = field(default_factory=lambda: [PRIMARY])
    flagged: set[Place] = field(default_factory=set)
    described: set[bytes] = field(default_factory=set)
    #: The chunks in the order in which they were first named.
    named: list[bytes] = field(default_factory=list)
    engine: int = 0

    def policy(self, place: Place) -> Policy:
        """By exact place, else the default."""
        return self.policies.get(place) or DEFAULTS["primary" if place == PRIMARY else place.medium]

    def announces(self, place: Place) -> bool:
        """Whether removals are announced there."""
        known = self.policy(place).announces
        return place in self.flagged if known is None else known

    def at(self, key: bytes) -> set[Place]:
        """Where the chunk is resident."""
        return {place for one, place in self.open if one == key}

    def apply(self, fact: Fact) -> None:
        """Take in one fact."""
        if fact.key and fact.key not in self.named:
            self.named.append(fact.key)
        getattr(self, f"_{fact.kind}")(fact)
        self.facts += 1

    def _described(self, fact: Fact) -> None:
        self.described.add(fact.key)
        for place in fact.again:
            self.open[fact.key, place].told |= set(BY_KEY[fact.key].hashes)

    def _stored(self, fact: Fact) -> None:
        self._name(fact)
        if "removal_expected" in fact.flags:
            self.flagged.add(fact.place)
        sample = BY_KEY[fact.key]
        told = {sample.own_hash} if "placeholder" in fact.flags else set(sample.hashes)
        stay = self.open.get((fact.key, fact.place))
        if stay is None:
            self.open[fact.key, fact.place] = Stay(self.facts, 1, told)
        elif "repeated" not in fact.flags:
            stay.stores += 1
            stay.told |= told

    def _removed(self, fact: Fact) -> None:
        self._name(fact)
        if (fact.key, fact.place) in self.open:
            elsewhere = self.at(fact.key) != {fact.place}
            reason = "demoted" if elsewhere else "evicted"
            self._close(fact.key, fact.place, "metadata_only" if "metadata_only" in fact.flags else reason)

    def _confirmed(self, fact: Fact) -> None:
        pass

    def _closed(self, fact: Fact) -> None:
        if (fact.key, fact.place) in self.open:
            self._close(fact.key, fact.place, "missing")

    def _reset(self, fact: Fact) -> None:
        self._end_all("cache_reset", [place for place in self.places if not self.policy(place).survives_reset])
        self._tell_survivors(fact)

    def _started(self, fact: Fact) -> None:
        self._end_all("engine_restart", [place for place in self.places if not self.survives_restart(place)])
        if self.engine not in (0, fact.engine):
            self._end_all("config_changed", self.places)
        self.engine = fact.engine
        self._tell_survivors(fact)

    def survives_restart(self, place: Place) -> bool:
        """The primary never does, whatever is configured."""
        return place != PRIMARY and self.policy(place).survives_restart

    def _ended(self, fact: Fact) -> None:
        pass

    def _name(self, fact: Fact) -> None:
        if fact.place not in self.places:
            self.places.append(fact.place)

    def _end_all(self, reason: str, places: list[Place]) -> None:
        for key, place in list(self.open):
            if place in places:
                self._close(key, place, reason)

    def _close(self, key: bytes, place: Place, reason: str) -> None:
        stay = self.open.pop((key, place))
        self.closed.append((key, place, stay.opened, self.facts, reason, stay.stores))

    def _tell_survivors(self, fact: Fact) -> None:
        for (key, _), stay in self.open.items():
            if fact.announce == "full" and key in self.described:
                stay.told |= set(BY_KEY[key].hashes)

    def credits(self, *, most: bool) -> set[Credit]:
        """What a consumer must credit or, `most`, may credit: where a chunk was described after it had been stored at
        a place that announces no removals, consumers may know it by its own hash alone."""
        return {
            (place.medium.value, place.ownership, one)
            for (key, place), stay in self.open.items()
            for one in (stay.told | (set(BY_KEY[key].hashes) if most and key in self.described else set()))
        }
