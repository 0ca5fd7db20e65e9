"""`kvledger stats`: how long chunks stay, idle and stay away, by place and by the reason of their end."""

from typing import Annotated, Any

import typer

from eventstore.audit.quantiles import Durations
from eventstore.audit.stats import Lane, Stats, stats
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import connected
from eventstore.domain.errors import BadInput
from eventstore.log.stream import all_streams, one_stream

NAME = "stats"

_DEFAULT_WITHIN = (1.0, 10.0, 60.0, 600.0)


def command(
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    within: Annotated[
        list[float] | None,
        typer.Option(
            "--within",
            metavar="SECONDS",
            help="Count what came back within so long; may be given again. Default: 1, 10, 60, 600.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lifetime, idle time before eviction, reuse gap, and what was evicted and wanted again: exact, from the log."""
    limits = within or list(_DEFAULT_WITHIN)
    if not all(0 < limit < float("inf") for limit in limits):
        raise BadInput("--within takes a number of seconds above 0")
    found: list[Stats] = []
    with connected(store) as connection:
        with connection.begin():
            rows = [one_stream(connection, stream)] if stream is not None else all_streams(connection)
        for row in rows:
            with render.progress(f"stats {row.name}", row.last_seq) as done:
                found.append(stats(connection, row, limits, done))
    if as_json:
        render.document({"streams": found})
        return
    for one in found:
        _show(one, limits)


def _show(one: Stats, limits: list[float]) -> None:
    back = [f"back in {limit:g} s" for limit in sorted(set(limits))]
    columns = [
        "place",
        "ended",
        "count",
        "lifetime p50",
        "p99",
        "idle p50",
        "p99",
        "reuse gap p50",
        "gaps",
        "back",
        *back,
    ]
    render.table(f"{one.stream} up to seq {one.seq:,}; times in seconds", columns, map(_row, one.lanes))


def _row(lane: Lane) -> list[Any]:
    return [
        lane.place,
        lane.reason or "(still there)",
        lane.residencies,
        *_shown(lane.lifetime),
        *_shown(lane.idle_before_evict),
        _seconds(lane.reuse_gap.p50),
        lane.reuse_gap.count,
        lane.away.count,
        *lane.returned_within.values(),
    ]


def _shown(durations: Durations) -> tuple[str, str]:
    return _seconds(durations.p50), _seconds(durations.p99)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
