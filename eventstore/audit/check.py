"""What a check is and what it finds; changes with how findings are told."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection

from eventstore.log.stream import StreamRow

#: A finding is something that must not be; information is something that a reader of the log ought to know.
Level = Literal["finding", "information"]
#: How many of what a check found are shown.
EXAMPLES = 5

Progress = Callable[[int], None]


class Found(msgspec.Struct, frozen=True):
    """What a check found in one stream. `examples` are the first few, in words. `level` only where the check decides
    case by case."""

    count: int
    examples: list[dict[str, Any]] = []
    level: Level | None = None


class Check(msgspec.Struct, frozen=True):
    """A named question to one stream. `ask` is given a connection without a transaction and begins its own."""

    name: str
    asks: str
    level: Level
    ask: Callable[[Connection, StreamRow, Progress], Found]


def in_one_snapshot(
    ask: Callable[[Connection, StreamRow], Found],
) -> Callable[[Connection, StreamRow, Progress], Found]:
    """`ask` within one transaction, for a check that is soon done."""

    def asked(connection: Connection, stream: StreamRow, _progress: Progress) -> Found:
        with connection.begin():
            return ask(connection, stream)

    return asked


def place_name(medium: str, ownership: str | None) -> str:
    """A place as people write it: `CPU`, `STORAGE/nvme0`."""
    return medium if ownership is None else f"{medium}/{ownership}"
