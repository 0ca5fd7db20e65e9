"""Where a command that moves data puts it: stdout or a file, in one of the formats; changes with what can be named."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eventstore.domain.errors import BadInput
from eventstore.replay.columns import ROWS
from eventstore.replay.parquet import Parquet
from eventstore.replay.sinks import JsonLines, Sink


@contextmanager
def open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """The file at `path`, made anew, or stdout."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open(path, "wb") as file:
        yield file


@contextmanager
def open_sink(kind: str, form: str, path: Path | None) -> Iterator[Sink]:
    """The sink that a replay's options mean. It is whole at the end, however the end comes."""
    if kind == "jsonl":
        with open_output(path) as file:
            sink: Sink = JsonLines(file)
            try:
                yield sink
            finally:
                sink.close()
        return
    if path is None:
        raise BadInput("a Parquet file needs a name: give --output FILE")
    columns, rows_of = ROWS[form]
    table = Parquet(path, columns, rows_of)
    try:
        yield table
    finally:
        table.close()
