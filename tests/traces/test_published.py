"""What is published differs from what upstream published in the ways that are named, and in no other."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.facts import FACTS, NAMES
from tests.traces.conftest import Drives, Engines
from tests.traces.differ import History, Line, Unexplained, additions, changes
from tests.traces.driving import Driven, Mode
from tests.traces.test_counts import IN_PROCESS, KILLED, VARIANTS


def added(drive: Driven) -> Counter[str]:
    """The kinds of all that was added or came later, over all processes."""
    found: Counter[str] = Counter()
    epochs = drive.published()
    assert len(epochs) == len(drive.engine.model.processes)
    history = History(drive.engine.model)
    for number, lines in enumerate(epochs):
        found += additions(history, number, lines, at_once=drive.mode.publish == "at_once")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_change_upstreams_events_as_often_as_measured(engine: Engines, name: str) -> None:
    facts = FACTS[name]
    found = changes(engine(name).calls, engine(name).model)
    left_out = facts.counts["repeated"] + facts.counts["unmatched_removals"]
    assert (found["a"] + found["e described"], found["b"], found["e"], found["g"]) == (
        facts.upstream.placeholders_of_described,
        facts.upstream.unnamed,
        left_out,
        0,
    )


@pytest.mark.parametrize("mode", [*IN_PROCESS, *KILLED], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_difference_to_upstream_is_of_a_named_kind(driven: Drives, name: str, mode: Mode) -> None:
    found = added(driven(name, mode))
    told = {kind: found[kind] > 0 for kind in "cdf"}
    again = mode.announce != "none"
    assert told == {"c": again, "d": again, "f": mode.publish == "after_commit"}


@pytest.mark.parametrize(("which", "mode"), VARIANTS, ids=str)
def test_every_event_of_an_engine_killed_elsewhere_is_explained(driven: Drives, which: str, mode: Mode) -> None:
    assert added(driven(which, mode)).keys() <= set("cdf")


@pytest.mark.parametrize("name", NAMES)
def test_closes_tells_no_store_after_a_reset(driven: Drives, name: str) -> None:
    drive = driven(name, Mode("at_once", "closes"))
    lines, process = drive.published()[-1], drive.engine.model.processes[-1]
    calls, live = process.resets[-1]
    stores = [event for line in lines[calls:] for event in line if event["type"] == "BlockStored"]
    assert stores == [event for _, event in process.live[live:] if event["type"] == "BlockStored"]


def _lose_one(lines: list[Line]) -> None:
    _pick(lines).pop(0)


def _repeat_one(lines: list[Line]) -> None:
    line = _pick(lines)
    line.append(line[-1])


def _swap_two(lines: list[Line]) -> None:
    line = next(line for line in lines if len(line) > 1 and line[0] != line[1])
    line[0], line[1] = line[1], line[0]


def _send_early(lines: list[Line]) -> None:
    at = next(i for i, line in enumerate(lines) if i and line)
    lines[at - 1].append(lines[at].pop(0))


def _spoil_tokens(lines: list[Line]) -> None:
    event = next(event for line in lines for event in line if event.get("token_ids"))
    event["token_ids"] = event["token_ids"][::-1]


def _forget_a_hash(lines: list[Line]) -> None:
    event = next(event for line in lines for event in line if event["type"] == "BlockRemoved")
    event["block_hashes"] = event["block_hashes"][1:]


def _move_to_another_place(lines: list[Line]) -> None:
    _pick(lines)[0]["ownership"] = "elsewhere"


def _pick(lines: list[Line]) -> Line:
    return random.Random(5).choice([line for line in lines if line])


@pytest.mark.parametrize(
    "spoil",
    [_lose_one, _repeat_one, _swap_two, _send_early, _spoil_tokens, _forget_a_hash, _move_to_another_place],
    ids=lambda spoil: spoil.__name__.strip("_"),
)
def test_a_spoilt_stream_is_no_named_difference(driven: Drives, spoil: Callable[[list[Line]], None]) -> None:
    """Of the differ itself: that it can fail."""
    drive = driven("two_tier", Mode("at_once", "full"))
    lines = drive.published()[0]
    spoil(lines)
    with pytest.raises(Unexplained):
        additions(History(drive.engine.model), 0, lines, at_once=True)


def test_a_store_told_again_without_its_removal_is_no_named_difference(driven: Drives) -> None:
    """Of the differ itself: that it can fail."""
    drive = driven("two_tier", Mode("at_once", "full"))
    lines = drive.published()[1]
    removal = next(i for i, event in enumerate(lines[0]) if event["medium"] == "STORAGE")
    assert lines[0].pop(removal)["type"] == "BlockRemoved"
    with pytest.raises(Unexplained, match="without removals first"):
        additions(History(drive.engine.model), 1, lines, at_once=True)


def test_a_survivor_removed_and_not_stored_again_is_no_named_difference(driven: Drives) -> None:
    """Of the differ itself: that it can fail."""
    drive = driven("two_tier", Mode("at_once", "full"))
    lines = drive.published()[1]
    store = next(i for i, event in enumerate(lines[0]) if event["type"] == "BlockStored")
    assert lines[0].pop(store)["medium"] == "STORAGE"
    with pytest.raises(Unexplained, match="told again"):
        additions(History(drive.engine.model), 1, lines, at_once=True)
