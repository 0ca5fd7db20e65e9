"""`kvledger replay`: a slice of the log goes out as JSON lines."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, Store, Stream
from eventstore.cli.reading import reading_stream
from eventstore.domain.errors import BadInput
from eventstore.replay.lines import lines, slice_of

NAME = "replay"


def command(
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="SEQ", help="The first event; default: the floor.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="SEQ", help="The last event; default: the end.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
) -> None:
    """Write the events of a slice, one JSON object a line, oldest first."""
    with reading_stream(store, stream) as (connection, row):
        start, end = slice_of(row, first, last)
        try:
            sink = open(output, "wb") if output else sys.stdout.buffer  # noqa: SIM115 - stdout is not ours to close
        except OSError as error:
            raise BadInput(f"{output}: cannot be written: {error.strerror}") from None
        with render.progress(f"replay {row.name}", end - start + 1) as done:
            for number, line in enumerate(lines(connection, row, start, end), 1):
                sink.write(line)
                if not number % 4_096:
                    done(number)
        sink.flush()
        if output:
            sink.close()
