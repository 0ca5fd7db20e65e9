"""A store and processes over it, for the tests of the tracker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores import make_store
from tests.tracker.process import Process, Start


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A new store, migrated and empty."""
    return make_store(tmp_path / "ledger.db")


@pytest.fixture
def start(store: Path) -> Iterator[Start]:
    """Starts a process over the store; none outlives the test."""
    processes: list[Process] = []

    def started(*given: Any, **named: Any) -> Process:
        processes.append(Process(store, *given, **named))
        return processes[-1]

    yield started
    for process in processes:
        process.end()
