"""Runs `kvledger` in this process and over recorded engines; changes with how these tests call the command line."""

import contextlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eventstore.cli import app
from tests.facts import recorded


class Ran(NamedTuple):
    """What one command left."""

    code: int
    out: bytes
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """Its output, a JSON object a line."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Driven(NamedTuple):
    """A recorded engine, driven: the store, and what was published, a list of events a call."""

    store: Path
    published: list[list[dict[str, Any]]]


def kvledger(*arguments: object) -> Ran:
    """Run one command."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = app.run([str(one) for one in arguments])
        out.flush()
    return Ran(code, out.buffer.getvalue(), err.getvalue())


def done(*arguments: object) -> Ran:
    """Run one command that must end well."""
    ran = kvledger(*arguments)
    assert ran.code == 0, f"kvledger {' '.join(map(str, arguments))} ended with {ran.code}: {ran.err}"
    return ran


def drive(name: str, folder: Path, announce: str = "full") -> Driven:
    """`kvledger drive` of a recorded engine into a new store."""
    store, published = folder / f"{name}.db", folder / f"{name}.published"
    done("drive", recorded(name), "--store", store, "--published", published, "--announce", announce)
    return Driven(store, [msgspec.json.decode(line)["out"] for line in published.read_bytes().splitlines()])
