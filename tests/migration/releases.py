"""The next release of kvledger, made from this tree and one more migration; changes with where migrations live."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from eventstore.storage.migration import revisions
from tests.openfiles import has_open

ROOT = Path(__file__).parent.parent.parent
NOW = revisions()[-1]
NEXT = f"{int(NOW) + 1:04}"

_REVISION = '''"""A migration of the next release."""

from alembic import op

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE TABLE extra (x INTEGER) STRICT")
    {second}


def downgrade() -> None:
    raise RuntimeError("migrations only go forward")
'''


class Release:
    """This tree with migrations of its own, run by processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "migrations", folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("eventstore", "tracker"):
            (folder / name).symlink_to(ROOT / name, target_is_directory=True)

    def add_revision(self, second: str) -> None:
        """Give it one revision more: a table, and then `second`, a statement of Python."""
        script = _REVISION.format(revision=NEXT, before=NOW, second=second)
        (self.folder / "migrations" / "versions" / f"{NEXT}_extra.py").write_text(script)

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run its `kvledger`."""
        return self.start(*arguments).finish()

    def start(self, *arguments: object) -> "Running":
        """Start its `kvledger`."""
        command = [sys.executable, "-m", "eventstore.cli.app", *map(str, arguments)]
        # A path that is there already goes behind: this release's code is what must be found.
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        return Running(command, self.folder, environment)


class Running:
    """A command under way."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def has_open(self, path: Path) -> bool:
        """Whether it has the file open just now."""
        return has_open(self.process.pid, path)

    def finish(self) -> "subprocess.CompletedProcess[str]":
        """Wait for its end."""
        out, err = self.process.communicate(timeout=60)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)
