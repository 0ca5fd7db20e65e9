"""`kvledger residency`: what is where, now, after any event or at any time."""

from typing import Annotated, Any

import typer

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import reading_stream
from eventstore.domain import clock
from eventstore.domain.events import PLACEHOLDER, locality_of
from eventstore.domain.point import parse_point
from eventstore.log.points import seq_at
from eventstore.views.residency import ResidencyRow, residency

NAME = "residency"


def command(
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="SEQ|TIME", help="After this event, or at this time, instead of now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every chunk with the places where it is resident."""
    point = parse_point(at) if at is not None else None
    with reading_stream(store, stream) as (connection, row):
        seq = seq_at(connection, row, point) if point is not None else None
        found = [_words(one) for one in residency(connection, row, seq)]
        seq = row.last_seq if seq is None else seq
    if as_json:
        render.document({"stream": row.name, "at_seq": seq, "residencies": found})
        return
    columns = ["key", "medium", "ownership", "opened seq", "opened"]
    shown = ([one[name] for name in ("key", "medium", "ownership", "opened_seq", "opened")] for one in found)
    render.table(f"{row.name} at seq {seq}: {len(found):,} resident", columns, shown)


def _words(one: ResidencyRow) -> dict[str, Any]:
    locality = locality_of(one.flags)
    return {
        "key": one.key.hex(),
        "medium": one.medium,
        "ownership": one.ownership,
        "locality": locality.value if locality else None,
        "opened_seq": one.opened_seq,
        "opened": clock.iso(one.opened_ns),
        "opened_ns": one.opened_ns,
        "placeholder": bool(one.flags & PLACEHOLDER),
    }
