"""`kvledger audit`: the checks of what the log says, a finding or information each."""

from typing import Annotated

import typer

from eventstore.audit.checks import CHECKS, Result, audit, named
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import connected
from eventstore.log.stream import all_streams, one_stream

NAME = "audit"


def command(
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help=f"Only this check: {', '.join(one.name for one in CHECKS)}."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the log whether all is as it must be. Exits 1 on findings; information alone exits 0."""
    checks = named(check or ())
    results: list[Result] = []
    with connected(store) as connection:
        with connection.begin():
            rows = [one_stream(connection, stream)] if stream is not None else all_streams(connection)
        for row in rows:
            with render.progress(f"audit {row.name}", row.last_seq) as done:
                results += audit(connection, row, checks, done)
    findings = [result for result in results if result.is_finding]
    if as_json:
        render.document({"ok": not findings, "results": results})
    else:
        _show(results)
    if findings:
        raise typer.Exit(1)


def _show(results: list[Result]) -> None:
    columns = ["stream", "check", "what must hold", "", "count"]
    render.table("", columns, ((r.stream, r.check, r.asks, _word(r), r.count) for r in results))
    for result in (one for one in results if one.count):
        render.say(f"{result.stream}, {result.check}:")
        for example in result.examples:
            render.say("  " + ", ".join(f"{name} {value}" for name, value in example.items() if value is not None))
        if result.count > len(result.examples):
            render.say(f"  and {result.count - len(result.examples):,} more")


def _word(result: Result) -> str:
    if not result.count:
        return "fine"
    return "FINDING" if result.is_finding else "information"
