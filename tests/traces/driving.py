"""Runs `kvledger` in this process and keeps what a drive left: counts, store, what was published; changes with how the
tests call the command line.
"""

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eventstore.cli import app
from tests.traces.differ import Line
from tests.traces.model import Call, Model


class Engine(NamedTuple):
    """A trace as a file, its calls, and what the rules make of them."""

    path: Path
    calls: list[Call]
    model: Model


class Mode(NamedTuple):
    """The options of a drive. `crash`: each process is a child that dies by SIGKILL."""

    publish: str = "after_commit"
    announce: str = "full"
    crash: bool = False

    def __str__(self) -> str:
        return f"{self.publish}-{self.announce}-{'killed' if self.crash else 'in_process'}"


class Driven(NamedTuple):
    """What a drive left."""

    engine: Engine
    mode: Mode
    counts: dict[str, Any]
    store: Path
    published_file: Path

    def published(self) -> list[list[Line]]:
        """The events of each call, by epoch. Read anew each time: all of them together are large."""
        epochs: list[list[Line]] = []
        for raw in self.published_file.read_bytes().splitlines():
            line = msgspec.json.decode(raw)
            if line["epoch"] > len(epochs):
                epochs.append([])
            assert line["epoch"] == len(epochs), "epochs are numbered from 1, one after the other"
            epochs[-1].append(line["out"])
        return epochs


def kvledger(*arguments: object) -> tuple[int, str]:
    """Run one command; returns its exit code and what it wrote to stdout."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = app.run([str(one) for one in arguments])
    return code, out.getvalue()


def document(*arguments: object, exits: int = 0) -> dict[str, Any]:
    """Run one command with `--json`; returns its document."""
    code, out = kvledger(*arguments, "--json")
    assert code == exits, f"kvledger {' '.join(map(str, arguments))} ended with {code}"
    return dict(json.loads(out))


def drive(engine: Engine, folder: Path, mode: Mode) -> Driven:
    """`kvledger drive` into a new store in `folder`."""
    store, published = folder / "store.db", folder / "published.jsonl"
    options = ["--publish", mode.publish, "--announce", mode.announce, *(["--crash"] if mode.crash else [])]
    counts = document("drive", engine.path, "--store", store, "--published", published, *options)
    return Driven(engine, mode, counts, store, published)
