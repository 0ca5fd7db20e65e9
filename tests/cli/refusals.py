"""What every refusal looks like; changes when the command line says no in another way."""

from pathlib import Path

from tests.cli.command import Outcome


def assert_refused(found: Outcome, *says: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that has all of `says`."""
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("kvledger: ")
    assert found.err.count("\n") == 1
    assert found.err.endswith("\n")
    missing = [one for one in says if one not in found.err]
    assert not missing, f"{missing} not in {found.err}"


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Everything under `folder`; None for what is no plain file. Without what SQLite keeps beside an open database."""
    found = {}
    for one in sorted(folder.rglob("*")):
        if not one.name.endswith(("-wal", "-shm")):
            found[str(one.relative_to(folder))] = one.read_bytes() if one.is_file() else None
    return found
