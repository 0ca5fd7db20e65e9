"""`kvledger drive`: run the tracker over a recorded engine."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from eventstore.audit.tally import Tally, tally
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store
from eventstore.log.stream import one_stream
from eventstore.storage.store import open_for_reading
from tracker.settings import Settings
from tracker.traces.calls import TakeEvents
from tracker.traces.child import run_killed
from tracker.traces.drive import Options, prepare, run_process
from tracker.traces.read import Trace, read_trace

NAME = "drive"


def command(
    trace: Annotated[Path, typer.Argument(help="A recorded engine, NAME.calls.jsonl.gz.")],
    store: Store = DEFAULT_STORE,
    crash: Annotated[bool, typer.Option("--crash", help="Each process is a real child that ends by SIGKILL.")] = False,
    publish: Annotated[Literal["after_commit", "at_once"], typer.Option(help="When events go out.")] = "after_commit",
    announce: Annotated[
        Literal["full", "closes", "none"], typer.Option(help="What consumers are told after a restart or a reset.")
    ] = "full",
    published: Annotated[
        Path | None, typer.Option("--published", help="Write what was handed out to FILE, one JSON line a call.")
    ] = None,
    outbox_events: Annotated[
        int, typer.Option("--outbox-events", min=1, help="Most events between the engine thread and the store.")
    ] = Settings().outbox_events,
    as_json: AsJson = False,
) -> None:
    """Run the tracker over a recorded call trace, process by process, and count what came of it."""
    counts = drive(
        trace, Options(store, publish, announce, str(published) if published else None, outbox_events), crash=crash
    )
    if as_json:
        render.document(counts)
        return
    rows = [(name.replace("_", " "), _shown(value)) for name, value in counts.items()]
    render.table(f"{counts['trace']} in {store}", ["what", "count"], rows)


def drive(path: Path, options: Options, *, crash: bool) -> dict[str, object]:
    """Run the whole trace; returns the counts, read back from the log."""
    trace = read_trace(path)
    prepare(path, trace, options)
    with render.progress("processes", len(trace.processes)) as done:
        for number in range(len(trace.processes)):
            if crash:
                run_killed(path, number, options)
            else:
                run_process(trace, number, options)
            done(number + 1)
    engine = open_for_reading(options.store)
    try:
        with engine.begin() as connection:
            found: Tally = tally(connection, one_stream(connection, trace.name))
    finally:
        engine.dispose()
    return {"trace": trace.name, "batches": _batches(trace)} | msgspec.structs.asdict(found)


def _batches(trace: Trace) -> int:
    return sum(isinstance(call, TakeEvents) for process in trace.processes for call in process)


def _shown(value: object) -> object:
    return ", ".join(f"{medium} {count}" for medium, count in value.items()) if isinstance(value, dict) else value
