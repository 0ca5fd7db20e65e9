"""One process of a trace as a process of its own, killed at its end; changes with how the parent calls it.

Run as `python -m tracker.traces.child TRACE NUMBER OPTIONS`, the options as JSON.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from eventstore.domain.errors import LedgerError, StoreUnusable
from tracker.traces.drive import Options, run_process
from tracker.traces.read import read_trace


def run_killed(path: Path, number: int, options: Options) -> None:
    """Run process `number` of the trace in a child that dies by SIGKILL. Raises what stopped it from getting there."""
    command = [
        sys.executable,
        "-m",
        "tracker.traces.child",
        str(path),
        str(number),
        msgspec.json.encode(options).decode(),
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != -9:
        problem = done.stderr.strip().splitlines()
        raise StoreUnusable(
            problem[-1] if problem else f"process {number + 1} of the trace ended with {done.returncode}"
        )


def main(arguments: list[str]) -> int:
    """The child's side."""
    path, number, options = arguments
    try:
        run_process(
            read_trace(Path(path)), int(number), msgspec.json.decode(options.encode(), type=Options), then_die=True
        )
    except LedgerError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the parent repeats it
        return 2
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
