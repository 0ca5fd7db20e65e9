"""From what upstream's tracker publishes to what ours must, each step by an improvement that has a name; changes with
what the improvements do.

Nothing is filtered: every event of upstream's is either ours as it is, or changed by the one improvement whose
condition holds at that moment; and what ours adds is foretold, too.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.vllm.expected import AnyOrder, Block, Expected, Unexplained
from tests.vllm.improvements import Improvement
from tests.vllm.rules import Rules, Stay
from tests.vllm.sequences import PRIMARY, Chunk, Place, Raw, Record
from tests.vllm.upstream import Hash, Holds, KVEvent, at, full_store, placeholder, removal


@dataclass(frozen=True)
class Told:
    """A chunk that a reset left at a place, as it was then."""

    chunk: Chunk
    variant: int | None
    stay: Stay


@dataclass
class Family:
    """Chunks at one place that share hashes, directly or through others: what is told of them comes together."""

    place: Place
    members: list[Told]
    hashes: set[Hash]


class Explanation:
    """Follows the calls of one sequence, and counts what each improvement did."""

    def __init__(self, rules: Rules) -> None:
        self.counts: Counter[Improvement] = Counter()
        self._rules, self._integers = rules, rules.sequence.integer_hashes
        #: What the next call begins with; and what it tells in its turn, of what survived a reset.
        self._due: Expected = []
        self._untold: list[Family] = []
        #: Chunks whose description upstream took anew, from a lookup, where ours kept the one that it had.
        self._kept: set[Chunk] = set()

    def record(self, call: Record, theirs: Holds) -> None:
        """A record call is about to be made. `theirs`: what upstream holds now."""
        if call.store or call.chunk not in self._rules.described:
            self._kept.discard(call.chunk)
        elif call.chunk.key not in theirs:
            self._kept.add(call.chunk)

    def take(self, events: Iterable[Raw], made: list[list[KVEvent]], theirs: Holds) -> Expected:
        """What ours publishes in a call of `take_events`, from what upstream `made` of each event."""
        expected, self._due = [*self._due, *self._describe_late()], []
        for raw, some in zip(events, made, strict=True):
            expected += self._removed(raw, some, theirs) if raw.removed else self._stored(raw, some, theirs)
        if self._untold:
            expected.append(AnyOrder([self._tell(family) for family in self._untold]))
            self._untold = []
        self._rules.forget()
        return expected

    def reset(self) -> None:
        """Upstream publishes nothing of a reset; what ours does comes with the next call."""
        rules, announce = self._rules, self._rules.sequence.announce
        self._due += self._describe_late()
        ended = list(rules.known[PRIMARY])
        if ended and announce != "none":
            self.counts[Improvement.RESET_TOLD] += 1
            gone = [(chunk, self._members(chunk, rules.described.get(chunk))) for chunk in ended]
            self._due.append(Block(_removals(PRIMARY, None, gone), []))
        rules.reset()
        self._untold = self._families() if announce == "full" else []
        self.counts[Improvement.RESET_TOLD] += len(self._untold)

    # A tier's event.

    def _stored(self, raw: Raw, made: list[KVEvent], theirs: Holds) -> Expected:
        before, stores = Expected(), Expected()
        for chunk, event in zip(raw.chunks, made, strict=True):
            variant, knew = self._rules.described.get(chunk), chunk.key in theirs
            if self._rules.stored(raw, chunk):
                self.counts[Improvement.REPEATED] += 1
                continue
            before += self._first(raw.place, self._members(chunk, variant))
            if variant is None and knew:
                raise Unexplained(f"upstream describes {chunk}, ours does not")
            if variant is None or (knew and chunk not in self._kept):
                stores.append(event)
            else:
                full = at(full_store(chunk, variant, self._integers), raw.place, raw.locality)
                self.counts[Improvement.REMEMBERED] += full != event
                stores.append(full)
        return before + stores

    def _removed(self, raw: Raw, made: list[KVEvent], theirs: Holds) -> Expected:
        before = Expected()
        named = {event.group_idx: list(event.block_hashes) for event in made}
        hashes: dict[int, list[Hash]] = {}
        for chunk in raw.chunks:
            variant, knew, group = self._rules.described.get(chunk), chunk.key in theirs, chunk.group.group_idx
            members = self._members(chunk, variant)
            matched = self._rules.removed(raw, chunk)
            if matched:
                before += self._first(raw.place, members)
            if raw.metadata_only:
                continue
            if variant is None and knew:
                raise Unexplained(f"upstream describes {chunk}, ours does not")
            size = len(members) if knew else 1
            upstreams, named[group] = named[group][:size], named[group][size:]
            ours = hashes.setdefault(group, [])
            if not matched:
                self.counts[Improvement.UNMATCHED] += 1
            elif knew or variant is None:
                ours += upstreams
            else:
                self.counts[Improvement.REMEMBERED] += members != upstreams
                ours += members
        if any(named.values()):
            raise Unexplained(f"upstream's removal for {raw} names more than its chunks: {named}")
        return before + [removal(raw.place, group, some, raw.locality) for group, some in hashes.items() if some]

    # What ours adds.

    def _describe_late(self) -> Expected:
        expected = Expected()
        for chunk, place in self._rules.take_described_late():
            self.counts[Improvement.DESCRIBED_LATE] += 1
            own = self._members(chunk, None)
            expected += self._first(place, own)
            expected.append(removal(place, chunk.group.group_idx, own, None))
            expected.append(at(full_store(chunk, self._rules.described[chunk], self._integers), place, None))
        return expected

    def _families(self) -> list[Family]:
        families: list[Family] = []
        for place, there in self._rules.stays.items():
            for chunk, stay in there.items():
                variant = self._rules.logged.get(chunk)
                joined = Family(place, [Told(chunk, variant, stay)], set(self._members(chunk, variant)))
                for family in [one for one in families if one.place == place and one.hashes & joined.hashes]:
                    families.remove(family)
                    joined = Family(place, family.members + joined.members, family.hashes | joined.hashes)
                families.append(joined)
        return families

    def _first(self, place: Place, hashes: list[Hash]) -> Expected:
        """What has to be told before a live event of these hashes."""
        told = Expected()
        for one in hashes:
            for family in [family for family in self._untold if family.place == place and one in family.hashes]:
                self._untold.remove(family)
                told.append(self._tell(family))
        return told

    def _tell(self, family: Family) -> Block:
        """Removals of all that carries the hashes, as often as it was stored; then a store of each."""
        place, block = family.place, Block([], [])
        for locality in {one.stay.locality for one in family.members}:
            some = [one for one in family.members if one.stay.locality == locality]
            gone = [(one.chunk, self._members(one.chunk, one.variant) * one.stay.stores) for one in some]
            block.removals.extend(_removals(place, locality, gone))
            block.stores.extend(at(self._store(one.chunk, one.variant), place, locality) for one in some)
        return block

    def _store(self, chunk: Chunk, variant: int | None) -> KVEvent:
        if variant is None:
            return placeholder(chunk, self._rules.sequence.self_describing, self._integers)
        return full_store(chunk, variant, self._integers)

    def _members(self, chunk: Chunk, variant: int | None) -> list[Hash]:
        return list(self._store(chunk, variant).block_hashes)


def _removals(place: Place, locality: str | None, gone: list[tuple[Chunk, list[Hash]]]) -> list[KVEvent]:
    by_group: dict[int, list[Hash]] = {}
    for chunk, hashes in gone:
        by_group.setdefault(chunk.group.group_idx, []).extend(hashes)
    return [removal(place, group, hashes, locality) for group, hashes in by_group.items()]
