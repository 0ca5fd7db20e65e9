"""What changed between two points of a stream, on balance; changes with how a change is told.

Two states are laid side by side, both read in order of chunk and place. What came and went in between does not show.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

import msgspec
from sqlalchemy import Connection

from eventstore.audit.check import place_name
from eventstore.domain.errors import BadInput
from eventstore.domain.events import Reason
from eventstore.log.stream import StreamRow
from eventstore.views.residency import ResidencyRow, residency


class Change(msgspec.Struct, frozen=True):
    """One chunk's change: `came` (it was nowhere), `left` (it is nowhere), `moved` (it is at other places than before).

    `reasons`: why it went from each place where it is no more, by place; of the last time, if it left more than once.
    """

    what: str
    key: str
    before: list[str]
    after: list[str]
    reasons: dict[str, str]


_ENDS = (
    "SELECT l.chunk, p.medium, p.ownership, l.reason FROM closed_residency AS l"
    " JOIN place AS p ON p.stream = l.stream AND p.place = l.place"
    " WHERE l.stream = ? AND l.closed_seq > ? AND l.closed_seq <= ? ORDER BY l.closed_seq"
)


def diff(connection: Connection, stream: StreamRow, from_seq: int, to_seq: int) -> Iterator[Change]:
    """Every change from the state at `from_seq` to that at `to_seq`, in order of chunk.

    Raises `BadInput` for points that the log does not have, or that are the wrong way round.
    """
    if from_seq > to_seq:
        raise BadInput(f"stream {stream.name!r}: from {from_seq} to {to_seq} goes backwards; change the two round")
    reasons: dict[int, dict[str, str]] = {}
    for chunk, medium, owner, reason in connection.exec_driver_sql(_ENDS, (stream.stream, from_seq, to_seq)):
        reasons.setdefault(chunk, {})[place_name(medium, owner)] = Reason(reason).name.lower()
    before = _by_chunk(residency(connection, stream, from_seq))
    after = _by_chunk(residency(connection, stream, to_seq))
    for chunk, key, old, new in _paired(before, after):
        if old == new:
            continue
        what = "came" if not old else "left" if not new else "moved"
        why = reasons.get(chunk, {})
        yield Change(
            what, key.hex(), old, new, {place: why[place] for place in old if place not in new and place in why}
        )


_Chunk = tuple[int, bytes, list[str]]


def _by_chunk(rows: Iterable[ResidencyRow]) -> Iterator[_Chunk]:
    for chunk, group in groupby(rows, attrgetter("chunk")):
        here = list(group)
        yield chunk, here[0].key, [place_name(row.medium, row.ownership) for row in here]


def _paired(before: Iterator[_Chunk], after: Iterator[_Chunk]) -> Iterator[tuple[int, bytes, list[str], list[str]]]:
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if old is not None and (new is None or old[0] < new[0]):
            yield (*old, [])
            old = next(before, None)
        elif new is not None and (old is None or new[0] < old[0]):
            yield (*new[:2], [], new[2])
            new = next(after, None)
        elif old is not None and new is not None:
            yield (*old, new[2])
            old, new = next(before, None), next(after, None)
