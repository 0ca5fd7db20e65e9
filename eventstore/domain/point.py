"""How a person names a moment of a stream: a seq or a time; changes when there is another way to say when.

A time is ISO 8601 (`2026-03-01T12:00:00.25Z`; without a zone it is UTC) or `@` and nanoseconds since 1970.
"""

import re
from datetime import UTC, datetime

import msgspec

from eventstore.domain.errors import BadInput

#: A fraction of seconds, of which Python would drop what is finer than microseconds.
_FRACTION = re.compile(r"(?:(?<=:[0-9]{2}:[0-9]{2})|(?<=[T ][0-9]{6}))[.,]([0-9]+)(?=$|[Z+-])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What an int64 of nanoseconds reaches: the years 1677 to 2262.
_MOST_NS = 2**63 - 1


class Seq(msgspec.Struct, frozen=True):
    """Just after the event with this seq; 0 is before all."""

    seq: int


class Moment(msgspec.Struct, frozen=True):
    """A time in nanoseconds UTC."""

    time_ns: int


Point = Seq | Moment


def parse_point(text: str) -> Point:
    """The point that `text` names. A bare number is a seq. Raises `BadInput` where it names none."""
    if re.fullmatch(r"[0-9]{1,19}", text):
        return Seq(int(text))
    return Moment(parse_time(text))


def parse_time(text: str) -> int:
    """The time that `text` names, in nanoseconds UTC, exact to the nanosecond. Raises `BadInput` for anything else."""
    if re.fullmatch(r"@-?[0-9]{1,19}", text):
        return _checked(text, int(text[1:]))
    fraction = _FRACTION.search(text)
    nanoseconds = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    rest = _FRACTION.sub("", text, count=1)
    try:
        # Python would take a fraction of an hour for one of a second.
        whole = datetime.fromisoformat(rest) if not set(rest) & set(".,") else None
    except ValueError:
        whole = None
    if whole is None:
        raise BadInput(f"{text!r} is no point of a stream: give a seq, a time as 2026-03-01T12:00:00Z, or @nanoseconds")
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=UTC)
    passed = whole - _EPOCH
    return _checked(text, (passed.days * 86_400 + passed.seconds) * 1_000_000_000 + nanoseconds)


def _checked(text: str, time_ns: int) -> int:
    if abs(time_ns) > _MOST_NS:
        raise BadInput(f"{text!r} is out of the range of times, which goes from 1677 to 2262")
    return time_ns
