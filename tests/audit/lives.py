"""What a log's lines add up to, life by life, with times: plain dicts over what `kvledger replay` prints; changes when
the rule of residency does.

Written from docs/architecture.md and the words of the lines, so that it shares nothing with what it is compared to.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

Line = dict[str, Any]
#: (key, medium, ownership).
At = tuple[str, str, str | None]


class Life:
    """One residency: the line that opened it, and the one that ended it, if one did."""

    def __init__(self, line: Line) -> None:
        self.at: At = (line["key"], line["medium"], line["ownership"])
        self.opened = line
        self.closed: Line | None = None
        self.reason: str | None = None
        self.placeholder: bool = line["placeholder"]
        self.confirmed = True
        self.stores = 1

    @property
    def seconds(self) -> float | None:
        return None if self.closed is None else (self.closed["time_ns"] - self.opened["time_ns"]) / 1e9


class Epoch(NamedTuple):
    """A process life: its first and last lines."""

    first: Line
    last: Line


class Lives:
    """All lines, read in the order of their seq."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)
        self.all: list[Life] = []
        self.open: dict[At, Life] = {}
        #: By key: the lines that describe it, latest last; and the seq of the line that named it.
        self.described: dict[str, list[Line]] = {}
        self.named: dict[str, int] = {}
        for line in self.lines:
            self._read(line)

    def _read(self, line: Line) -> None:
        kind = line["kind"]
        if kind in ("epoch_started", "cache_reset"):
            ends = {(end["medium"], end["ownership"]): end["reason"] for end in line["ends"]}
            for at in [at for at in self.open if at[1:] in ends]:
                self._end(at, line, ends[at[1:]])
            asked = set(line.get("unconfirmed", ()))
            assert not asked, "no recorded engine asks its tiers"
        elif kind == "chunk_described":
            self.named.setdefault(line["key"], line["seq"])
            if line["metadata"] is not None:
                self.described.setdefault(line["key"], []).append(line)
                for at, life in self.open.items():
                    if at[0] == line["key"]:
                        life.placeholder = False
        elif kind == "chunk_stored":
            self._stored(line)
        elif kind in ("chunk_removed", "residency_closed"):
            at = (line["key"], line["medium"], line["ownership"])
            if at in self.open:
                elsewhere = any(other[0] == at[0] and other != at for other in self.open)
                by_tier = "metadata_only" if line.get("metadata_only") else "demoted" if elsewhere else "evicted"
                self._end(at, line, line["reason"] if kind == "residency_closed" else by_tier)

    def _stored(self, line: Line) -> None:
        at = (line["key"], line["medium"], line["ownership"])
        if at in self.open:
            self.open[at].stores += not line["repeated"]
            return
        self.open[at] = Life(line)
        self.all.append(self.open[at])

    def _end(self, at: At, line: Line, reason: str) -> None:
        life = self.open.pop(at)
        life.closed, life.reason = line, reason

    @property
    def ended(self) -> list[Life]:
        """Those that have ended, in no order of meaning."""
        return [life for life in self.all if life.closed is not None]

    def open_after(self, seq: int) -> list[Life]:
        """Those open after event `seq`."""
        return [
            life for life in self.all if life.opened["seq"] <= seq and (life.closed is None or life.closed["seq"] > seq)
        ]

    def epochs(self) -> dict[int, Epoch]:
        """By number."""
        starts = [line for line in self.lines if line["kind"] == "epoch_started"]
        ends = [self.lines[line["seq"] - 2] for line in starts[1:]] + [self.lines[-1]]
        return {first["epoch"]: Epoch(first, last) for first, last in zip(starts, ends, strict=True)}

    def metadata(self, key: str) -> dict[str, Any] | None:
        """The latest description of a chunk."""
        described = self.described.get(key)
        found: dict[str, Any] | None = described[-1]["metadata"] if described else None
        return found


def signed(key: str) -> int:
    """The wire hash of a key as SQLite's integer."""
    return int.from_bytes(bytes.fromhex(key)[-12:-4], "big", signed=True)


def group_of(key: str) -> int:
    """The KV-cache group in a key."""
    return int(key[-8:], 16)
