"""A slice of the log to a sink, at a pace; changes with how the three are brought together."""

from collections.abc import Callable, Iterator
from itertools import groupby
from threading import Event
from typing import Any

from sqlalchemy import Engine

from eventstore.replay.form import Item
from eventstore.replay.pace import Pace
from eventstore.replay.reader import Reader, pages
from eventstore.replay.sinks import Sink


def replay(
    engine: Engine,
    reader: Reader,
    sink: Sink,
    *,
    pace: Pace | None = None,
    stop: Event | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> bool:
    """Everything that `reader` reads, to its end, into `sink`; returns whether it got there.

    `stop` ends it between two items that go out together, never within one. `progress` is told the seq reached.
    """
    stop = stop or Event()
    for read in pages(engine, reader):
        for wait_s, contents in due(read.items, pace):
            if wait_s:
                sink.flush()
            if stop.is_set() or (wait_s and stop.wait(wait_s)):
                return False
            sink.take(contents)
        progress(read.cursor.seq)
    return not stop.is_set()


def due(items: list[Item], pace: Pace | None) -> Iterator[tuple[float, list[Any]]]:
    """What goes out together, and how long to wait before it, in seconds; without a pace, all at once."""
    if pace is None:
        if items:
            yield 0.0, [item.content for item in items]
        return
    for time_ns, some in groupby(items, key=lambda item: item.time_ns):
        yield pace.wait_s(time_ns), [item.content for item in some]
