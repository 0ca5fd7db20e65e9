"""Which files a process has open just now, by Linux's /proc."""

import os
from pathlib import Path


def open_files(pid: int) -> set[tuple[str, str]]:
    """The number and the name of each of the process's open files; none where it is gone."""
    found = set()
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()
    for number in numbers:
        try:
            found.add((number, os.readlink(f"/proc/{pid}/fd/{number}")))
        except OSError:  # closed in the meantime
            continue
    return found


def has_open(pid: int, path: Path | str) -> bool:
    """Whether the process has the file at `path` open."""
    return any(name == os.path.realpath(path) for _, name in open_files(pid))
