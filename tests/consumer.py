"""A consumer as a router is: it believes what it reads and counts references; changes with how routers count.

Written for the tests alone and from the description of a router, so that it shares nothing with the product's own.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

#: (medium, ownership, wire hash).
Credit = tuple[str, str | None, int]


class Router:
    """Counts, for every place and wire hash, the stores that no removal has taken back."""

    def __init__(self) -> None:
        self.credits: Counter[Credit] = Counter()
        self.placeholders = 0

    def read(self, events: Iterable[dict[str, Any]]) -> None:
        """Believe `events`. A removal of what has no credit is ignored, as an unknown block is."""
        for event in events:
            at = (str(event["medium"]), event.get("ownership"))
            if event["type"] == "BlockStored":
                self.placeholders += event["token_ids"] == []
                for one in event["block_hashes"]:
                    self.credits[*at, one] += 1
            elif event["type"] == "BlockRemoved":
                for one in event["block_hashes"]:
                    if self.credits[*at, one] > 0:
                        self.credits[*at, one] -= 1
            else:
                raise AssertionError(f"no offloading tracker publishes {event['type']}")

    def drop_all(self) -> None:
        """Forget everything, as a router does that noticed a restart or a reset."""
        self.credits.clear()

    @property
    def believed(self) -> Counter[Credit]:
        """What it would send requests for, with the count of references."""
        return +self.credits
