"""Are the views what the log gives? Changes with what a view holds.

The log goes through the rule (`domain.residency`) page by page, and what each page ended is laid beside the rows of
`lifecycle` for the same seqs. Between two pages no transaction is open, so that a long check keeps nothing of a live
store waiting; that is right because an end, once in the view, never changes. What is open does change: it is compared
last, with whatever the log has gained meanwhile folded in, in one snapshot.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection

from eventstore.audit.check import EXAMPLES, Found, Progress
from eventstore.domain.residency import Closed, Residency
from eventstore.log.chunks import keys_of
from eventstore.log.read import page
from eventstore.log.stream import StreamRow, one_stream
from eventstore.views.fold import fold_at_floor

Row = tuple[int, ...]

# In both the key comes first: (closed_seq, chunk, place) and (chunk, place).
_ENDED_COLUMNS = "closed_seq, chunk, place, opened_seq, opened_ns, flags, stores, closed_ns, reason"
_OPEN_COLUMNS = "chunk, place, opened_seq, opened_ns, flags, stores, confirmed"
_ENDED = (
    f"SELECT {_ENDED_COLUMNS} FROM closed_residency WHERE stream = ? AND closed_seq > ? AND closed_seq <= ?"
    " ORDER BY closed_seq, chunk, place"
)
_OPEN = f"SELECT {_OPEN_COLUMNS} FROM open_residency WHERE stream = ? ORDER BY chunk, place"
#: What a log without its beginning cannot say of a residency that is older.
_UNKNOWN = ("flags", "stores", "confirmed")
_FIRST, _LAST = -(2**63), 2**63 - 1


def views_against_log(connection: Connection, stream: StreamRow, progress: Progress) -> Found:
    """Compare `residency` and `lifecycle` with a fold of the log. Changes nothing; memory holds what is resident."""
    with connection.begin():
        check = _Check(connection, stream)
    while check.at < stream.last_seq:
        with connection.begin():
            check.page(connection, stream.last_seq)
        progress(check.at)
    with connection.begin():
        check.rest(connection, one_stream(connection, stream.name))
    return Found(check.count, check.examples)


class _Check:
    """One stream under check, up to seq `at`."""

    def __init__(self, connection: Connection, stream: StreamRow) -> None:
        self.at = stream.floor_seq - 1
        self.count = 0
        self.examples: list[dict[str, Any]] = []
        self._stream, self._floor = stream.stream, stream.floor_seq
        # Rows before the floor belong to what was pruned; in a whole log there can be none.
        self._compared = self.at if self._floor > 1 else _FIRST
        self._fold = fold_at_floor(connection, stream)

    def page(self, connection: Connection, upto: int) -> None:
        """Fold the next page and compare what it ended."""
        ended: list[Row] = []
        events = page(connection, self._stream, self.at, upto=upto)
        for event in events:
            ended += map(_ended_row, self._fold.apply(event))
        # Events that are missing at the end are for `verify` to find.
        self.at = events[-1].seq if events else upto
        self._compare_ended(connection, ended, self.at)

    def rest(self, connection: Connection, stream: StreamRow) -> None:
        """Fold what has come since, and compare what is open now. In one snapshot with `stream`."""
        while self.at < stream.last_seq:
            self.page(connection, stream.last_seq)
        # Ends that no event of the log can have brought.
        self._compare_ended(connection, [], _LAST)
        found = connection.exec_driver_sql(_OPEN, (self._stream,))
        self._compare(connection, "residency", 2, _OPEN_COLUMNS, map(_open_row, self._fold), map(tuple, found))

    def _compare_ended(self, connection: Connection, ended: list[Row], upto: int) -> None:
        found = connection.exec_driver_sql(_ENDED, (self._stream, self._compared, upto))
        self._compare(connection, "lifecycle", 3, _ENDED_COLUMNS, iter(ended), map(tuple, found))
        self._compared = upto

    def _compare(
        self, connection: Connection, view: str, width: int, columns: str, ours: Iterator[Row], theirs: Iterator[Row]
    ) -> None:
        names = columns.split(", ")
        for expected, found in side_by_side(ours, theirs, width):
            known = expected is None or expected[names.index("opened_seq")] >= self._floor
            differing = [
                name
                for name, one, other in zip(names, expected or found or (), found or expected or (), strict=True)
                if one != other and (known or name not in _UNKNOWN)
            ]
            if expected is not None and found is not None and not differing:
                continue
            self.count += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(self._example(connection, view, names, differing, expected, found))

    def _example(
        self,
        connection: Connection,
        view: str,
        names: list[str],
        differing: list[str],
        expected: Row | None,
        found: Row | None,
    ) -> dict[str, Any]:
        by_log = dict(zip(names, expected, strict=True)) if expected is not None else {}
        by_view = dict(zip(names, found, strict=True)) if found is not None else {}
        either = by_log or by_view
        if not by_view:
            problem = "the log says so, the view does not"
        elif not by_log:
            problem = "the view says so, the log does not"
        else:
            problem = ", ".join(f"{name} is {by_view[name]}, by the log {by_log[name]}" for name in differing)
        chunk = either["chunk"]
        key = keys_of(connection, self._stream, [chunk]).get(chunk, b"")
        shown = ("chunk", "place", "opened_seq", "closed_seq")
        return (
            {"view": view, "key": key.hex()}
            | {name: either[name] for name in shown if name in either}
            | {"problem": problem}
        )


def side_by_side(ours: Iterable[Row], theirs: Iterable[Row], width: int) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of two sorted series, paired where the first `width` fields agree; alone where the other has none."""
    left, right = iter(ours), iter(theirs)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[:width] < other[:width]):
            yield one, None
            one = next(left, None)
        elif one is None or other[:width] < one[:width]:
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


def _ended_row(closed: Closed) -> Row:
    r = closed.residency
    opened = (r.opened_seq, r.opened_ns, r.flags, r.stores)
    return (closed.closed_seq, r.chunk, r.place, *opened, closed.closed_ns, int(closed.reason))


def _open_row(r: Residency) -> Row:
    return (r.chunk, r.place, r.opened_seq, r.opened_ns, r.flags, r.stores, int(r.confirmed))
