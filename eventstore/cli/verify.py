"""`kvledger verify`: checksums and the hash chain."""

import typer

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import reading
from eventstore.log.strays import strays
from eventstore.log.stream import all_streams, one_stream
from eventstore.log.verify import verify

NAME = "verify"


def command(store: Store = DEFAULT_STORE, stream: Stream = None, as_json: AsJson = False) -> None:
    """Check that the log is what was written. Exits 1 and names the first bad seq where it is not."""
    results = []
    with reading(store) as connection:
        rows = [one_stream(connection, stream)] if stream is not None else all_streams(connection)
        for row in rows:
            with render.progress(f"verify {row.name}", row.last_seq) as done:
                results.append(verify(connection, row, done))
        lost = strays(connection) if stream is None else []
    findings = [finding for result in results for finding in result.findings] + lost
    if as_json:
        render.document({"ok": not findings, "streams": results, "strays": lost})
    else:
        for result in results:
            end = f"{result.events:,} events in {result.batches:,} batches, chain {result.chain}"
            render.say(f"{result.stream}: {'DAMAGED' if result.findings else 'fine'}: {end}")
        for finding in findings:
            render.say(f"  {finding.stream}, seq {finding.seq}: {finding.problem}")
    if findings:
        raise typer.Exit(1)
