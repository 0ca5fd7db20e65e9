"""`kvledger rebuild`: compute the views anew from the log."""

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import changing
from eventstore.log.stream import all_streams, one_stream
from eventstore.views.rebuild import rebuild

NAME = "rebuild"


def command(store: Store = DEFAULT_STORE, stream: Stream = None, as_json: AsJson = False) -> None:
    """Replace the views by what the log gives, in one transaction, and say how many rows were wrong."""
    with changing(store) as connection:
        rows = [one_stream(connection, stream)] if stream is not None else all_streams(connection)
        results = [rebuild(connection, row) for row in rows]
    if as_json:
        render.document({"changed": sum(sum(result.changed.values()) for result in results), "streams": results})
        return
    columns = ["stream", "at seq", "residency rows", "wrong before", "lifecycle rows", "wrong before"]
    table = (
        (r.stream, r.seq, r.rows["residency"], r.changed["residency"], r.rows["lifecycle"], r.changed["lifecycle"])
        for r in results
    )
    render.table("", columns, table)
