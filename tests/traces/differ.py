"""What was published against what upstream published for the same calls, each difference sorted into its kind;
changes when another way to differ is right.

The kinds are those of docs/traces.md:

    a  a placeholder is full
    b  a removal names members that upstream could not name
    c  told after a restart: what ended with the process, what may not have been sent, what survived
    d  told after a reset: what it ended, and what survived it
    e  a repeated store, or a removal of what is not there, is not published
    f  an event comes one or a few calls later, in the same order
    g  a placeholder's residency is announced again, since its chunk is described now

Two steps: `changes` goes from what upstream published to what must be published as it happens (a, b, e, g), and
`additions` looks for that in what was published, in order, and judges all that was added (c, d) or came later (f).
"""

from collections import Counter
from typing import Any

from tests.traces.kvevents import KVEvent, Place, own_hash
from tests.traces.model import NEVER, Call, Model, Moment, Process, Residency, Told


class Unexplained(AssertionError):
    """A difference of no kind."""


def changes(calls: list[Call], model: Model) -> Counter[str]:
    """Upstream's `out` in the trace against the model's live events.

    Counts stores for `a`, hashes for `b`, chunks for `e`, residencies for `g`; `e described` are those chunks of `e`
    that upstream stored as placeholders although they had been described.
    """
    found: Counter[str] = Counter()
    theirs = [one for call in calls if call["call"] == "take_events" for one in call["out"]]
    told = [one for process in model.processes for one in process.told]
    found["g"] = sum(one.again for one in told) // 2
    ours = [one for one in told if not one.again]
    if len(theirs) != len(ours):
        raise Unexplained(f"upstream published {len(theirs)} events, the calls come to {len(ours)}")
    for event, one in zip(theirs, ours, strict=True):
        if event["type"] == "BlockStored":
            found += _changed_store(event, one, model)
        else:
            found += _changed_removal(event, one)
    return found


def _changed_store(theirs: KVEvent, ours: Told, model: Model) -> Counter[str]:
    (chunk,) = ours.chunks
    place = (theirs["medium"], theirs.get("ownership"))
    full = model.store(place, chunk.key, theirs.get("locality"))
    placeholder = theirs["token_ids"] == [] and theirs["block_hashes"] == [own_hash(chunk.key)]
    if not (placeholder or theirs == full):
        raise Unexplained(f"upstream's {theirs} is no store of chunk {chunk.key}")
    was_described = placeholder and full["token_ids"] != []
    if ours.event is None:
        return Counter({"e": 1, "e described": int(was_described)})
    if ours.event == theirs:
        return Counter()
    if was_described and ours.event == full:
        return Counter("a")
    raise Unexplained(f"{theirs} became {ours.event}")


def _changed_removal(theirs: KVEvent, ours: Told) -> Counter[str]:
    found: Counter[str] = Counter()
    named, kept = list(theirs["block_hashes"]), []
    for chunk in ours.chunks:
        found["e"] += not chunk.published
        kept += chunk.members if chunk.published else []
        if named[: len(chunk.members)] == chunk.members:
            del named[: len(chunk.members)]
        elif named[:1] == [own_hash(chunk.key)]:
            del named[0]
            found["b"] += len(chunk.members) - 1
        else:
            raise Unexplained(f"upstream's {theirs} does not name chunk {chunk.key}")
    if named or (ours.event or theirs) | {"block_hashes": kept} != theirs | {"block_hashes": kept}:
        raise Unexplained(f"{theirs} became {ours.event}")
    return found


Line = list[KVEvent]


def additions(history: "History", number: int, lines: list[Line], *, at_once: bool) -> Counter[str]:
    """What process `number` published, a list of events a call, against the model's live events of that process.

    Counts events; `c` and `d` are those added, `f` those that came later than in the call that brought them.
    """
    process = history.model.processes[number]
    ours = [(line, event) for line, events in enumerate(lines) for event in events]
    found: Counter[str] = Counter()
    families = _Families(history)
    at = 0
    for (line, event), is_live in zip(ours, _align(process, number, ours, history, at_once=at_once), strict=True):
        moment = (number, at)
        if is_live:
            found["f"] += line > process.live[at][0]
            families.live(event, moment)
            at += 1
        else:
            found["d" if any(live <= at for _, live in process.resets) else "c"] += 1
            families.added(event)
    families.end((number, at))
    return found


def _align(
    process: Process, number: int, ours: list[tuple[int, KVEvent]], history: "History", *, at_once: bool
) -> list[bool]:
    """For each of `ours`, whether it is the next live event; all others could be added where they stand.

    An added event can look like a live one, so all ways to tell them apart are followed: `ways[i]` holds how many live
    events can have been met before event `i`, with whether the last step met one.
    """
    live = process.live
    ways: list[dict[int, bool]] = [{0: False}]
    for line, event in ours:
        following: dict[int, bool] = {}
        for met in ways[-1]:
            if met < len(live) and live[met][1] == event:
                call = live[met][0]
                if line == call or (line > call and not at_once):
                    following[met + 1] = True
            told_again = number > 0 or any(at <= met for _, at in process.resets)
            if told_again and met not in following and history.may_be_told(event, (number, met)):
                following[met] = False
        if not following:
            met = max(ways[-1])
            wanted = live[met] if met < len(live) else "nothing more"
            raise Unexplained(f"process {number + 1}, line {line}: published {event}; next to come was {wanted}")
        ways.append(following)
    if len(live) not in ways[-1]:
        raise Unexplained(f"process {number + 1}: never published {live[max(ways[-1])]}")
    met, is_live = len(live), []
    for following in reversed(ways[1:]):
        is_live.append(following[met])
        met -= following[met]
    return is_live[::-1]


class History:
    """What the model says was where, asked by place and hash."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.lives: dict[tuple[Place, int], list[tuple[str, Residency]]] = {}
        self._named: dict[tuple[Place, int], Moment] = {}
        for (place, key), lives in model.lives.items():
            for hash_ in model.members(key):
                self.lives.setdefault((place, hash_), []).extend((key, life) for life in lives)
        for (place, key), moment in model.named.items():
            for hash_ in model.members(key):
                self._named[place, hash_] = min(moment, self._named.get((place, hash_), NEVER))

    def may_be_told(self, event: KVEvent, moment: Moment) -> bool:
        """Whether `event` could be told again at `moment`: a removal of what had to do with the place before, or the
        store of a chunk that is there, as consumers should know it."""
        place = (event["medium"], event.get("ownership"))
        if event["type"] == "BlockRemoved":
            return all(self._named.get((place, one), NEVER) <= moment for one in event["block_hashes"])
        for key, life in self.lives.get((place, event["block_hashes"][-1]), ()):
            if life.opened <= moment <= life.closed:
                store = self.model.store(place, key, life.locality)
                if event == store or (life.opened_as_placeholder and event | _NO_TOKENS == store | _NO_TOKENS):
                    return True
        return False

    def resident(self, place: Place, hash_: int, moment: Moment) -> tuple[int, int]:
        """How many chunks that carry `hash_` are resident at `moment`, at least and at most: what a reset ends at that
        very moment, and a placeholder that a description is about to replace, can be counted or not."""
        lives = [life for _, life in self.lives.get((place, hash_), ()) if life.opened <= moment <= life.closed]
        unsure = [
            life for life in lives if life.opened_as_placeholder or (life.ended_silently and life.closed == moment)
        ]
        return len(lives) - len(unsure), len(lives)


_NO_TOKENS: dict[str, Any] = dict.fromkeys(
    ("token_ids", "block_hashes", "parent_block_hash", "block_size", "kv_cache_spec_kind"), None
)


class _Families:
    """Holds the rule of telling again: of all that carries a hash at a place removals first, then a store for each
    chunk that is there, and no live event of that hash between."""

    def __init__(self, history: History) -> None:
        self._history = history
        #: Stores told since the removals, for each place and hash whose telling is not over.
        self._told: dict[tuple[Place, int], int] = {}

    def added(self, event: KVEvent) -> None:
        place = (event["medium"], event.get("ownership"))
        for one in set(event["block_hashes"]):
            if event["type"] == "BlockRemoved":
                self._told[place, one] = 0
            elif (place, one) in self._told:
                self._told[place, one] += 1
            else:
                raise Unexplained(f"told again without removals first: {event}")

    def live(self, event: KVEvent, moment: Moment) -> None:
        place = (event["medium"], event.get("ownership"))
        for one in event["block_hashes"]:
            self._close(place, one, moment)

    def end(self, moment: Moment) -> None:
        for place, one in list(self._told):
            self._close(place, one, moment)

    def _close(self, place: Place, one: int, moment: Moment) -> None:
        told = self._told.pop((place, one), None)
        if told is not None:
            least, most = self._history.resident(place, one, moment)
            if not least <= told <= most:
                raise Unexplained(f"hash {one} at {place}: {told} stores told again, {least} to {most} are resident")
