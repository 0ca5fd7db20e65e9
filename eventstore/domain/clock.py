"""Where times come from, so that a test can bring its own; changes when a new kind of time is needed."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

#: Nanoseconds since 1970 in UTC. Only ever shown to people: order is never decided by it.
wall_ns: Callable[[], int] = time.time_ns
#: Nanoseconds that never step back, good for durations within one process.
steady_ns: Callable[[], int] = time.monotonic_ns


@lru_cache(maxsize=1_024)  # the events of a step share their time
def iso(time_ns: int) -> str:
    """`time_ns` as ISO 8601 text in UTC, to the microsecond."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest // 1000:06d}Z"
