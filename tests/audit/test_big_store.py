"""The made-up large store is a true one, and the measurement over it works: here on a small one."""

from pathlib import Path

import pytest

from tests.audit.auditing import audit, counts
from tests.benchmarks.big_store import make
from tests.benchmarks.questions import measure
from tests.documented import questions
from tests.stores import findings, reading

EVENTS = 20_000


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("big") / "big.db"
    make(store, EVENTS)
    return store


def test_it_is_as_it_was_written_and_as_large_as_asked_for(big: Path) -> None:
    assert findings(big) == []
    with reading(big) as (_, stream):
        assert EVENTS <= stream.last_seq < EVENTS * 1.02


def test_it_has_what_the_page_says_of_it(big: Path) -> None:
    with reading(big) as (connection, _):
        epochs = connection.exec_driver_sql("SELECT count(*), sum(ended_cleanly) FROM epochs").one()
        kinds = connection.exec_driver_sql("SELECT count(*) FROM events WHERE kind = 'cache_reset'").scalar_one()
        places = connection.exec_driver_sql("SELECT medium, ownership FROM places ORDER BY place").all()
    assert tuple(epochs) == (9, 4)
    assert kinds == 10
    assert [tuple(place) for place in places] == [("CPU", None), ("STORAGE", "nvme0"), ("STORAGE", "shared")]


def test_its_gap_is_its_only_finding(big: Path) -> None:
    found = audit(big, exits=1)
    assert {name for name in counts(found) if found[name]["level"] == "finding"} == {"gaps"}


def test_the_measurement_asks_every_question_and_finds_no_scan_that_is_not_needed(big: Path) -> None:
    found = measure(big)
    assert [one["question"] for one in found["questions"]] == sorted(questions())
    assert {one["question"]: one["unwanted_scans"] for one in found["questions"] if one["unwanted_scans"]} == {}
    # In so small a store nothing comes back within a minute.
    assert {one["question"] for one in found["questions"] if not one["rows"]} <= {4}
