"""Tables as comma-separated text; changes with how such a file is written."""

import csv
import io
from collections.abc import Callable
from typing import Any

from eventstore.replay.columns import Columns, Row
from eventstore.replay.sinks import Output


class Csv:
    """A sink that writes a table: a line of names, then a line a row. None is an empty cell."""

    def __init__(self, file: Output, columns: Columns, rows_of: Callable[[Any], list[Row]]) -> None:
        self._file, self._rows_of = file, rows_of
        self._names = [name for name, _ in columns]
        self._write([self._names])

    def take(self, contents: list[Any]) -> None:
        """Write whole lines."""
        self._write([[row.get(name) for name in self._names] for content in contents for row in self._rows_of(content)])

    def flush(self) -> None:
        """Send on what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """The same: a line is whole as soon as it is written."""
        self._file.flush()

    def _write(self, rows: list[list[Any]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())
