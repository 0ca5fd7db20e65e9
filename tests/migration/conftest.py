"""What the tests of migrations start from."""

from pathlib import Path

import pytest

from tests.migration.releases import Release


@pytest.fixture
def this_release(tmp_path: Path) -> Release:
    """This tree's own code, as processes."""
    return Release(tmp_path / "this")


@pytest.fixture
def next_release(tmp_path: Path) -> Release:
    """The same code with one more migration, which adds a table."""
    release = Release(tmp_path / "next")
    release.add_revision("pass")
    return release
