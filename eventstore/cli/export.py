"""`kvledger export`: residencies as lanes for trace viewers, and as tables for notebooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from sqlalchemy import Connection

from eventstore.cli import render
from eventstore.cli.interrupt import interruptible
from eventstore.cli.options import DEFAULT_STORE, Store, Stream
from eventstore.cli.output import open_output
from eventstore.cli.reading import reading_stream
from eventstore.domain.errors import BadInput
from eventstore.domain.events import Kind
from eventstore.domain.place import parse_medium
from eventstore.domain.point import parse_point
from eventstore.log.read import page
from eventstore.log.stream import StreamRow
from eventstore.replay.columns import Row
from eventstore.replay.csvfile import Csv
from eventstore.replay.form import Filter
from eventstore.replay.lanes import Lanes
from eventstore.replay.lives import COLUMNS, Life, life_pages, life_words, marks, with_iso_times
from eventstore.replay.parquet import Parquet
from eventstore.replay.sinks import Sink
from eventstore.replay.slices import slice_of
from eventstore.storage.store import open_for_reading

NAME = "export"


def command(
    form: Annotated[
        Literal["chrome", "parquet", "csv"], typer.Option("--format", help="Lanes for a trace viewer, or a table.")
    ],
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="SEQ|TIME", help="Only what was resident from there on.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="SEQ|TIME", help="Only what was resident up to there.")
    ] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", metavar="N", help="Only what was resident in it.")] = None,
    medium: Annotated[list[str] | None, typer.Option("--medium", help="Only this medium; may be given again.")] = None,
    group: Annotated[
        list[int] | None, typer.Option("--group", help="Only chunks of this KV-cache group; may be given again.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
) -> None:
    """Write every residency from opening to end, with the reason why it ended."""
    wanted = Filter(frozenset(map(parse_medium, medium or ())), frozenset(group or ()))
    start, end = (parse_point(one) if one is not None else None for one in (first, last))
    with reading_stream(store, stream) as (connection, row):
        part = slice_of(connection, row, start, end, epoch)
        times = _time_of(connection, row, row.floor_seq), _time_of(connection, row, part.last)
        found = marks(connection, row, part)
    engine = open_for_reading(store)
    try:
        with (
            _sink(form, row.name, times, found, output) as sink,
            render.progress(f"export {row.name}", part.last) as done,
            interruptible() as stop,
        ):
            for lives in life_pages(engine, row, part, wanted):
                if stop.is_set():
                    break
                sink.take(lives)
                done(lives[-1].chunk if lives else 0)
    finally:
        engine.dispose()


def _time_of(connection: Connection, row: StreamRow, seq: int) -> int:
    found = page(connection, row.stream, seq - 1, upto=seq)
    return found[0].time_ns if found else 0


@contextmanager
def _sink(
    form: str, stream: str, times: tuple[int, int], found: list[tuple[int, int, Kind]], output: Path | None
) -> Iterator[Sink]:
    def words(life: Life) -> list[Row]:
        return [life_words(stream, life)]

    def readable(life: Life) -> list[Row]:
        return [with_iso_times(life_words(stream, life))]

    if form == "parquet":
        if output is None:
            raise BadInput("a Parquet file needs a name: give --output FILE")
        table = Parquet(output, COLUMNS, words)
        try:
            yield table
        finally:
            table.close()
        return
    with open_output(output) as file:
        sink: Sink = Lanes(file, stream, *times, found) if form == "chrome" else Csv(file, COLUMNS, readable)
        try:
            yield sink
        finally:
            sink.close()
