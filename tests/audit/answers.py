"""The answers to the documented questions, counted in plain Python from a log's lines; changes with those questions."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from tests.audit.lives import Life, Lives, group_of

Row = tuple[Any, ...]
Given = Mapping[str, Any]


def iso(time_ns: int) -> str:
    """A time as the views write it: UTC, milliseconds."""
    moment = datetime.fromtimestamp(time_ns // 10**9, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 10**6 % 1000:03}Z"


def on_a_tier(lives: Lives, stream: str, given: Given) -> list[Row]:
    return [
        (stream, "silent", life.at[0], iso(life.opened["time_ns"]), 1, int(life.placeholder))
        for life in lives.open.values()
        if life.at[2] == given["ownership"]
    ]


def life_of_a_chunk(lives: Lives, stream: str, given: Given) -> list[Row]:
    mine = sorted((life for life in lives.all if life.at[0] == given["key"]), key=lambda life: life.opened["seq"])
    return [
        (
            stream,
            *life.at[1:],
            life.opened["seq"],
            iso(life.opened["time_ns"]),
            *((life.closed["seq"], iso(life.closed["time_ns"])) if life.closed else (None, None)),
            life.seconds,
            life.reason,
            life.stores,
        )
        for life in mine
    ]


def median_on_cpu(lives: Lives, _stream: str, given: Given) -> list[Row]:
    by_hour: defaultdict[int, list[int]] = defaultdict(list)
    for life in lives.ended:
        assert life.closed is not None
        if life.at[1:] == ("CPU", None) and life.closed["seq"] > given["since"]:
            spent = (life.closed["time_ns"] - life.opened["time_ns"]) // 10**6
            by_hour[life.closed["time_ns"] // (3_600 * 10**9)].append(spent)
    rows = []
    for hour, times in sorted(by_hour.items()):
        middle = sorted(times)[math.ceil(len(times) / 2) - 1]
        step = 1 if middle < 10_000 else 100 if middle < 100_000 else 1_000
        rows.append(
            (f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H:00Z}", len(times), middle // step * step / 1e3)
        )
    return rows


def came_back(lives: Lives, stream: str, given: Given) -> list[Row]:
    by_place: defaultdict[Any, list[Life]] = defaultdict(list)
    for life in sorted(lives.all, key=lambda life: life.opened["seq"]):
        by_place[life.at].append(life)
    rows = []
    for at, mine in by_place.items():
        for life, following in pairwise(mine):
            assert life.closed is not None
            away = (following.opened["time_ns"] - life.closed["time_ns"]) / 1e9
            if life.closed["seq"] > given["recent"] and away <= 60:
                end = (life.closed["seq"], iso(life.closed["time_ns"]), life.reason, away)
                rows.append((stream, lives.named[at[0]], *at[1:], *end))
    return sorted(rows, key=lambda row: (row[4], row[1]))


def lost_in_the_crash(lives: Lives, stream: str, _given: Given) -> list[Row]:
    restarted = lives.epochs()[2].first["seq"]
    lost = [life for life in lives.ended if life.closed is not None and life.closed["seq"] == restarted]
    return [
        (
            stream,
            1,
            life.at[0],
            *life.at[1:],
            iso(life.opened["time_ns"]),
            life.seconds,
            life.reason,
            len(meta["token_ids"]) if (meta := lives.metadata(life.at[0])) else None,
        )
        for life in sorted(lost, key=lambda life: life.opened["seq"])
    ]


def prefix(lives: Lives, stream: str, given: Given) -> list[Row]:
    rows: list[Row] = []
    key: str | None = given["key"]
    while key is not None:
        places = {at[1] + (f"/{at[2]}" if at[2] else "") for at in lives.open if at[0] == key}
        rows.append((stream, len(rows), key, places))
        meta = lives.metadata(key)
        before = meta["parent_block_hash"] + key[-8:] if meta and meta["parent_block_hash"] else None
        key = before if before in lives.named else None
    return rows[::-1]


def churn(lives: Lives, stream: str, given: Given) -> list[Row]:
    rows = []
    for place in _places(lives):
        here = [life for life in lives.ended if life.at[1:] == place]
        why = Counter(life.reason for life in here if life.closed and life.closed["seq"] > given["since"])
        resident = sum(at[1:] == place for at in lives.open)
        named = (why.pop("evicted", 0), why.pop("demoted", 0))
        rows.append((stream, *place, resident, sum(named) + why.total(), *named, why.total()))
    return rows


def placeholders(lives: Lives, stream: str, _given: Given) -> list[Row]:
    described = {group_of(life.at[0]) for life in lives.open.values() if not life.placeholder}
    bare = Counter((*life.at[1:], group_of(life.at[0])) for life in lives.open.values() if life.placeholder)
    why = {True: "stored before they were described", False: "nothing of this group is described"}
    return sorted((stream, *lane, count, why[lane[2] in described]) for lane, count in bare.items())


def left_behind(lives: Lives, stream: str, given: Given) -> list[Row]:
    left = lives.open_after(lives.epochs()[given["epoch"]].last["seq"])
    count = Counter((*life.at[1:], life.reason or "still there") for life in left)
    return sorted(((stream, *lane, number) for lane, number in count.items()), key=lambda row: str(row[1:]))


def changed(lives: Lives, stream: str, given: Given) -> list[Row]:
    before, after = ({life.at for life in lives.open_after(given[point])} for point in ("a", "b"))
    rows = [(at, "came") for at in after - before] + [(at, "left") for at in before - after]
    return [(stream, *at, what) for at, what in rows]


def processes(lives: Lives, stream: str, _given: Given) -> list[Row]:
    rows = []
    for number, epoch in lives.epochs().items():
        first, last = epoch
        state = "silent" if last is lives.lines[-1] else "crashed"
        times = (iso(first["time_ns"]), iso(last["time_ns"]))
        rows.append((stream, number, state, *times, last["seq"] - first["seq"] + 1, first["host"], first["pid"]))
    return rows


def missed(_lives: Lives, _stream: str, _given: Given) -> list[Row]:
    return []


def just_before(lives: Lives, stream: str, given: Given) -> list[Row]:
    why = {(*life.at, life.closed["seq"]): life.reason for life in lives.ended if life.closed is not None}
    rows = []
    for line in lives.lines[given["seq"] - 20 : given["seq"]]:
        at = (line.get("key"), line.get("medium"), line.get("ownership"))
        reason = why.get((*at, line["seq"]))  # type: ignore[arg-type]
        rows.append((stream, line["seq"], iso(line["time_ns"]), line["kind"], *at, reason))
    return rows


def unvouched(lives: Lives, stream: str, _given: Given) -> list[Row]:
    count = Counter(at[1:] for at in lives.open)
    seen = iso(lives.lines[-1]["time_ns"])
    return [(stream, "silent", seen, *place, count[place], 0) for place in _places(lives) if place in count]


def _places(lives: Lives) -> list[tuple[str, str | None]]:
    """In the order in which they were first stored at, which is that of their numbers."""
    return list(dict.fromkeys(life.at[1:] for life in lives.all))


#: By number. The rows' order counts only where the question orders them.
ANSWERS: dict[int, Callable[[Lives, str, Given], list[Row]]] = {
    1: on_a_tier,
    2: life_of_a_chunk,
    3: median_on_cpu,
    4: came_back,
    5: lost_in_the_crash,
    6: prefix,
    7: churn,
    8: placeholders,
    9: left_behind,
    10: changed,
    11: processes,
    12: missed,
    13: just_before,
    14: unvouched,
}
