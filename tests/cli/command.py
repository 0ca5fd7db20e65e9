"""`kvledger` as a test runs it: in this process for what it says, as a process of its own for how it ends."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eventstore.cli.app import run

COMMAND = (sys.executable, "-m", "eventstore.cli.app")
ROOT = Path(__file__).parent.parent.parent


class Outcome(NamedTuple):
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """stdout as the one JSON document that it is."""
        found: dict[str, Any] = msgspec.json.decode(self.out)
        return found


def kvledger(*arguments: object) -> Outcome:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(one) for one in arguments])
    written = [file.buffer.getvalue().decode() for file in (out, err)]
    return Outcome(code, *written)


def kvledger_process(
    *arguments: object, environment: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start a command as a process of its own, stdout and stderr as pipes. `environment`: what is set beside ours."""
    # Unbuffered, Python drops what a pipe did not take, and never learns that its reader has left.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    given = pipes | {"env": inherited | dict(environment or {})} | options
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **given)
