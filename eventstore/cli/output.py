"""Where a command that moves data puts it: stdout or a file, in one of the formats; changes with what can be named."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eventstore.domain.errors import BadInput
from eventstore.replay.columns import ROWS
from eventstore.replay.parquet import Parquet
from eventstore.replay.sinks import JsonLines, Output, Sink


class _Unbuffered:
    """Stdout under PYTHONUNBUFFERED, where a write that a signal cuts short says so in passing and goes no further."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._raw.write(left) or 0 :]

    def flush(self) -> None:
        self._raw.flush()


@contextmanager
def open_output(path: Path | None) -> Iterator[Output]:
    """The file at `path`, made anew, or stdout."""
    if path is not None:
        with open(path, "wb") as file:
            yield file
        return
    stdout: Any = sys.stdout.buffer
    output: Output = _Unbuffered(stdout) if isinstance(stdout, io.RawIOBase) else stdout
    yield output
    output.flush()


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
