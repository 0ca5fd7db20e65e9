"""Why ours holds what upstream does not, and the other way round; changes with what the improvements do.

A difference is explained when it arises, by what the call did that brought it. It then stands until it is gone.
"""

from collections import Counter

from tests.vllm.expected import Unexplained
from tests.vllm.improvements import Improvement
from tests.vllm.rules import Rules
from tests.vllm.sequences import PRIMARY, Call, Chunk, Place, Raw, Record, Reset, Take
from tests.vllm.upstream import VERSION, Holds


class Standing:
    """The differences that stand after each call, and how often each improvement brought one."""

    def __init__(self, rules: Rules) -> None:
        self.counts: Counter[Improvement] = Counter()
        self._rules = rules
        self._differences: set[tuple[str, bytes, Place]] = set()

    def check(self, call: Call, before: Holds, ours: Holds, theirs: Holds, lapsed: list[Chunk]) -> None:
        """Raise `Unexplained` where a difference arose that not exactly one improvement explains.

        `before`: what upstream held before the call; `lapsed`: chunks whose record calls the call made stop holding.
        """
        now = {("ours", *one) for one in _pairs(ours) - _pairs(theirs)}
        now |= {("theirs", *one) for one in _pairs(theirs) - _pairs(ours)}
        for whose, key, place in now - self._differences:
            if whose == "ours":
                found = self._only_ours(call, before, key, place)
            else:
                found = self._only_theirs(call, before, key, place, lapsed)
            if len(found) != 1:
                raise Unexplained(f"held by {whose} alone after {call}: {key.hex()} at {place}; explained by {found}")
            self.counts[found[0]] += 1
        self._differences = now

    def _only_ours(self, call: Call, before: Holds, key: bytes, place: Place) -> list[Improvement]:
        if isinstance(call, Record):
            by_hit = not call.store and not call.chunk.partial and call.chunk.key == key and place == PRIMARY
            return [Improvement.LOOKUP_HOLDS] if by_hit and VERSION == "0.32" and key in before else []
        if isinstance(call, Reset):
            survives = place != PRIMARY and place in before.get(key, ())
            return [Improvement.RESET_KEEPS] if survives else []
        opened = next(o for chunk, o in self._rules.known[place].items() if chunk.key == key)
        if not any(key in _keys(raw) for raw in call.events if not raw.removed and raw.place == place):
            return []
        knew = key in before
        conditions = {
            Improvement.UNDESCRIBED_TRACKED: not knew and not opened.described,
            Improvement.REMEMBERED: not knew and opened.described,
            Improvement.TIER_DECIDES: knew and not opened.flag,
        }
        return [improvement for improvement, holds in conditions.items() if holds]

    def _only_theirs(
        self, call: Call, before: Holds, key: bytes, place: Place, lapsed: list[Chunk]
    ) -> list[Improvement]:
        if isinstance(call, Record):
            by_partial_hit = not call.store and call.chunk.partial and call.chunk.key == key and place == PRIMARY
            conditions = {
                Improvement.RECORDS_LAPSE: place == PRIMARY and any(chunk.key == key for chunk in lapsed),
                # Upstream, which has forgotten the chunk, takes it for new.
                Improvement.REMEMBERED: by_partial_hit and key not in before,
            }
            return [improvement for improvement, holds in conditions.items() if holds]
        if isinstance(call, Take):
            says_no = self._rules.sequence.policies.get(place) is False
            flagged = any(key in _keys(raw) for raw in call.events if raw.flag and raw.place == place)
            return [Improvement.TIER_DECIDES] if says_no and flagged and key in before else []
        return []


def _pairs(holds: Holds) -> set[tuple[bytes, Place]]:
    return {(key, place) for key, places in holds.items() for place in places}


def _keys(raw: Raw) -> set[bytes]:
    return {chunk.key for chunk in raw.chunks}
