"""The recorded engines, each driven once for all tests that read its log."""

from collections.abc import Callable

import pytest

from tests.replay.driving import Driven, drive

#: By the trace's name, and how consumers are told after a restart.
Drives = Callable[..., Driven]


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Drives:
    made: dict[tuple[str, str], Driven] = {}

    def get(name: str, announce: str = "full") -> Driven:
        if (name, announce) not in made:
            made[name, announce] = drive(name, tmp_path_factory.mktemp("drive"), announce)
        return made[name, announce]

    return get
