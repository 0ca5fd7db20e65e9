"""Runs `kvledger` as a process of its own; changes with how such a process is started and looked at."""

import os
import subprocess
import sys
from typing import Any

PROGRAM = "import sys; sys.argv[0] = 'kvledger'; from eventstore.cli.app import main; main()"
#: The same, and then the most memory that the process ever held, in KiB, on stderr. Linux alone keeps that apart from
#: what the parent held when it was forked: `getrusage` gives the greater of the two.
MEASURED = (
    "import sys; from eventstore.cli.app import run; code = run(sys.argv[1:]);"
    "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1];"
    "print(peak, file=sys.stderr); sys.exit(code)"
)


def start(*arguments: object, **environment: str) -> "subprocess.Popen[bytes]":
    """A `kvledger` whose output and errors are pipes, buffered unless `environment` says otherwise."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
    )


def rest_of(child: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """What a child that ends has still written, to stdout and to stderr. `communicate` would lose what has been read
    ahead since the last line that was looked at."""
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout, child.stderr:
        out, errors = child.stdout.read(), child.stderr.read()
    child.wait()
    return out, errors


def peak_kib(*arguments: object) -> int:
    """How much memory one command ever held, in KiB."""
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    done: Any = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stderr)
