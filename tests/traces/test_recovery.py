"""A second process describes what only the first one saw: metadata comes back, not the closes alone."""

from collections import Counter

import pytest

from tests.consumer import Router
from tests.traces.conftest import Drives
from tests.traces.driving import Driven, Mode

MODES = [Mode("after_commit"), Mode("at_once", "closes"), Mode("after_commit", "none"), Mode("at_once", crash=True)]


def second_process(drive: Driven) -> list[dict[str, object]]:
    return [event for line in drive.published()[1] for event in line]


@pytest.fixture(params=["two_tier", "hybrid"])
def which(request: pytest.FixtureRequest) -> str:
    """A trace whose storage tier had chunks when the first process died."""
    return f"{request.param}/survivors_removed/1"


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_removals_of_all_survivors_name_every_member(driven: Drives, which: str, mode: Mode) -> None:
    drive = driven(which, mode)
    router = Router()
    for line in (line for epoch in drive.published() for line in epoch):
        router.read(line)
    assert [credit for credit in router.believed if credit[0] == "STORAGE"] == []


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_removals_themselves_name_every_member(driven: Drives, which: str, mode: Mode) -> None:
    """Not only what is told after the restart: the live removals come last of all about storage."""
    drive = driven(which, mode)
    expected = [event for _, event in drive.engine.model.processes[1].live if event["type"] == "BlockRemoved"]
    assert sum(len(event["block_hashes"]) for event in expected) > 50
    removals = [e for e in second_process(drive) if e["type"] == "BlockRemoved" and e["medium"] == "STORAGE"]
    assert removals[-len(expected) :] == expected


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_store_of_what_the_first_process_described_is_full(driven: Drives, which: str, mode: Mode) -> None:
    drive = driven(which, mode)
    model = drive.engine.model
    stores = [e for e in second_process(drive) if e["type"] == "BlockStored" and e["medium"] == "CPU"]
    described = Counter(bool(event["token_ids"]) for event in stores)
    assert stores == [model.store(("CPU", None), key, None) for key in model.resident["CPU", None]]
    assert described == Counter(key in model.described for key in model.resident["CPU", None])
    assert described[True] > 40
