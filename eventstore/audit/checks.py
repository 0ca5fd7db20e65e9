"""The checks by name, and how they are run over a store; changes when a check is added."""

from collections.abc import Iterable, Iterator

import msgspec
from sqlalchemy import Connection

from eventstore.audit import log_checks, resident_checks
from eventstore.audit.against_log import views_against_log
from eventstore.audit.check import Check, Found, Level, Progress, in_one_snapshot
from eventstore.domain.errors import BadInput
from eventstore.log.stream import StreamRow

CHECKS = (
    Check("views", "residency and lifecycle are what a fold of the log gives", "finding", views_against_log),
    Check("positions", "every view has reached the log's end", "finding", in_one_snapshot(log_checks.view_positions)),
    Check(
        "orphans",
        "every residency is of a chunk and at a place that the stream has",
        "finding",
        in_one_snapshot(resident_checks.orphans),
    ),
    Check("gaps", "no event was lost", "finding", in_one_snapshot(log_checks.gaps)),
    Check(
        "undescribed",
        "every resident of a group that is described is described",
        "finding",
        in_one_snapshot(resident_checks.undescribed),
    ),
    Check(
        "unannounced",
        "every place that should announce removals has announced one",
        "finding",
        in_one_snapshot(resident_checks.unannounced),
    ),
    Check("unmatched", "every removal was of what was there", "information", in_one_snapshot(log_checks.unmatched)),
    Check("repeats", "nothing was stored where it was already", "information", in_one_snapshot(log_checks.repeats)),
    Check("crashes", "every epoch ended with a word", "information", in_one_snapshot(log_checks.crashed_epochs)),
    Check("silent", "the stream has ended or lives", "information", in_one_snapshot(log_checks.silent)),
)


class Result(msgspec.Struct, frozen=True):
    """What one check found in one stream."""

    stream: str
    check: str
    asks: str
    level: Level
    count: int
    examples: list[dict[str, object]]

    @property
    def is_finding(self) -> bool:
        """Whether this makes the audit fail."""
        return self.level == "finding" and self.count > 0


def named(names: Iterable[str]) -> tuple[Check, ...]:
    """The checks called so, all for none. Raises `BadInput` for a name that no check has."""
    wanted = list(names)
    known = [check.name for check in CHECKS]
    for name in wanted:
        if name not in known:
            raise BadInput(f"no check {name!r}; there are: {', '.join(known)}")
    return tuple(check for check in CHECKS if not wanted or check.name in wanted)


def audit(
    connection: Connection, stream: StreamRow, checks: Iterable[Check], progress: Progress = lambda _: None
) -> Iterator[Result]:
    """Run `checks` over one stream, on a connection without a transaction: each check begins its own."""
    for check in checks:
        found: Found = check.ask(connection, stream, progress)
        yield Result(stream.name, check.name, check.asks, found.level or check.level, found.count, list(found.examples))
