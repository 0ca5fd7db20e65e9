"""Recorded traces changed: killed elsewhere, cut off, described too late, their survivors removed; changes when the
tests need an engine that was not recorded.
"""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.facts import recorded
from tests.traces.model import Call, Model

OPEN: Call = {"call": "open", "self_describing": True}


def read(name: str) -> list[Call]:
    """The calls of a recorded trace."""
    with gzip.open(recorded(name)) as lines:
        return [json.loads(line) for line in lines]


def write(path: Path, calls: Iterable[Call]) -> Path:
    """A trace file of `calls`, without what upstream made of them."""
    with gzip.open(path, "wt", compresslevel=1) as file:
        for call in calls:
            kept = {name: value for name, value in call.items() if name != "out"}
            file.write(json.dumps(kept, separators=(",", ":")) + "\n")
    return path


def killed(calls: list[Call], random: Random) -> list[Call]:
    """The same engine killed at other points too: at four arbitrary ones, at one of these twice in a row, right after
    a record call and right after each reset."""
    at = random.sample(range(1, len(calls)), 4)
    at += at[:1]
    at.append(1 + random.choice([i for i, call in enumerate(calls) if call["call"].startswith("record")]))
    at += [i + 1 for i, call in enumerate(calls) if call["call"] == "reset"]
    made = list(calls)
    for i in sorted(at, reverse=True):
        made.insert(i, OPEN)
    return made


def cut(calls: list[Call], random: Random) -> list[Call]:
    """The trace up to an arbitrary call."""
    return calls[: random.randrange(len(calls) // 4, len(calls))]


def small(calls: list[Call], random: Random) -> list[Call]:
    """A stretch around a reset, its tiers empty at first, and killed at three arbitrary points."""
    reset = next(i for i, call in enumerate(calls) if call["call"] == "reset")
    made = [OPEN, *(call for call in calls[reset - 150 : reset + 40] if call["call"] != "open")]
    for i in sorted(random.sample(range(1, len(made)), 3), reverse=True):
        made.insert(i, OPEN)
    return made


def described_late(calls: list[Call], random: Random) -> list[Call]:
    """The same engine killed at other points too, but that three in ten chunks are not described when they are stored
    first: the record calls before come after it."""
    first_store: dict[str, int] = {}
    for i, call in enumerate(calls):
        for event in call.get("events", ()):
            for key in () if event["removed"] else event["keys"]:
                first_store.setdefault(key, i)
    late = {key for key in sorted(first_store) if random.random() < 0.3}
    made: list[Call] = []
    waiting: dict[str, Call] = {}
    for i, call in enumerate(calls):
        if call["call"].startswith("record") and call["key"] in late and i < first_store[call["key"]]:
            waiting[call["key"]] = call
            continue
        made.append(call)
        due = [key for key in waiting if first_store[key] <= i and random.random() < 0.2]
        made += [waiting.pop(key) for key in due]
    return killed(made, random)


def survivors_removed(calls: list[Call], _random: Random) -> list[Call]:
    """The first process, and a second that first hears that every chunk in storage is removed, then that each is
    stored in CPU memory, and nothing else."""
    restart = next(i for i, call in enumerate(calls) if i and call["call"] == "open")
    then = Model().run(calls[:restart])
    removals: list[Call] = []
    stores: list[Call] = []
    for place, there in then.resident.items():
        if place[0] != "STORAGE":
            continue
        some: Call = {"medium": place[0], "ownership": place[1], "removal_expected": False}
        for locality in sorted({life.locality for life in there.values()}, key=str):
            keys = [key for key, life in there.items() if life.locality == locality]
            removals.append(some | {"keys": keys, "removed": True, "locality": locality})
        on_cpu: Call = {"medium": "CPU", "ownership": None, "locality": None, "removal_expected": False}
        stores.append(on_cpu | {"keys": list(there), "removed": False})
    second = [
        OPEN,
        {"call": "take_events", "step": 0, "events": removals},
        {"call": "take_events", "step": 1, "events": stores},
    ]
    return calls[:restart] + second


_MAKERS = {
    "killed": killed,
    "cut": cut,
    "small": small,
    "described_late": described_late,
    "survivors_removed": survivors_removed,
}


def make(variant: str, calls: list[Call], random: Random) -> list[Call]:
    """The calls of one variant."""
    return _MAKERS[variant](calls, random)
