"""Pace: when a recorded event is due again, against a clock that the test holds."""

from typing import Any

import pytest

from eventstore.domain.errors import BadInput
from eventstore.replay.form import Item
from eventstore.replay.pace import Pace
from eventstore.replay.run import due

MS = 1_000_000


class Clock:
    """Steady time, in nanoseconds, that passes only by being slept."""

    def __init__(self) -> None:
        self.now = 77 * MS

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def _handed_out(factor: float, times_ms: list[int], busy_ms: dict[int, int] | None = None) -> list[int]:
    """When each of the recorded times went out, in milliseconds from the first; `busy_ms`: how long the consumer takes
    for the one at a place."""
    clock = Clock()
    pace, begin, out = Pace(factor, clock), clock.now, []
    for at, time_ms in enumerate(times_ms):
        clock.sleep(pace.wait_s(10**18 + time_ms * MS))
        out.append((clock.now - begin) // MS)
        clock.sleep((busy_ms or {}).get(at, 0) / 1e3)
    return out


def test_as_recorded_each_event_goes_out_as_long_after_the_first_as_it_happened() -> None:
    assert _handed_out(1, [500, 500, 730, 2_000]) == [0, 0, 230, 1_500]


def test_ten_times_as_fast_every_time_is_a_tenth() -> None:
    assert _handed_out(10, [500, 600, 1_500, 1_500, 40_500]) == [0, 10, 100, 100, 4_000]


def test_half_as_fast_every_time_is_double() -> None:
    assert _handed_out(0.5, [0, 100, 350]) == [0, 200, 700]


def test_a_consumer_that_was_late_catches_up_and_is_on_time_again() -> None:
    assert _handed_out(1, [0, 100, 200, 300, 900], busy_ms={1: 150}) == [0, 100, 250, 300, 900]


def test_a_clock_that_was_stepped_back_holds_nothing_up_and_loses_nothing_after() -> None:
    assert _handed_out(1, [1_000, 1_100, 200, 300, 400]) == [0, 100, 100, 200, 300]


def test_what_happened_at_one_moment_goes_out_together() -> None:
    clock = Clock()
    items = [Item(at * MS, name) for at, name in ((0, "a"), (0, "b"), (5, "c"), (5, "d"), (6, "e"))]
    found: list[tuple[int, list[Any]]] = []
    for wait_s, contents in due(items, Pace(1, clock)):
        clock.sleep(wait_s)
        found.append((round(wait_s * 1e3), contents))
    assert found == [(0, ["a", "b"]), (5, ["c", "d"]), (1, ["e"])]


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_a_pace_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(BadInput, match="give a number above 0"):
        Pace(factor)
