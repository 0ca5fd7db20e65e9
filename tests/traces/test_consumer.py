"""What a router believes that is fed with what was published and nothing else, against what is really there."""

from collections import Counter

import pytest

from tests.consumer import Credit, Router
from tests.facts import NAMES
from tests.traces.conftest import Drives
from tests.traces.driving import Driven, Mode
from tests.traces.model import Model, survives_restart
from tests.traces.test_counts import IN_PROCESS, KILLED, VARIANTS

TOLD = [mode for mode in (*IN_PROCESS, *KILLED) if mode.announce != "none"]
FULL = [mode for mode in TOLD if mode.announce == "full"]
UNTOLD = [mode for mode in (*IN_PROCESS, *KILLED) if mode.announce == "none"]
CLOSES = [mode for mode in TOLD if mode.announce == "closes"]


def reads(drive: Driven, *, drops: bool) -> Counter[Credit]:
    """What a router believes at the end. One that `drops` forgets all it knows before a process's first line, and
    after the lines of the calls before a reset."""
    router = Router()
    for process, lines in zip(drive.engine.model.processes, drive.published(), strict=True):
        resets = {calls for calls, _ in process.resets}
        if drops:
            router.drop_all()
        for call, events in enumerate(lines):
            if drops and call in resets:
                router.drop_all()
            router.read(events)
    return router.believed


def counted(credits: Counter[Credit], model: Model) -> Counter[Credit]:
    """The credits at places that announce removals: there every store is published once, so that counts are exact."""
    return Counter({credit: count for credit, count in credits.items() if model.announces(credit[:2])})


@pytest.mark.parametrize("mode", TOLD, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_router_that_noticed_nothing_ends_with_what_is_there(driven: Drives, name: str, mode: Mode) -> None:
    drive = driven(name, mode)
    believed, truth = reads(drive, drops=False), drive.engine.model.truth()
    assert set(believed) == set(truth)
    assert counted(believed, drive.engine.model) == counted(truth, drive.engine.model)


@pytest.mark.parametrize("mode", FULL, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_router_that_drops_all_at_restart_and_reset_ends_with_what_is_there(
    driven: Drives, name: str, mode: Mode
) -> None:
    drive = driven(name, mode)
    believed, truth = reads(drive, drops=True), drive.engine.model.truth()
    assert set(believed) == set(truth)
    assert counted(believed, drive.engine.model) == counted(truth, drive.engine.model)


@pytest.mark.parametrize("drops", [False, True], ids=["noticed_nothing", "drops_all"])
@pytest.mark.parametrize(("which", "mode"), [v for v in VARIANTS if v[1].announce == "full"], ids=str)
def test_a_router_is_right_wherever_the_engine_is_killed(
    driven: Drives, which: str, mode: Mode, *, drops: bool
) -> None:
    drive = driven(which, mode)
    assert set(reads(drive, drops=drops)) == set(drive.engine.model.truth())


@pytest.mark.parametrize("mode", CLOSES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_with_closes_a_router_that_drops_all_lacks_survivors_at_most(driven: Drives, name: str, mode: Mode) -> None:
    drive = driven(name, mode)
    believed, truth = set(reads(drive, drops=True)), set(drive.engine.model.truth())
    assert believed <= truth
    assert all(survives_restart(credit[:2]) for credit in truth - believed)


@pytest.mark.parametrize("mode", UNTOLD, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_with_none_a_router_keeps_just_what_ended_without_a_word(driven: Drives, name: str, mode: Mode) -> None:
    drive = driven(name, mode)
    model, believed = drive.engine.model, reads(drive, drops=False)
    expected = model.truth() + model.silent
    assert set(believed) == set(expected)
    assert counted(believed, model) == counted(expected, model)


@pytest.mark.parametrize("name", NAMES)
def test_with_none_a_router_that_drops_all_has_no_ghost(driven: Drives, name: str) -> None:
    """At once: after a commit, a store from before a reset can come after it, and nobody tells of its end."""
    drive = driven(name, Mode("at_once", "none"))
    believed, truth = set(reads(drive, drops=True)), set(drive.engine.model.truth())
    assert believed <= truth
    assert all(survives_restart(credit[:2]) for credit in truth - believed)
