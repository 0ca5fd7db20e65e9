"""Exact quantiles of many durations; changes with which quantiles are told."""

from collections.abc import Sequence

import msgspec

#: Which quantiles, in hundredths.
_PERCENT = (10, 50, 90, 99)


class Durations(msgspec.Struct, frozen=True):
    """A number of durations, in seconds. Each quantile is one of them: the smallest that at least so many are not
    above. Where there is none, all are None."""

    count: int
    mean: float | None = None
    min: float | None = None
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


def durations(nanoseconds: Sequence[int]) -> Durations:
    """Sum up durations given in nanoseconds, in any order."""
    if not nanoseconds:
        return Durations(0)
    ordered = sorted(nanoseconds)
    count = len(ordered)
    p10, p50, p90, p99 = (ordered[max(-(-count * percent // 100), 1) - 1] / 1e9 for percent in _PERCENT)
    return Durations(count, sum(ordered) / count / 1e9, ordered[0] / 1e9, p10, p50, p90, p99, ordered[-1] / 1e9)
