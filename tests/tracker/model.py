"""What a tracker must do, as plain dicts: what is held, what is known, what goes to the log and out; changes when a
rule does.

It shares no code with the product. `World` (tests/tracker/world.py) is what the log says; this adds memory, calls and
deaths.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from eventstore.domain.kvevents import BlockRemoved
from eventstore.domain.place import Place
from tests.tracker.published import full_store, placeholder, removal
from tests.tracker.samples import PRIMARY, Sample
from tests.tracker.world import Fact, Policy, World


class Step(NamedTuple):
    """What one call adds to the log, and the live events that it publishes."""

    facts: list[Fact]
    out: list[Any]


class Model:
    """The world as it will be once all is committed, what memory holds of it, and what goes out."""

    def __init__(self, policies: dict[Place, Policy], *, retains: bool) -> None:
        self._policies, self._retains = policies, retains
        self.committed: list[Fact] = []
        self.pending: list[Step] = []
        self.live = World(policies)
        self.known: set[bytes] = set()
        self.recorded: set[bytes] = set()
        #: The residencies that memory knows of, and the places where there may be others: those of before a place
        #: turned out to announce removals.
        self.seen: set[tuple[bytes, Place]] = set()
        self.unknown: set[Place] = set()
        #: Survivors of the restart that their tier has yet to be heard about.
        self.asked: dict[bytes, Place] = {}
        self._described: list[Fact] = []
        self._described_anew: list[Sample] = []

    # The calls.

    def record(self, sample: Sample, *, store: bool) -> None:
        """A record call: of a store, or of a lookup's hit."""
        if sample.metadata is None:
            return
        key = sample.key
        if key not in self.known:
            again = frozenset(self.held_places(key))
            if again:
                self._described_anew.append(sample)
            self.known.add(key)
            self._described.append(Fact("described", key, again=again))
        elif sample.partial and not store:
            return
        if PRIMARY not in self.live.at(key):
            self.recorded.add(key)

    def take(self, operations: Iterable[tuple[bool, Place, bool, bool, list[Sample]]]) -> None:
        """A call of `take_events` with (removed, place, flag, metadata only, chunks) each."""
        step = self._begin()
        for removed, place, flag, metadata_only, samples in operations:
            if removed:
                self._take_removed(step, place, metadata_only, samples)
            else:
                self._take_stored(step, place, flag, samples)
        self._offer(step)

    def answer(self, missing: frozenset[bytes]) -> None:
        """A call that brings no events and finds the tier's answer: what of the survivors is not there."""
        step = self._begin()
        asked = [key for key in self.live.named if key in self.asked]
        for key in asked:
            if key not in missing:
                self._add(step, Fact("confirmed", key, self.asked[key]))
        for key in asked:
            if key in missing:
                self._add(step, Fact("closed", key, self.asked[key]))
                self.seen.discard((key, self.asked[key]))
        self.asked = {}
        self._offer(step)

    def reset(self, announce: str) -> None:
        """The scheduler resets its cache."""
        if self._described:
            self._offer(self._begin())
        step = Step([], [])
        self._add(step, Fact("reset", announce=announce))
        ended = {place for place in self.live.places if not self.live.policy(place).survives_reset}
        self.seen = {(key, place) for key, place in self.seen if place not in ended}
        self.unknown -= ended
        self.asked = {key: place for key, place in self.asked.items() if place not in ended}
        self.recorded.clear()
        self._offer(step)

    def _begin(self) -> Step:
        step = Step([], [])
        for fact in self._described:
            self._add(step, fact)
        for sample in self._described_anew:
            for place in [one for one in self.live.places if one in self.held_places(sample.key)]:
                step.out.extend((removal(place, [sample.own_hash], sample), full_store(place, sample)))
        self._described, self._described_anew = [], []
        return step

    def _add(self, step: Step, fact: Fact) -> None:
        step.facts.append(fact)
        self.live.apply(fact)

    def _offer(self, step: Step) -> None:
        self.pending.append(step)
        if not self._retains:
            self.known = {key for key in self.known if self.holds(key)}

    def _take_stored(self, step: Step, place: Place, flag: bool, samples: list[Sample]) -> None:
        if flag:
            self.live.flagged.add(place)
        announces = self.live.announces(place)
        if not announces:
            self.unknown.add(place)
        for sample in samples:
            flags = {"removal_expected"} if flag else set()
            if sample.key not in self.known:
                flags.add("placeholder")
            if (sample.key, place) in self.seen:
                flags.add("repeated")
            else:
                step.out.append(full_store(place, sample) if sample.key in self.known else placeholder(place, sample))
            self._add(step, Fact("stored", sample.key, place, frozenset(flags)))
            self._hear(sample, place)
            if announces:
                self.seen.add((sample.key, place))
            if place == PRIMARY:
                self.recorded.discard(sample.key)

    def _take_removed(self, step: Step, place: Place, metadata_only: bool, samples: list[Sample]) -> None:
        by_group: dict[int, BlockRemoved] = {}
        for sample in samples:
            matched = (sample.key, place) in self.seen or place in self.unknown or not self.live.announces(place)
            self.seen.discard((sample.key, place))
            flags = {"metadata_only"} if metadata_only else set()
            if not metadata_only:
                # Groups take their turn by all that upstream would name, left out or not.
                made = by_group.setdefault(sample.group.group_idx, removal(place, [], sample))
                if matched:
                    made.block_hashes += sample.hashes if sample.key in self.known else [sample.own_hash]
            if not matched:
                flags.add("unmatched")
            self._add(step, Fact("removed", sample.key, place, frozenset(flags)))
            self._hear(sample, place)
            if place == PRIMARY:
                self.recorded.discard(sample.key)
        step.out.extend(made for made in by_group.values() if made.block_hashes)

    def _hear(self, sample: Sample, place: Place) -> None:
        """A tier spoke of the chunk by itself, so what it answers of the time before does not count."""
        if self.asked.get(sample.key) == place:
            del self.asked[sample.key]

    # What memory holds.

    def held_places(self, key: bytes) -> set[Place]:
        """Where memory knows the chunk to be resident."""
        return {place for one, place in self.seen if one == key}

    def holds(self, key: bytes) -> set[Place]:
        """The chunk's holds."""
        return self.held_places(key) | ({PRIMARY} if key in self.recorded else set())

    def turns(self, place: Place) -> bool:
        """Whether the next store there that carries the flag makes it a place that announces removals."""
        return self.live.policy(place).announces is None and place not in self.live.flagged

    # Commits and deaths.

    def commit(self, steps: int) -> None:
        """The next `steps` pending steps are in the log now."""
        for step in self.pending[:steps]:
            self.committed += step.facts
        del self.pending[:steps]

    def world(self) -> World:
        """What the log says now."""
        world = World(self._policies)
        for fact in self.committed:
            world.apply(fact)
        return world

    def start(self, announce: str, engine: int, asks: Place | None) -> None:
        """A process opens the stream: what was not committed never was. `asks`: the place whose tier it asks."""
        self.committed.append(Fact("started", announce=announce, engine=engine))
        self.pending, self._described, self._described_anew = [], [], []
        self.live, self.recorded = self.world(), set()
        self.seen = {(key, place) for key, place in self.live.open if self.live.announces(place)}
        self.asked = {key: place for key, place in self.live.open if place == asks}
        self.unknown = {place for _, place in set(self.live.open) - self.seen}
        self.known = {key for key in self.live.described if self._retains or self.held_places(key)}

    def end(self) -> None:
        """The process ends cleanly."""
        if self._described:
            self._offer(self._begin())
        self._offer(Step([Fact("ended")], []))
        self.commit(len(self.pending))
