"""A wheel built from this tree works where nothing else of the tree is: it migrates, drives a trace, runs the demo."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from eventstore.storage.migration import revisions
from tests.cli.traces import OPEN, record, take, write_trace

ROOT = Path(__file__).parent.parent.parent
#: What a build reads, and what it must leave out. Copied, so that nothing is built in the tree itself.
SOURCES = ("eventstore", "tracker", "migrations", "tests", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without any network."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        one = ROOT / name
        if one.is_dir():
            shutil.copytree(one, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(one, source)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", target, source], check=True)
    (found,) = target.glob("kvledger-*.whl")
    return found


class Installed:
    """An environment of its own that has the wheel, and the dependencies of the one that the tests run in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, system_site_packages=False)
        self._bin = folder / "bin"
        options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
        python = self._bin / "python"
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], check=True)
        # A .pth file in a folder that a .pth file adds is not read, so an editable install of the tree stays out.
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self._folder = folder

    def run(self, *arguments: object, program: str = "kvledger") -> "subprocess.CompletedProcess[str]":
        """Run a program of it, far from the tree."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self._bin / program, *map(str, arguments)],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    """The wheel, installed."""
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_has_every_migration_and_the_demo_s_recording(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    migrations = {
        f"eventstore/_migrations/{one.relative_to(ROOT / 'migrations')}" for one in _files(ROOT / "migrations")
    }
    assert migrations <= names
    assert "tracker/traces/recorded/two_tier.calls.jsonl.gz" in names


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts]


def test_the_wheel_has_every_module_and_no_test(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    modules = {str(one.relative_to(ROOT)) for top in ("eventstore", "tracker") for one in _files(ROOT / top)}
    assert modules <= set(names)
    assert {name.split("/")[0] for name in names} == {"eventstore", "tracker"}
    assert not [name for name in names if "test" in name.split("/")]


def test_the_wheel_s_code_is_what_is_run(installed: Installed, tmp_path: Path) -> None:
    script = "import eventstore, tracker; print(eventstore.__file__); print(tracker.__file__)"
    found = installed.run("-c", script, program="python").stdout.splitlines()
    assert [Path(one).parts[-3] for one in found] == ["site-packages"] * 2
    assert not [one for one in found if Path(one).is_relative_to(ROOT)]


def test_an_installed_wheel_makes_and_migrates_a_store(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("migrate", "--store", tmp_path / "k.db", "--json")
    document = json.loads(done.stdout)
    assert (document["before"], document["after"]) == (None, revisions()[-1])


@pytest.mark.parametrize("crash", [[], ["--crash"]], ids=["in_process", "crash"])
def test_an_installed_wheel_drives_a_trace(installed: Installed, tmp_path: Path, crash: list[str]) -> None:
    trace = write_trace(tmp_path, OPEN, record(), take())
    done = installed.run("drive", trace, "--store", tmp_path / "k.db", "--json", *crash)
    counts = json.loads(done.stdout)
    assert (counts["described"], counts["stored"], counts["resident_at_end"]["CPU"]) == (1, 1, 1)


def test_an_installed_wheel_runs_the_demo(installed: Installed) -> None:
    found = json.loads(installed.run("demo", "--json").stdout)
    assert (found["kvledger"]["ghosts"], found["kvledger"]["missing"]) == (0, 0)
    assert found["verify"]["ok"]
