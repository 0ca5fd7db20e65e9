"""The rules as plain dicts over a trace's calls, written from the design alone: what is where, what it adds up to, and
what consumers must be told as it happens; changes when a rule does.

It knows nothing of logs, sequence numbers, memory bounds or threads, and shares no code with the product. What is told
after a restart or a reset is not predicted here: the differ judges it by what the model says was resident then.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.consumer import Credit
from tests.traces.kvevents import KVEvent, Place, description, group_of, own_hash, placeholder, removal, store

Call = dict[str, Any]
#: Process, and how many live events it had published.
Moment = tuple[float, float]

PRIMARY: Place = ("CPU", None)
NEVER: Moment = (math.inf, 0)


def survives_restart(place: Place) -> bool:
    """The defaults: storage does, memory does not."""
    return place[0] == "STORAGE"


def survives_reset(place: Place) -> bool:
    """The defaults: all but the primary do."""
    return place not in (PRIMARY, ("GPU", None))


class Residency:
    """A chunk at a place from `opened` to `closed`."""

    def __init__(self, opened: Moment, locality: str | None, *, placeholder: bool) -> None:
        self.opened, self.closed = opened, NEVER
        self.locality, self.opened_as_placeholder = locality, placeholder
        self.published_stores = 0
        #: Not by a removal, but by a reset or the end of its process.
        self.ended_silently = False


class Chunk(NamedTuple):
    """A chunk as an event names it. `published`: not left out as repeated or unmatched."""

    key: str
    members: list[int]
    published: bool


class Told(NamedTuple):
    """What an event of a tier comes to: one for each chunk stored, one for each group of chunks removed.

    event: what must be published as it happens; None where every chunk is left out.
    call: how many `take_events` calls of the process came before the one that brings it.
    again: nothing that a tier said, but a placeholder's residency announced again since its chunk is described.
    """

    call: int
    event: KVEvent | None
    chunks: list[Chunk]
    again: bool = False


class Process:
    """One process of the trace. `resets`: (calls of `take_events` before it, live events before it), each."""

    def __init__(self) -> None:
        self.calls = 0
        self.told: list[Told] = []
        self.live: list[tuple[int, KVEvent]] = []
        self.resets: list[tuple[int, int]] = []


class Model:
    """Runs a trace's calls by the rules."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.resident: dict[Place, dict[str, Residency]] = {PRIMARY: {}}
        self.lives: dict[tuple[Place, str], list[Residency]] = {}
        #: When an event of a tier named the chunk at the place first, stored there or not.
        self.named: dict[tuple[Place, str], Moment] = {}
        #: What every full store of the chunk says, whatever the place.
        self.described: dict[str, KVEvent] = {}
        #: Ends that nobody published as they happened.
        self.silent: Counter[Credit] = Counter()
        self.carried_over = 0
        self._announcing = {PRIMARY}
        self._describers: dict[str, set[int]] = {}
        self._described_late: list[str] = []
        self._removed: list[str] = []
        self._closed_on_restart: list[str] = []

    def run(self, calls: Iterable[Call]) -> "Model":
        """Take in `calls`, and the death of the last process."""
        for call in calls:
            match call["call"]:
                case "open":
                    self._open(call)
                case "record_store" | "record_lookup":
                    self._record(call)
                case "take_events":
                    self._tell_described()
                    for event in call["events"]:
                        self._take(event)
                    self.processes[-1].calls += 1
                case "reset":
                    self._reset()
                case other:
                    raise AssertionError(f"the model has no rule for {other}")
        self._tell_described()
        return self

    def _open(self, call: Call) -> None:
        assert call["self_describing"], "the model has no rule for a process that describes nothing"
        if self.processes:
            self._tell_described()
            for place in [p for p in self.resident if not survives_restart(p)]:
                for key in list(self.resident[place]):
                    self._end_silently(place, key)
                    self._closed_on_restart.append(key)
        self.processes.append(Process())

    def _reset(self) -> None:
        self._tell_described()
        now = self.processes[-1]
        now.resets.append((now.calls, len(now.live)))
        self.counts["resets"] += 1
        for place in [p for p in self.resident if not survives_reset(p)]:
            for key in list(self.resident[place]):
                self._end_silently(place, key)
                self.counts["closed_on_reset"] += 1

    def _record(self, call: Call) -> None:
        group, key = call["group"], call["key"]
        if group["sliding_window_chunks"] is not None:
            return
        self._describers.setdefault(key, set()).add(len(self.processes))
        if key in self.described:
            if call["call"] == "record_lookup":
                return
        elif any(key in there for there in self.resident.values()):
            self._described_late.append(key)
        self.described[key] = description(call)

    def _take(self, event: Call) -> None:
        place = (event["medium"], event["ownership"])
        there = self.resident.setdefault(place, {})
        if not event["removed"]:
            if event["removal_expected"]:
                self._announcing.add(place)
            for key in event["keys"]:
                self._stored(place, there, key, event["locality"])
            return
        gone: dict[int, list[Chunk]] = {}
        ended: dict[int, list[Residency]] = {}
        for key in event["keys"]:
            self._note(place, key)
            group, life = group_of(key), there.pop(key, None)
            chunk = Chunk(key, self.members(key), life is not None or place not in self._announcing)
            gone.setdefault(group, []).append(chunk)
            ended.setdefault(group, []).extend([life] if life is not None else [])
            self._removed.append(key)
            self.counts["unmatched_removals"] += life is None
        for group, chunks in gone.items():
            for life in ended[group]:
                life.closed = self._now()
            hashes = [one for chunk in chunks if chunk.published for one in chunk.members]
            self._tell(removal(place, group, hashes, event["locality"]) if hashes else None, chunks)

    def _stored(self, place: Place, there: dict[str, Residency], key: str, locality: str | None) -> None:
        self._note(place, key)
        self.counts["stored"] += 1
        self.counts["placeholders"] += key not in self.described
        repeated = key in there and place in self._announcing
        self.counts["repeated"] += repeated
        store = None if repeated else self.store(place, key, locality)
        self._tell(store, [Chunk(key, self.members(key), not repeated)])
        if repeated:
            return
        if key not in there:
            there[key] = Residency(self._now(), locality, placeholder=key not in self.described)
            self.lives.setdefault((place, key), []).append(there[key])
        there[key].published_stores += 1

    def _tell_described(self) -> None:
        for key in self._described_late:
            for place, there in self.resident.items():
                if key in there and place in self._announcing:
                    # No tier says this, so its locality is unknown.
                    known_by, full = Chunk(key, [own_hash(key)], True), Chunk(key, self.members(key), True)
                    self._tell(removal(place, group_of(key), known_by.members, None), [known_by], again=True)
                    self._tell(self.store(place, key, None), [full], again=True)
        self._described_late.clear()

    def _end_silently(self, place: Place, key: str) -> None:
        life = self.resident[place].pop(key)
        life.closed, life.ended_silently = self._now(), True
        for one in self.members(key):
            self.silent[*place, one] += life.published_stores

    def _tell(self, event: KVEvent | None, chunks: list[Chunk], *, again: bool = False) -> None:
        now = self.processes[-1]
        now.told.append(Told(now.calls, event, chunks, again))
        if event is not None:
            now.live.append((now.calls, event))

    def _now(self) -> Moment:
        return len(self.processes) - 1, len(self.processes[-1].live)

    def _note(self, place: Place, key: str) -> None:
        self.named.setdefault((place, key), self._now())
        describers = self._describers.get(key, set())
        self.carried_over += len(self.processes) == 2 and describers == {1}

    def members(self, key: str) -> list[int]:
        """The chunk's member hashes; one for a chunk never described."""
        return self.described[key]["block_hashes"] if key in self.described else [own_hash(key)]

    def store(self, place: Place, key: str, locality: str | None) -> KVEvent:
        """The store of one chunk: full where it is described, else a placeholder."""
        return store(self.described.get(key) or placeholder(key), place, locality)

    def truth(self) -> Counter[Credit]:
        """Every place and hash that is resident, with the number of chunks that carry it there."""
        return Counter(
            (*place, one) for place, there in self.resident.items() for key in there for one in self.members(key)
        )

    def announces(self, place: Place) -> bool:
        """Whether removals are announced there: by policy, or since a store carried the flag."""
        return place in self._announcing

    def table(self) -> dict[str, Any]:
        """The counts as `drive` names them."""
        at_end = {medium: sum(len(t) for p, t in self.resident.items() if p[0] == medium) for medium in _MEDIA}
        names = ("resets", "stored", "repeated", "placeholders", "unmatched_removals", "closed_on_reset")
        return {name: self.counts[name] for name in names} | {
            "epochs": len(self.processes),
            "batches": sum(process.calls for process in self.processes),
            "described": len(self.described),
            "removed": len(self._removed),
            "removed_hashes": sum(len(self.members(key)) for key in self._removed),
            "closed_on_restart": len(self._closed_on_restart),
            "closed_on_restart_hashes": sum(len(self.members(key)) for key in self._closed_on_restart),
            "resident_at_end": at_end,
            "lost": 0,
        }


_MEDIA = ("CPU", "STORAGE")
