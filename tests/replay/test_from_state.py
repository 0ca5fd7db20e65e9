"""A replay that begins with a state: the state at N and what follows are together what the whole is."""

import random
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from eventstore.log.cursor import cursor_at
from eventstore.log.stream import one_stream
from eventstore.replay.kvsteps import KVSteps
from eventstore.replay.lines import LogLines
from eventstore.replay.reader import Reader, pages
from eventstore.storage.store import open_for_reading
from tests.consumer import Router
from tests.facts import NAMES
from tests.replay.conftest import Drives
from tests.replay.driving import done
from tests.replay.history import History

POINTS, WHOLE_WAYS = 300, 6


def _state(engine: Engine, at: int, form: KVSteps | LogLines) -> list[Any]:
    """What is told of the state after event `at`, and nothing after it."""
    found: list[Any] = []
    with engine.connect() as connection, connection.begin():
        stream, chunk = one_stream(connection, None), 0
        while True:
            items, chunk = form.state(connection, stream, at, chunk)
            found += [item.content for item in items]
            if not chunk:
                return [msgspec.to_builtins(one) for one in found]


def _points(log: list[dict[str, Any]], seed: int) -> list[int]:
    rnd = random.Random(seed)
    return sorted({0, len(log), *(rnd.randrange(len(log)) for _ in range(POINTS))})


@pytest.mark.parametrize("name", NAMES)
def test_the_state_at_any_point_is_what_the_events_up_to_there_add_up_to(name: str, driven: Drives) -> None:
    made = driven(name)
    log = done("replay", "--store", made.store).lines()
    engine, history, rest = open_for_reading(str(made.store)), History(), deque(log)
    for turn, at in enumerate(_points(log, seed=len(log))):
        while rest and rest[0]["seq"] <= at:
            history.read([rest.popleft()])
        router = Router()
        told = _state(engine, at, KVSteps())
        for part in told:
            assert (part["first_seq"], part["last_seq"], part["state"]) == (at, at, True)
            router.read(part["events"])
        assert set(router.believed) == history.credits(), f"at {at}"
        if turn % 10 == 0:
            words = _state(engine, at, LogLines(at + 1, at))
            assert {(one["key"], one["medium"], one["ownership"]): one["opened_seq"] for one in words} == {
                where: opened["seq"] for where, opened in history.open.items()
            }
            assert {one["seq"] for one in words} <= {at}
            assert all(one["metadata"] == history.metadata.get(one["key"]) for one in words)
    engine.dispose()


@pytest.mark.parametrize("name", NAMES)
def test_a_consumer_that_begins_with_a_state_ends_where_one_of_the_whole_ends(name: str, driven: Drives) -> None:
    made = driven(name)
    whole = Router()
    everything = done("replay", "--store", made.store, "--form", "kv").lines()
    for step in everything:
        whole.read(step["events"])
    rnd = random.Random(name)
    for at in (rnd.randrange(everything[-1]["last_seq"]) for _ in range(WHOLE_WAYS)):
        late = Router()
        steps = done("replay", "--store", made.store, "--form", "kv", "--from-state", at).lines()
        for step in steps:
            late.read(step["events"])
        assert set(late.believed) == set(whole.believed), f"from the state at {at}"
        assert steps[0]["state"]
        assert min((step["first_seq"] for step in steps if not step.get("state")), default=at + 1) > at


@pytest.mark.parametrize("form", [KVSteps, lambda: LogLines(1, None)], ids=["kv", "log"])
def test_a_state_is_of_one_moment_so_that_no_pace_parts_it_from_what_follows(form: Any, driven: Drives) -> None:
    store = driven("two_tier").store
    times = [line["time_ns"] for line in done("replay", "--store", store).lines()]
    engine = open_for_reading(str(store))
    for at in (0, 1, 7_000, len(times)):
        with engine.connect() as connection, connection.begin():
            cursor = cursor_at(connection, one_stream(connection, None), at)
        found = pages(engine, Reader(form(), cursor, at, with_state=True))
        assert {item.time_ns for page in found for item in page.items} <= {times[max(at, 1) - 1]}
    engine.dispose()


def test_a_state_with_nothing_in_it_still_says_where_it_stands(driven: Drives) -> None:
    (state, *_) = done("replay", "--store", driven("cpu_only").store, "--form", "kv", "--from-state", 0).lines()
    assert (state["first_seq"], state["last_seq"], state["events"], state["state"]) == (0, 0, [], True)


def test_what_the_log_gains_later_changes_nothing_in_a_state(driven: Drives, tmp_path: Path) -> None:
    log = done("replay", "--store", driven("hybrid").store).out.splitlines(keepends=True)
    borders = [number for number, line in enumerate(log, 1) if b'"batch":' in line]
    at = borders[len(borders) // 2]
    part, earlier = tmp_path / "part.jsonl", tmp_path / "earlier.db"
    done("replay", "--store", driven("hybrid").store, "--to", at, "--output", part)
    done("import", part, "--store", earlier)
    options = ("--form", "kv", "--from-state", at, "--to", at)
    assert (
        done("replay", "--store", earlier, *options).out
        == done("replay", "--store", driven("hybrid").store, *options).out
    )
