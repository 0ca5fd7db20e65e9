"""`kvledger diff`: what changed between two points of a stream."""

from typing import Annotated

import typer

from eventstore.audit.diff import diff
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import reading_stream
from eventstore.domain.point import parse_point
from eventstore.log.points import seq_at

NAME = "diff"

_WORDS = ("came", "left", "moved")


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A seq or a time.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A later one.")],
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    as_json: AsJson = False,
) -> None:
    """Which chunks came, left or moved between A and B."""
    points = parse_point(a), parse_point(b)
    with reading_stream(store, stream) as (connection, row):
        from_seq, to_seq = (seq_at(connection, row, point) for point in points)
        changes = list(diff(connection, row, from_seq, to_seq))
    counts = {word: sum(change.what == word for change in changes) for word in _WORDS}
    if as_json:
        render.document(
            {"stream": row.name, "from_seq": from_seq, "to_seq": to_seq, "counts": counts, "changes": changes}
        )
        return
    said = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    shown = (
        (
            change.what,
            change.key,
            ", ".join(change.before),
            ", ".join(change.after),
            ", ".join(f"{place} {reason}" for place, reason in change.reasons.items()),
        )
        for change in changes
    )
    render.table(f"{row.name}, seq {from_seq} to {to_seq}: {said}", ["", "key", "before", "after", "reasons"], shown)
