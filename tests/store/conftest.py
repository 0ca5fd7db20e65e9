"""What the store's tests start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eventstore.storage.store import open_for_writing
from tests.stores import make_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a new store."""
    return make_store(tmp_path / "k.db")


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    """An engine that writes to it."""
    made, _ = open_for_writing(str(path))
    yield made
    made.dispose()
