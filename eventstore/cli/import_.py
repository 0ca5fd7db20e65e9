"""`kvledger import`: an exported stream comes into a store."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store
from eventstore.domain.errors import BadInput
from eventstore.replay.load import load
from eventstore.storage.store import open_for_writing

NAME = "import"


def command(
    file: Annotated[Path, typer.Argument(help="What `replay --form log` wrote of a whole stream; - is stdin.")],
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Bring an exported stream into a store, in one transaction: chunk numbers, epochs, times, batches and all."""
    with _opened(file) as (lines, size):
        engine, _ = open_for_writing(store)
        try:
            with render.progress(f"import {file}", size) as done, engine.begin() as connection:
                found = load(connection, lines, file, done)
        finally:
            engine.dispose()
    if as_json:
        render.document(found)
        return
    render.say(f"{found.stream}: {found.events:,} events in {found.batches:,} batches, chain {found.chain}")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    if str(path) == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        with open(path, "rb") as file:
            yield file, path.stat().st_size
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
