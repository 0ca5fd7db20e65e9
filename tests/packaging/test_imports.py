"""What the code imports: nothing that is not declared, and neither vLLM nor torch outside their own room."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OURS = {"eventstore", "tracker"}
#: The one room that vLLM begins in.
VLLM_ROOM = ROOT / "tracker" / "vllm"

#: Imports every module that it is given, with vLLM and torch made impossible.
_IMPORTER = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("vllm", "torch"):
            raise SystemExit(f"{name} is imported")
sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def sources() -> list[Path]:
    """Every file of ours outside vLLM's room."""
    found = [one for top in sorted(OURS) for one in sorted((ROOT / top).rglob("*.py"))]
    return [one for one in found if not one.is_relative_to(VLLM_ROOM)]


def imported(source: Path) -> Iterator[str]:
    """The top-level names that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def declared() -> set[str]:
    """The distributions that a base install brings by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[^A-Za-z0-9._-]", one)[0].lower() for one in project["dependencies"]}


def test_everything_that_is_imported_is_declared() -> None:
    named = {name for source in sources() for name in imported(source)} - OURS - set(sys.stdlib_module_names)
    distributions = packages_distributions()
    undeclared = {name for name in named if not {one.lower() for one in distributions.get(name, [])} & declared()}
    assert undeclared == set()


def test_neither_vllm_nor_torch_is_imported_outside_their_room() -> None:
    names = [
        ".".join(one.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for one in sources()
        if one.stem != "__main__"
    ]
    done = subprocess.run([sys.executable, "-c", _IMPORTER, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["vllm", "torch"])
def test_the_base_install_does_not_ask_for(name: str) -> None:
    assert name not in declared()
