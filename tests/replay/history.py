"""What a log's lines add up to, folded by the rule as docs/architecture.md says it; changes when that rule does.

Written from the words of the lines alone, so that it shares nothing with what it is compared to.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

Line = dict[str, Any]
#: (medium, ownership, wire hash).
Credit = tuple[str, str | None, int]


class Life(NamedTuple):
    """One residency. What ended it is None while it is open."""

    key: str
    medium: str
    ownership: str | None
    opened_seq: int
    closed_seq: int | None
    reason: str | None


class History:
    """Reads lines in the order of their seq. `lives` are those that ended, `open` those that have not."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str, str | None], Line] = {}
        self.lives: list[Life] = []
        self.metadata: dict[str, Line] = {}

    def read(self, lines: Iterable[Line]) -> "History":
        for line in lines:
            self._read(line)
        return self

    def _read(self, line: Line) -> None:
        kind = line["kind"]
        if kind in ("epoch_started", "cache_reset"):
            ends = {(end["medium"], end["ownership"]): end["reason"] for end in line["ends"]}
            for at in [at for at in self.open if at[1:] in ends]:
                self._close(at, line["seq"], ends[at[1:]])
        elif kind == "chunk_described" and line["metadata"] is not None:
            self.metadata[line["key"]] = line["metadata"]
            for at, opened in self.open.items():
                if at[0] == line["key"]:
                    opened["placeholder"] = False
        elif kind == "chunk_stored":
            self.open.setdefault((line["key"], line["medium"], line["ownership"]), dict(line))
        elif kind in ("chunk_removed", "residency_closed"):
            at = (line["key"], line["medium"], line["ownership"])
            if at in self.open:
                elsewhere = any(other[0] == at[0] and other != at for other in self.open)
                reason = line.get("reason") or ("demoted" if elsewhere else "evicted")
                self._close(at, line["seq"], "metadata_only" if line.get("metadata_only") else reason)

    def _close(self, at: tuple[str, str, str | None], seq: int, reason: str) -> None:
        opened = self.open.pop(at)
        self.lives.append(Life(*at, opened["seq"], seq, reason))

    def all_lives(self) -> list[Life]:
        """Every residency, ended or not, in order of key and opening."""
        still = [Life(*at, opened["seq"], None, None) for at, opened in self.open.items()]
        return sorted(self.lives + still, key=lambda life: (life.key, life.opened_seq))

    def credits(self) -> set[Credit]:
        """What a consumer that has read everything so far knows to be there."""
        return {
            (medium, ownership, one)
            for (key, medium, ownership), opened in self.open.items()
            for one in self._hashes(key, placeholder=opened["placeholder"])
        }

    def _hashes(self, key: str, *, placeholder: bool) -> list[int]:
        meta = None if placeholder else self.metadata.get(key)
        hashes = meta["block_hashes"] if meta is not None else [key[:-8]]
        return [int(one[-16:], 16) for one in hashes]
