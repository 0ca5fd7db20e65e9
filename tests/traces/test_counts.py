"""What `kvledger drive` counts in each recorded engine, however it is run and killed."""

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.consumer import Router
from tests.facts import FACTS, NAMES, recorded
from tests.traces.conftest import Drives, Engines
from tests.traces.driving import Mode

IN_PROCESS = [Mode(p, a) for p in ("after_commit", "at_once") for a in ("full", "closes", "none")]
KILLED = [
    Mode("after_commit", "full", crash=True),
    Mode("at_once", "closes", crash=True),
    Mode("after_commit", "none", crash=True),
]
VARIANTS = [
    *((f"{name}/killed/1", Mode("after_commit")) for name in NAMES),
    *((f"{name}/killed/2", Mode("at_once")) for name in NAMES),
    *((f"{name}/cut/1", Mode("at_once", "closes")) for name in ("two_tier", "hybrid")),
    *((f"{name}/small/1", Mode(crash=True)) for name in NAMES),
    *((f"{name}/described_late/1", Mode()) for name in ("cpu_only", "two_tier", "hybrid")),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_the_rules_counts_what_the_recording_says(engine: Engines, name: str) -> None:
    model = engine(name).model
    assert (model.table(), model.carried_over) == (FACTS[name].counts, FACTS[name].carried_over)


@pytest.mark.parametrize("name", NAMES)
def test_a_router_fed_by_upstream_goes_wrong_as_measured(engine: Engines, name: str) -> None:
    router, truth = Router(), set(engine(name).model.truth())
    for call in engine(name).calls:
        router.read(call.get("out", ()))
    upstream = FACTS[name].upstream
    believed = set(router.believed)
    found = (router.placeholders, len(believed & truth), len(believed - truth))
    assert found == (upstream.placeholders, upstream.right, upstream.ghosts)


@pytest.mark.parametrize("mode", [*IN_PROCESS, *KILLED], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_engine_gives_its_table(driven: Drives, name: str, mode: Mode) -> None:
    counts = driven(name, mode).counts
    assert {what: counts[what] for what in FACTS[name].counts} == FACTS[name].counts


@pytest.mark.parametrize(("which", "mode"), VARIANTS, ids=str)
def test_an_engine_killed_elsewhere_counts_as_the_rules_say(
    engine: Engines, driven: Drives, which: str, mode: Mode
) -> None:
    expected = engine(which).model.table()
    counts = driven(which, mode).counts
    assert {what: counts[what] for what in expected} == expected


def test_the_command_prints_one_document_and_nothing_else(tmp_path: Path) -> None:
    command: list[object] = [Path(sysconfig.get_path("scripts")) / "kvledger", "drive", recorded("store_only")]
    command += ["--store", tmp_path / "store.db", "--crash", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    printed = json.loads(done.stdout)
    facts = FACTS["store_only"].counts
    assert (done.returncode, done.stderr, {what: printed[what] for what in facts}) == (0, "", facts)


def test_a_drive_writes_a_line_for_each_call_of_each_process_and_then_some_until_all_is_out(driven: Drives) -> None:
    drive = driven("two_tier", Mode())
    lines = [json.loads(line) for line in drive.published_file.read_bytes().splitlines()]
    recorded_steps: list[list[int]] = []
    for call in drive.engine.calls:
        if call["call"] == "open":
            recorded_steps.append([])
        elif call["call"] == "take_events":
            recorded_steps[-1].append(call["step"])
    for epoch, steps in enumerate(recorded_steps, 1):
        written = [line["step"] for line in lines if line["epoch"] == epoch]
        further = range(steps[-1] + 1, steps[-1] + 1 + len(written) - len(steps))
        assert written == [*steps, *further]
