"""The engines and their drives, each made once for all tests that look at it."""

import random
from collections.abc import Callable

import pytest

from tests.facts import recorded
from tests.traces import variants
from tests.traces.driving import Driven, Engine, Mode, drive
from tests.traces.model import Model

#: A trace's name, or `name/variant/seed`.
Engines = Callable[[str], Engine]
Drives = Callable[[str, Mode], Driven]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    made: dict[str, Engine] = {}

    def get(which: str) -> Engine:
        if which not in made:
            name, *variant = which.split("/")
            calls, path = variants.read(name), recorded(name)
            if variant:
                calls = variants.make(variant[0], calls, random.Random(which))
                path = variants.write(tmp_path_factory.mktemp(name) / f"{name}.calls.jsonl.gz", calls)
            made[which] = Engine(path, calls, Model().run(calls))
        return made[which]

    return get


@pytest.fixture(scope="session")
def driven(engine: Engines, tmp_path_factory: pytest.TempPathFactory) -> Drives:
    made: dict[tuple[str, Mode], Driven] = {}

    def get(which: str, mode: Mode) -> Driven:
        if (which, mode) not in made:
            made[which, mode] = drive(engine(which), tmp_path_factory.mktemp("drive"), mode)
        return made[which, mode]

    return get
