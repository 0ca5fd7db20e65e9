"""Tables as Parquet files, with pyarrow where it is installed; changes with how such a file is written."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventstore.domain.errors import BadInput
from eventstore.replay.columns import Columns, Row

#: Rows are gathered up to this many, and go out as one row group.
ROWS_A_GROUP = 16_384


class Parquet:
    """A sink that writes a table: what it takes is made into rows by `rows_of`."""

    def __init__(self, path: Path, columns: Columns, rows_of: Callable[[Any], list[Row]]) -> None:
        self._arrow, parquet = _pyarrow()
        self._schema = self._arrow.schema([(name, self._type(kind)) for name, kind in columns])
        self._rows_of, self._rows = rows_of, list[Row]()
        try:
            self._writer: Any = parquet.ParquetWriter(path, self._schema, compression="zstd")
        except OSError as error:
            raise BadInput(f"{path}: cannot be written: {error.strerror or error}") from None

    def take(self, contents: list[Any]) -> None:
        """Gather, and write a row group whenever there is one."""
        for content in contents:
            self._rows += self._rows_of(content)
            if len(self._rows) >= ROWS_A_GROUP:
                self._write()

    def flush(self) -> None:
        """Nothing: a Parquet file can be read once it is closed, and not before."""

    def close(self) -> None:
        """Write what is left, and the file's end."""
        if self._rows:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))

    def _type(self, kind: str) -> Any:
        if kind.startswith("list:"):
            return self._arrow.list_(self._type(kind.removeprefix("list:")))
        arrow = self._arrow
        known = {
            "int": arrow.int64(),
            "uint64": arrow.uint64(),
            "bool": arrow.bool_(),
            "text": arrow.string(),
            "float": arrow.float64(),
            "time": arrow.timestamp("ns", tz="UTC"),
        }
        return known[kind]


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("Parquet needs pyarrow, which is not installed: pip install 'kvledger[parquet]'") from None
