"""Residency folded from the lines of `kvledger replay`, by the rule as the design says it; changes when the rule or the
lines do.
"""

from collections.abc import Iterable
from typing import Any

#: (key, medium, ownership).
At = tuple[str, str, str | None]


class Folded:
    """What is resident after the lines so far, each as `kvledger residency --json` prints it."""

    def __init__(self) -> None:
        self.open: dict[At, dict[str, Any]] = {}

    def take(self, lines: Iterable[dict[str, Any]]) -> "Folded":
        """Take in lines in the order of their seq."""
        for line in lines:
            self._take(line)
        return self

    def _take(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind in ("epoch_started", "cache_reset"):
            ended = {(end["medium"], end["ownership"]) for end in line["ends"]}
            self.open = {at: row for at, row in self.open.items() if at[1:] not in ended}
        elif kind == "chunk_described":
            for at, row in self.open.items():
                if at[0] == line["key"] and line["metadata"] is not None:
                    row["placeholder"] = False
        elif kind in ("chunk_stored", "chunk_removed", "residency_closed"):
            at = (line["key"], line["medium"], line["ownership"])
            if kind != "chunk_stored":
                self.open.pop(at, None)
            elif at not in self.open:
                self.open[at] = {
                    "key": line["key"],
                    "medium": line["medium"],
                    "ownership": line["ownership"],
                    "locality": line["locality"],
                    "opened_seq": line["seq"],
                    "opened": line["time"],
                    "opened_ns": line["time_ns"],
                    "placeholder": line["placeholder"],
                }

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in an order of no meaning that is always the same."""
        return [self.open[at] for at in sorted(self.open, key=str)]
