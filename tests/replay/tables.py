"""Reads Parquet files back; changes with what tests look at in a table."""

import importlib
from pathlib import Path
from typing import Any


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Every row; times as nanoseconds since 1970, which Python's own times cannot hold."""
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(path)
    times = {field.name for field in table.schema if str(field.type).startswith("timestamp")}
    for name in times:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast("int64"))
    return list(table.to_pylist())
