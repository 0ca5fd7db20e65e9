"""The recorded engines, each driven once, told over days instead of within a second, and read back line by line."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from eventstore.storage.store import open_for_reading
from tests.audit.lives import Lives
from tests.audit.retimed import retime
from tests.replay.driving import done, drive


class Told:
    """A store, and what its log's lines add up to."""

    def __init__(self, name: str, store: Path) -> None:
        self.name, self.store = name, store
        self.lives = Lives(done("replay", "--store", store).lines())
        self._engine = open_for_reading(str(store))

    def connect(self) -> Connection:
        """A connection for reading, to be closed."""
        return self._engine.connect()

    def close(self) -> None:
        self._engine.dispose()


Tellings = Callable[[str], Told]


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tellings]:
    made: dict[str, Told] = {}

    def get(name: str) -> Told:
        if name not in made:
            folder = tmp_path_factory.mktemp("told")
            driven = drive(name, folder)
            made[name] = Told(name, retime(driven.store, folder / "retimed.db", name))
        return made[name]

    yield get
    for one in made.values():
        one.close()


@pytest.fixture
def copy(told: Tellings, tmp_path: Path) -> Path:
    """A recorded engine's store that a test may damage or write on."""
    return Path(shutil.copy(told("two_tier").store, tmp_path / "copy.db"))
