"""How results look, for a person and for a program; changes with either look."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

SCHEMA_VERSION = 1


class _Console(Console):
    """rich's, but for a reader that has gone: `app` decides how that ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def document(content: Any) -> None:
    """One JSON document on stdout."""
    body = msgspec.to_builtins(content)
    typer.echo(json.dumps({"schema_version": SCHEMA_VERSION} | body, indent=2))


def table(title: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table on stdout. Numbers to the right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    collected = [list(row) for row in rows]
    for at, column in enumerate(columns):
        right = all(isinstance(row[at], int) for row in collected) if collected else False
        made.add_column(column, justify="right" if right else "left", overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in collected:
        made.add_row(*("" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    # Piped into a file or another program, a line stays a line.
    _Console(highlight=False, width=None if sys.stdout.isatty() else 1_000).print(made)


def say(text: str) -> None:
    """A line for a person, on stdout."""
    out.print(text, markup=False)


def warn(text: str) -> None:
    """A line about the work, on stderr."""
    err.print(text, markup=False)


@contextmanager
def progress(what: str, total: int) -> Iterator[Any]:
    """A progress bar on stderr where that is a terminal; yields a function that takes how far the work is."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
