"""A replay's memory does not grow with the log."""

from pathlib import Path

import pytest

from eventstore.log.read import PAGE_ROWS
from tests.replay.children import peak_kib
from tests.replay.handmade import BEGINS, CPU, Handmade, described, key

EVENTS, FEW, CHUNKS = 1_000_000, 100_000, 10_000

# How they came there does not matter to who reads: chunks come and go, in SQL alone, since this is ten times as fast.
_COME_AND_GO = (
    "WITH RECURSIVE turn (at) AS (VALUES (0) UNION ALL SELECT at + 1 FROM turn WHERE at < ?3)"
    " INSERT INTO event (stream, seq, time_ns, kind, flags, place, chunk)"
    f" SELECT 1, ?1 + at, {BEGINS} + at / 64 * 1000000, 3 + at % 2, 0, {CPU}, 2 + at / 2 % ?2 FROM turn"
)
_BATCHES = (
    "WITH RECURSIVE turn (first) AS (VALUES (?1) UNION ALL SELECT first + ?3 FROM turn WHERE first + ?3 <= ?2)"
    " INSERT INTO batch (stream, first_seq, last_seq, epoch, time_ns, uptime_ns, handed_out, sums, chain)"
    " SELECT 1, first, min(first + ?3 - 1, ?2), 1, 0, 0, 0, zeroblob(4 * (min(first + ?3 - 1, ?2) - first + 1)), x'00'"
    " FROM turn"
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of `EVENTS` events."""
    with Handmade(tmp_path_factory.mktemp("large") / "large.db") as log:
        for number in range(1, CHUNKS + 1):
            log.describe(key(number), described(number, 4))
        log.commit()
        first = log.seq + 1
        with log.engine.begin() as connection:
            connection.exec_driver_sql(_COME_AND_GO, (first, CHUNKS, EVENTS - first))
            connection.exec_driver_sql(_BATCHES, (first, EVENTS, PAGE_ROWS))
            connection.exec_driver_sql("UPDATE stream SET last_seq = ?, chain = x'00'", (EVENTS,))
        return log.path


@pytest.mark.parametrize("form", ["log", "kv"])
def test_a_million_events_take_no_more_memory_than_a_hundred_thousand(form: str, large: Path, tmp_path: Path) -> None:
    options = ("replay", "--store", large, "--form", form, "--output", tmp_path / "replayed.jsonl")
    few = peak_kib(*options, "--to", FEW)
    lines = _count(tmp_path / "replayed.jsonl")
    many = peak_kib(*options)
    assert _count(tmp_path / "replayed.jsonl") > 9 * lines
    assert many - few < 32 * 1024


def _count(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in file)
