"""`kvledger replay`: a slice of the log goes out to a sink, at a pace."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from sqlalchemy import Connection

from eventstore.cli import render
from eventstore.cli.interrupt import interruptible
from eventstore.cli.options import DEFAULT_STORE, Store, Stream
from eventstore.cli.output import open_sink
from eventstore.cli.reading import reading_stream
from eventstore.domain.errors import BadInput
from eventstore.domain.place import parse_medium
from eventstore.domain.point import parse_point
from eventstore.log.cursor import Cursor, cursor_at
from eventstore.log.points import seq_at
from eventstore.log.stream import StreamRow
from eventstore.replay.form import Filter, Form
from eventstore.replay.kvsteps import KVSteps
from eventstore.replay.lines import LogLines
from eventstore.replay.pace import Pace
from eventstore.replay.reader import Reader
from eventstore.replay.run import replay
from eventstore.replay.sinks import Sink
from eventstore.replay.slices import slice_of
from eventstore.storage.store import open_for_reading

NAME = "replay"


class _Way(NamedTuple):
    """What is read: from where, up to where, in which form, and whether what is resident there comes first."""

    cursor: Cursor
    upto: int | None
    form: Form
    with_state: bool


def command(
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="SEQ|TIME", help="The first event; default: the floor.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="SEQ|TIME", help="The last event; default: the end.")
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", metavar="N", help="Only this epoch's events.")] = None,
    medium: Annotated[
        list[str] | None, typer.Option("--medium", help="Only what happens at this medium; may be given again.")
    ] = None,
    group: Annotated[
        list[int] | None, typer.Option("--group", help="Only chunks of this KV-cache group; may be given again.")
    ] = None,
    form: Annotated[
        Literal["log", "kv"], typer.Option(help="Our events, or the KV events that consumers read.")
    ] = "log",
    from_state: Annotated[
        str | None,
        typer.Option("--from-state", metavar="SEQ|TIME", help="What is resident there, as stores, then what follows."),
    ] = None,
    pace: Annotated[
        float | None, typer.Option("--pace", metavar="FACTOR", help="1: as recorded; 10: ten times as fast.")
    ] = None,
    follow_on: Annotated[bool, typer.Option("--follow", help="Go on with what is appended, until Ctrl-C.")] = False,
    sink: Annotated[Literal["jsonl", "parquet"], typer.Option(help="JSON lines, or a Parquet file.")] = "jsonl",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
) -> None:
    """Write the events of a slice, oldest first, one JSON object a line."""
    if from_state is not None and (first is not None or epoch is not None):
        raise BadInput("--from-state says where to begin: leave out --from and --epoch")
    if follow_on and (last is not None or epoch is not None):
        raise BadInput("--follow has no end: leave out --to and --epoch")
    wanted = Filter(frozenset(map(parse_medium, medium or ())), frozenset(group or ()))
    given = Pace(pace) if pace is not None else None
    with reading_stream(store, stream) as (connection, row):
        begin = from_state if from_state is not None else first
        way = _way(connection, row, (begin, last, epoch), form, wanted, state=from_state is not None, follow=follow_on)
    with open_sink(sink, form, output) as to:
        if follow_on:
            asyncio.run(_follow(store, way, to, given))
        else:
            _replay(store, way, to, given)


def _way(
    connection: Connection,
    row: StreamRow,
    said: tuple[str | None, str | None, int | None],
    form: str,
    wanted: Filter,
    *,
    state: bool,
    follow: bool,
) -> _Way:
    begin, last, epoch = said
    start, end = (parse_point(one) if one is not None else None for one in (begin, last))
    if state and start is not None:
        at = seq_at(connection, row, start)
        upto = seq_at(connection, row, end) if end is not None else row.last_seq
        if upto < at:
            raise BadInput(f"stream {row.name!r}: no slice from the state at {at} to {upto}; it ends before it begins")
    else:
        found = slice_of(connection, row, start, end, epoch)
        at, upto = found.first - 1, found.last
    last_seq = None if follow else upto
    made = KVSteps(wanted) if form == "kv" else LogLines(at + 1, last_seq, wanted)
    return _Way(cursor_at(connection, row, at), last_seq, made, state)


def _replay(store: str, way: _Way, sink: Sink, pace: Pace | None) -> None:
    engine = open_for_reading(store)
    begun = way.cursor.seq
    try:
        reader = Reader(way.form, way.cursor, way.upto, with_state=way.with_state)
        with (
            render.progress(f"replay {way.cursor.stream}", (way.upto or begun) - begun) as done,
            interruptible() as stop,
        ):
            replay(engine, reader, sink, pace=pace, stop=stop, progress=lambda seq: done(seq - begun))
    finally:
        engine.dispose()


async def _follow(store: str, way: _Way, sink: Sink, pace: Pace | None) -> None:
    # SQLAlchemy's asyncio side takes time to import, and needs greenlet: for this option alone.
    from eventstore.replay.follow import contents, follow  # noqa: PLC0415
    from eventstore.storage.asynchronous import open_for_following  # noqa: PLC0415

    engine = await open_for_following(store)
    try:
        async with aclosing(follow(engine, way.cursor, way.form, with_state=way.with_state)) as pages:
            if pace is None:
                async for read in pages:
                    sink.take([item.content for item in read.items])
                    sink.flush()
                return
            async with aclosing(contents(pages, pace)) as paced:
                async for content in paced:
                    sink.take([content])
                    sink.flush()
    finally:
        await engine.dispose()
