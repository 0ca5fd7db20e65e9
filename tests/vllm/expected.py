"""What a call is expected to publish, where the order is not all given; and whether it did."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.vllm.upstream import KVEvent


class Unexplained(AssertionError):
    """A difference from upstream that no improvement accounts for."""


class Block(NamedTuple):
    """Events that come together, removals before stores. What is free: the order among the removals and among the
    stores, and in what order a removal names its hashes."""

    removals: list[KVEvent]
    stores: list[KVEvent]

    @property
    def size(self) -> int:
        """How many events it is."""
        return len(self.removals) + len(self.stores)

    def is_next(self, events: Sequence[KVEvent]) -> bool:
        """Whether `events` begin with it."""
        removals, stores = events[: len(self.removals)], events[len(self.removals) : self.size]
        return _content(removals) == _content(self.removals) and _content(stores) == _content(self.stores)


class AnyOrder(NamedTuple):
    """Blocks whose order is free."""

    blocks: list[Block]


Expected = list[KVEvent | Block | AnyOrder]


def _content(events: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Each event as what it says apart from its hashes, and these where their order is free."""
    said = []
    for event in events:
        hashes = sorted(event.block_hashes) if not hasattr(event, "token_ids") else list(event.block_hashes)
        said.append((repr(event).replace(repr(event.block_hashes), ""), hashes))
    return sorted(said)


def check_published(events: Sequence[KVEvent], expected: Expected) -> None:
    """Raise `Unexplained` where `events` are not what is expected."""
    at = 0
    for one in expected:
        waiting = one.blocks[:] if isinstance(one, AnyOrder) else [one] if isinstance(one, Block) else []
        if not waiting and not isinstance(one, AnyOrder):
            if at >= len(events) or events[at] != one:
                raise Unexplained(f"published {_shown(events, at)}; next to come was {one}")
            at += 1
        while waiting:
            block = next((block for block in waiting if block.is_next(events[at:])), None)
            if block is None:
                raise Unexplained(f"published {_shown(events, at)}; next to come was one of {waiting}")
            waiting.remove(block)
            at += block.size
    if at < len(events):
        raise Unexplained(f"published more than was to come: {_shown(events, at)}")


def _shown(events: Sequence[KVEvent], at: int) -> str:
    return str(events[at]) if at < len(events) else "nothing more"
