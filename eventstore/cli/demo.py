"""`kvledger demo`: the main job end to end on a recorded engine, its crash included."""

import enum
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from sqlalchemy import Connection

import tracker.traces
from eventstore.cli import demo_live, render
from eventstore.cli.drive import drive
from eventstore.cli.options import AsJson
from eventstore.domain.errors import BadInput
from eventstore.domain.key import wire_hash
from eventstore.domain.metadata import unpack
from eventstore.log.stream import StreamRow, one_stream
from eventstore.log.verify import verify
from eventstore.recovery.restore import residents
from eventstore.replay.consumer import Consumer, Credit
from eventstore.storage.store import open_for_reading
from tracker.traces.calls import TakeEvents
from tracker.traces.drive import Options
from tracker.traces.read import read_trace

NAME = "demo"

RECORDED = Path(tracker.traces.__file__).parent / "recorded"


class Engine(enum.StrEnum):
    """What the demo runs on."""

    RECORDED = "recorded"
    VLLM = "vllm"


def command(
    engine: Annotated[
        Engine, typer.Option("--engine", help="A recorded engine, or a live one where vLLM is installed.")
    ] = Engine.RECORDED,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Leave the store and the published events in this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a vLLM engine with the tracker, kill it half-way, recover, and show what consumers believe."""
    run, show = (demo_live.run, demo_live.show) if engine is Engine.VLLM else (_run, _show)
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{keep}: no such folder, and it cannot be made: {error.strerror}") from None
        found = run(keep)
    else:
        with tempfile.TemporaryDirectory(prefix="kvledger-demo-") as folder:
            found = run(Path(folder))
    if as_json:
        render.document(found)
        return
    show(found, keep)


def _run(folder: Path) -> dict[str, Any]:
    path = RECORDED / "two_tier.calls.jsonl.gz"
    store, published = folder / "demo.db", folder / "published.jsonl"
    render.warn(
        "Driving a recorded engine (vLLM 0.32: CPU pool and an evicting disk tier); both processes die by SIGKILL ..."
    )
    counts = drive(path, Options(str(store), published=str(published)), crash=True)
    upstream, ours = Consumer(), Consumer()
    for call in (call for process in read_trace(path).processes for call in process):
        if isinstance(call, TakeEvents):
            for event in call.out:
                upstream.read(event)
    for line in published.read_bytes().splitlines():
        for event in msgspec.json.decode(line)["out"]:
            ours.read(event)
    engine = open_for_reading(str(store))
    try:
        with engine.begin() as connection:
            stream = one_stream(connection, None)
            truth = _truth(connection, stream)
            checked = verify(connection, stream)
    finally:
        engine.dispose()
    return {
        "counts": counts,
        "upstream": _belief(upstream, truth),
        "kvledger": _belief(ours, truth),
        "verify": {"ok": not checked.findings, "events": checked.events, "batches": checked.batches},
    }


def _truth(connection: Connection, stream: StreamRow) -> set[Credit]:
    """Every hash that is somewhere, by the residency view."""
    places = {
        number: (medium, owner)
        for number, medium, owner in connection.exec_driver_sql(
            "SELECT place, medium, ownership FROM place WHERE stream = ?", (stream.stream,)
        )
    }
    found: set[Credit] = set()
    for one in residents(connection, stream.stream):
        hashes = unpack(one.key, one.packed).block_hashes if one.packed else (one.key[:-4],)
        found.update((*places[one.place], wire_hash(h)) for h in hashes)
    return found


def _belief(consumer: Consumer, truth: set[Credit]) -> dict[str, int]:
    believed = consumer.believed()
    return {
        "right": len(believed & truth),
        "ghosts": len(believed - truth),
        "missing": len(truth - believed),
        "placeholders": consumer.placeholders,
    }


def _show(found: dict[str, Any], keep: Path | None) -> None:
    counts, before, after = found["counts"], found["upstream"], found["kvledger"]
    render.say(
        f"{counts['stored']:,} stores and {counts['removed']:,} removals in {counts['batches']:,} scheduler steps; "
        f"{counts['epochs']} processes, each killed by SIGKILL; {counts['resets']} cache resets."
    )
    rows = [
        ("blocks rightly believed", before["right"], after["right"]),
        ("ghosts: believed, and nowhere", before["ghosts"], after["ghosts"]),
        ("missing: resident, and not believed", before["missing"], after["missing"]),
        ("stores without tokens", before["placeholders"], after["placeholders"]),
    ]
    render.table("What a router believes at the end", ["", "vLLM alone", "with kvledger"], rows)
    checked = found["verify"]
    render.say(
        f"The crash: {counts['closed_on_restart']} CPU chunks ended with their process and consumers were told; "
        f"{counts['resident_at_end']['STORAGE']} chunks on disk kept their tokens, hashes and parents."
    )
    state = "all as written" if checked["ok"] else "DAMAGED"
    render.say(f"The log: {checked['events']:,} events in {checked['batches']:,} batches, {state}.")
    if keep is not None:
        render.say(f"Kept in {keep}; try: kvledger status --store {keep / 'demo.db'}")
