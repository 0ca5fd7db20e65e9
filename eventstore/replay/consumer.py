"""A consumer as routers are: it counts references by place and wire hash; changes with how routers count."""

from collections import Counter
from typing import Any

#: (medium, ownership, wire hash).
Credit = tuple[str, str | None, int]


class Consumer:
    """What somebody believes who reads nothing but KV events (as builtins, `type` and fields)."""

    def __init__(self) -> None:
        self._credits: Counter[Credit] = Counter()
        self.placeholders = 0

    def read(self, event: dict[str, Any]) -> None:
        """Take in one event. A removal of what is not credited does nothing."""
        medium, owner = str(event.get("medium")), event.get("ownership")
        if event["type"] == "BlockStored":
            self.placeholders += not event["token_ids"]
            for one in event["block_hashes"]:
                self._credits[medium, owner, one] += 1
        elif event["type"] == "BlockRemoved":
            for one in event["block_hashes"]:
                if self._credits[medium, owner, one] > 0:
                    self._credits[medium, owner, one] -= 1

    def believed(self) -> set[Credit]:
        """Every hash that it would send requests to."""
        return {credit for credit, count in self._credits.items() if count > 0}
