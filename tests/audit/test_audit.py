"""`kvledger audit`: every check fires where there is something to find, and only there."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eventstore.audit.checks import CHECKS
from eventstore.domain.events import METADATA_ONLY, REMOVAL_EXPECTED, REPEATED, UNMATCHED, Kind, StreamBody
from eventstore.domain.place import PRIMARY, Medium, Place
from eventstore.domain.policy import PolicyTable, TierPolicy
from eventstore.storage.store import open_for_writing
from tests.audit.auditing import audit, change, counts
from tests.audit.conftest import Tellings
from tests.cli.command import kvledger
from tests.facts import FACTS, NAMES
from tests.replay.driving import drive
from tests.replay.handmade import CPU, A, Handmade, described, key
from tests.stores import session_on, settle, store_chunk

FINDINGS = {"views", "positions", "orphans", "gaps", "undescribed"}
INFORMATION = {"unmatched", "repeats", "crashes", "silent"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_engine_has_no_findings(name: str, tmp_path: Path) -> None:
    found = audit(drive(name, tmp_path).store)
    assert set(found) == {check.name for check in CHECKS}
    facts = FACTS[name].counts
    expected = {"unmatched": facts["unmatched_removals"], "repeats": facts["repeated"], "crashes": 1}
    assert counts(found) == {check: count for check, count in expected.items() if count}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_fell_silent_is_information(told: Tellings, name: str) -> None:
    found = audit(told(name).store)
    assert (found["silent"]["count"], found["silent"]["level"]) == (1, "information")
    assert found["silent"]["examples"][0]["residents"] == len(told(name).lives.open)
    # Its last epoch has not said that it ended, and the one before neither.
    assert found["crashes"]["count"] == 2


def test_a_view_that_has_not_reached_the_end_is_a_finding(copy: Path) -> None:
    change(copy, "UPDATE position SET seq = seq - 7 WHERE \"view\" = 'lifecycle'")
    found = audit(copy, exits=1)
    assert {name for name, result in found.items() if result["count"] and result["level"] == "finding"} == {"positions"}
    (example,) = found["positions"]["examples"]
    assert (example["view"], example["last_seq"] - example["seq"]) == ("lifecycle", 7)


@pytest.mark.parametrize("table", ["open_residency", "closed_residency"])
def test_a_residency_of_nobody_s_chunk_is_a_finding(copy: Path, table: str) -> None:
    change(copy, f"DELETE FROM chunk WHERE chunk = (SELECT min(chunk) FROM {table})")
    assert audit(copy, "--check", "orphans", exits=1)["orphans"]["count"] > 0


def test_a_residency_at_no_place_is_a_finding(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as database:
        (there,) = database.execute(
            "SELECT (SELECT count(*) FROM open_residency WHERE place = 2)"
            " + (SELECT count(*) FROM closed_residency WHERE place = 2)"
        ).fetchone()
    change(copy, "DELETE FROM place WHERE place = 2")
    assert audit(copy, "--check", "orphans", exits=1)["orphans"]["count"] == there


def test_lost_events_are_a_finding(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.about_stream(Kind.GAP, StreamBody(lost=17, since_ns=made.now, reason="overflow"))
        made.commit()
    found = audit(made.path, exits=1)["gaps"]
    assert (found["count"], found["level"], found["examples"][0]["lost"]) == (1, "finding", 17)


def test_an_undescribed_resident_of_a_group_that_is_described_is_a_finding(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        for number, packed in ((1, described(1)), (2, b""), (3, b"")):
            made.describe(key(number), packed)
            made.store(key(number), CPU)
        made.remove(key(3), CPU)
        made.commit()
    found = audit(made.path, exits=1)["undescribed"]
    assert (found["count"], found["level"]) == (1, "finding")
    assert (found["examples"][0]["key"], found["examples"][0]["place"]) == (key(2).hex(), "CPU")


def test_undescribed_residents_of_a_group_that_nobody_describes_are_none(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), described(1))
        made.describe(key(2, group=1), b"")
        made.store(key(2, group=1), CPU)
        made.remove(key(2, group=1), CPU)
        made.store(key(2, group=1), CPU)
        made.commit()
    assert audit(made.path)["undescribed"]["count"] == 0


Life = Callable[[Handmade], None]


def one_store(made: Handmade) -> None:
    made.describe(key(1), described(1))
    made.store(key(1), A)


def stored_again(made: Handmade) -> None:
    one_store(made)
    made.store(key(1), A, REMOVAL_EXPECTED | REPEATED)


def a_removal(made: Handmade) -> None:
    stored_again(made)
    made.remove(key(1), A)


def an_unmatched_removal(made: Handmade) -> None:
    stored_again(made)
    made.describe(key(2), described(2))
    made.remove(key(2), A, UNMATCHED)


@pytest.mark.parametrize(
    ("life", "count", "level"),
    [
        (one_store, 1, "information"),
        (stored_again, 1, "finding"),
        (a_removal, 0, None),
        (an_unmatched_removal, 0, None),
    ],
)
def test_a_place_that_never_announces_a_removal_is_told_and_a_finding_where_something_came_again(
    tmp_path: Path, life: Life, count: int, level: str | None
) -> None:
    with Handmade(tmp_path / "k.db") as made:
        life(made)
        made.commit()
    found = audit(made.path, exits=1 if level == "finding" else 0)["unannounced"]
    assert found["count"] == count
    if count:
        assert (found["level"], found["examples"][0]["place"]) == (level, "STORAGE/a")


def test_a_policy_that_no_store_bears_out_is_a_finding(tmp_path: Path) -> None:
    tier = Place(Medium.STORAGE, "a")
    policies = PolicyTable(places={tier: TierPolicy(announces_removals=True)})
    engine, _ = open_for_writing(str(tmp_path / "k.db"))
    for number in (1, 2):
        # What the policy says of a place is in the log from the next epoch on.
        with session_on(engine, opening={"policies": policies}, policies=policies) as session:
            store_chunk(session.tracker, number, tier)
            settle(session)
    engine.dispose()
    found = audit(tmp_path / "k.db", exits=1)["unannounced"]
    assert (found["level"], [example["place"] for example in found["examples"]]) == ("finding", ["STORAGE/a"])


def test_a_removal_of_what_was_not_there_is_information_and_one_of_metadata_alone_is_none(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), described(1))
        seq = made.remove(key(1), A, UNMATCHED)
        made.remove(key(1), A, UNMATCHED | METADATA_ONLY)
        made.commit()
    found = audit(made.path)["unmatched"]
    assert (found["count"], found["level"]) == (1, "information")
    assert (found["examples"][0]["seq"], found["examples"][0]["place"]) == (seq, "STORAGE/a")


def test_a_repeated_store_is_information(told: Tellings) -> None:
    one = told("two_tier")
    repeated = [line for line in one.lives.lines if line.get("repeated")]
    found = audit(one.store)["repeats"]
    assert (found["count"], found["level"]) == (len(repeated), "information")
    assert [example["seq"] for example in found["examples"]] == [line["seq"] for line in repeated[:5]]
    assert [example["key"] for example in found["examples"]] == [line["key"] for line in repeated[:5]]


def test_an_epoch_that_ended_with_a_word_is_no_crash(tmp_path: Path) -> None:
    engine, _ = open_for_writing(str(tmp_path / "k.db"))
    for _ in range(2):
        with session_on(engine) as session:
            store_chunk(session.tracker, 1, PRIMARY)
            settle(session)
            assert session.close()
    engine.dispose()
    assert not set(counts(audit(tmp_path / "k.db"))) & {"crashes", "silent"}


def test_each_check_is_a_finding_or_information_as_the_page_says() -> None:
    levels = {check.name: check.level for check in CHECKS}
    assert {name for name, level in levels.items() if level == "finding"} == FINDINGS | {"unannounced"}
    assert {name for name, level in levels.items() if level == "information"} == INFORMATION


def test_one_check_can_be_asked_for_alone(copy: Path) -> None:
    change(copy, "UPDATE position SET seq = 1")
    assert set(audit(copy, "--check", "views", "--check", "gaps")) == {"views", "gaps"}


def test_every_stream_of_a_store_is_audited(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with Handmade(tmp_path / "k.db", name) as made:
            made.about_stream(Kind.GAP, StreamBody(lost=1, since_ns=made.now, reason="overflow"))
            made.commit()
    ran = kvledger("audit", "--store", tmp_path / "k.db", "--check", "gaps", "--json")
    assert [(result["stream"], result["count"]) for result in ran.json()["results"]] == [("one", 1), ("other", 1)]
    assert set(audit(tmp_path / "k.db", "--stream", "one", exits=1)) == {check.name for check in CHECKS}


def test_a_person_sees_a_line_for_each_check_and_the_first_examples(copy: Path) -> None:
    change(copy, "UPDATE position SET seq = 1")
    ran = kvledger("audit", "--store", copy)
    assert ran.code == 1
    lines = {line.split()[1]: line for line in ran.out.splitlines() if line.startswith("two_tier ")}
    assert set(lines) == {check.name for check in CHECKS}
    assert "FINDING" in lines["positions"]
    assert "fine" in lines["views"]
    assert "information" in lines["repeats"]
    assert "  view lifecycle, seq 1, last_seq " in ran.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["--check", "nothing"], "no check 'nothing'; there are: views, "), (["--stream", "no"], "no stream 'no'")],
)
def test_a_check_or_stream_that_is_not_there_ends_in_one_line(
    told: Tellings, arguments: list[str], problem: str
) -> None:
    ran = kvledger("audit", "--store", told("cpu_only").store, *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert problem in ran.err
