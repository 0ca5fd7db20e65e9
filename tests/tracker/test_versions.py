"""Which vLLM the connector works in, and the one line that says so where it does not."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracker.vllm.versions import SUPPORTED, UnsupportedVLLM, check_scheduler, check_version

REPOSITORY = Path(__file__).parents[2]
CALLS = ("record_store", "record_lookup", "record_partial_store", "record_partial_lookup", "take_events", "reset")


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cpu", "0.33.1.dev7+gabc", "0.33"])
def test_a_release_of_a_supported_version_is_taken(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "0.3.2", "1.32.0", "dev", ""])
def test_another_version_is_refused_in_one_line_that_names_both(version: str) -> None:
    with pytest.raises(UnsupportedVLLM) as refusal:
        check_version(version)
    assert f"works with vLLM 0.32 and 0.33, this is {version}; install one of them" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def scheduler(**without: bool) -> Any:
    """The parts of vLLM's scheduler side that the connector calls or replaces, but for what is left out."""
    calls = {name: print for name in CALLS if not without.get(name)}
    manager = SimpleNamespace(take_events=print) if not without.get("manager") else None
    made = SimpleNamespace(_events_tracker=SimpleNamespace(**calls), manager=manager)
    if without.get("tracker"):
        del made._events_tracker
    return made


def test_a_scheduler_that_has_all_that_is_replaced_is_taken() -> None:
    check_scheduler(scheduler(), "0.32.0")


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("tracker", "SimpleNamespace has no _events_tracker"),
        ("reset", "SimpleNamespace has no reset"),
        ("record_partial_lookup", "SimpleNamespace has no record_partial_lookup"),
        ("manager", "SimpleNamespace has no manager with take_events"),
    ],
)
def test_what_a_scheduler_lacks_is_named_in_one_line(missing: str, told: str) -> None:
    with pytest.raises(UnsupportedVLLM) as refusal:
        check_scheduler(scheduler(**{missing: True}), "0.33.5")
    assert str(refusal.value) == (
        f"kvledger: vLLM 0.33.5: {told}, which kvledger relies on; it works with 0.32 and 0.33"
    )


def python_beside(folder: Path, version: str, program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program beside a vLLM of that version that has nothing in it."""
    (folder / "vllm").mkdir()
    (folder / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.40.0", "kvledger: works with vLLM 0.32 and 0.33, this is 0.40.0; install one of them"),
        ("0.33.9", "kvledger: vLLM 0.33.9: cannot import name 'envs' from 'vllm'"),
    ],
)
def test_where_vllm_has_moved_what_we_import_one_line_ends_the_traceback(
    version: str, told: str, tmp_path: Path
) -> None:
    ended = python_beside(tmp_path, version, "import tracker.vllm.connector")
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.splitlines()[-1].startswith(f"tracker.vllm.versions.UnsupportedVLLM: {told}")


def test_the_plug_in_is_silent_beside_any_vllm(tmp_path: Path) -> None:
    ended = python_beside(tmp_path, "0.40.0", "from tracker.vllm.plugin import register; register()")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_plug_in_is_light() -> None:
    program = "import sys, tracker.vllm.plugin; print([m for m in ('sqlalchemy', 'torch', 'vllm') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_the_documentation_lists_the_supported_versions() -> None:
    text = (REPOSITORY / "docs" / "vllm.md").read_text()
    assert f"Tested with vLLM {' and '.join(SUPPORTED)}." in text
