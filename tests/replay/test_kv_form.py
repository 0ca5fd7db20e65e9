"""The KV form: what consumers believe who are fed from the log instead of the engine."""

from itertools import groupby
from typing import Any

import msgspec
import pytest

from eventstore.domain.kvevents import KVEventBatch
from tests.consumer import Router
from tests.facts import FACTS, NAMES
from tests.replay.conftest import Drives
from tests.replay.driving import done
from tests.replay.history import History


def _flat(frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Events one by one, removals hash by hash, and those that follow each other at one place sorted: how removals are
    gathered into events means nothing."""
    out: list[dict[str, Any]] = []
    events = [event for frame in frames for event in frame]
    for (kind, *_), some in groupby(events, key=lambda e: (e["type"], e["medium"], e.get("ownership"))):
        if kind == "BlockRemoved":
            single = [event | {"block_hashes": [one]} for event in some for one in event["block_hashes"]]
            out += sorted(single, key=lambda event: (event["group_idx"], event["block_hashes"]))
        else:
            out += some
    return out


@pytest.mark.parametrize("name", NAMES)
def test_a_consumer_of_the_replay_believes_what_a_consumer_of_the_engine_believes(name: str, driven: Drives) -> None:
    made = driven(name)
    live, replayed = Router(), Router()
    for out in made.published:
        live.read(out)
    for line in done("replay", "--store", made.store, "--form", "kv").lines():
        replayed.read(line["events"])
    assert set(replayed.believed) == set(live.believed)
    facts = FACTS[name].counts["resident_at_end"]
    assert bool(replayed.believed) == bool(facts["CPU"] + facts["STORAGE"])


@pytest.mark.parametrize("name", NAMES)
def test_but_for_what_a_restart_or_a_reset_ended_the_replay_is_what_was_published_without_announcements(
    name: str, driven: Drives
) -> None:
    made = driven(name, "none")
    log = done("replay", "--store", made.store).lines()
    ends = {line["seq"] for line in log if line["kind"] in ("epoch_started", "cache_reset")}
    steps = done("replay", "--store", made.store, "--form", "kv").lines()
    live = [step["events"] for step in steps if step["first_seq"] not in ends]
    assert _flat(live) == _flat(made.published)


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_and_a_reset_remove_the_hashes_of_exactly_what_they_ended(name: str, driven: Drives) -> None:
    made = driven(name)
    log = done("replay", "--store", made.store).lines()
    steps = {step["first_seq"]: step for step in done("replay", "--store", made.store, "--form", "kv").lines()}
    history, checked = History(), 0
    for line in log:
        before = history.credits() if line["kind"] in ("epoch_started", "cache_reset") else set()
        history.read([line])
        if before:
            removed = {
                (event["medium"], event.get("ownership"), one)
                for event in steps[line["seq"]]["events"]
                for one in event["block_hashes"]
            }
            assert removed == before - history.credits()
            checked += 1
    counts = FACTS[name].counts
    assert checked == counts["epochs"] - 1 + counts["resets"]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_is_a_step_events_of_one_moment_and_one_batch_in_order(name: str, driven: Drives) -> None:
    made = driven(name)
    log = done("replay", "--store", made.store).lines()
    time_of = {line["seq"]: line["time_ns"] for line in log}
    batch_of, batch = {}, 0
    for line in log:
        batch_of[line["seq"]] = batch
        batch += "batch" in line
    reached = 0
    for step in done("replay", "--store", made.store, "--form", "kv").lines():
        first, last = step["first_seq"], step["last_seq"]
        assert reached < first <= last
        assert {time_of[seq] for seq in range(first, last + 1)} == {step["time_ns"]}
        assert len({batch_of[seq] for seq in range(first, last + 1)}) == 1
        assert (time_of.get(first - 1), batch_of.get(first - 1)) != (step["time_ns"], batch_of[first])
        reached = last


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_a_frame_that_decodes_as_one(name: str, driven: Drives) -> None:
    made = driven(name)
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(KVEventBatch).decode
    for step in done("replay", "--store", made.store, "--form", "kv").lines():
        frame = decode(encode([step["ts"], step["events"]]))
        assert msgspec.to_builtins(frame.events) == step["events"]


@pytest.mark.parametrize("name", ["two_tier", "hybrid"])
def test_a_slice_by_medium_and_group_is_that_part_of_the_whole(name: str, driven: Drives) -> None:
    made = driven(name)
    group = 1 if name == "hybrid" else 0
    everything = [step["events"] for step in done("replay", "--store", made.store, "--form", "kv").lines()]
    expected = [[e for e in some if e["medium"] == "STORAGE" and e["group_idx"] == group] for some in everything]
    options = ("--medium", "STORAGE", "--group", group)
    part = done("replay", "--store", made.store, "--form", "kv", *options).lines()
    assert any(expected)
    assert _flat([step["events"] for step in part]) == _flat(expected)
