"""A store that any earlier version wrote opens, is whole, and says what it said then."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from eventstore.domain.place import PRIMARY
from eventstore.storage.migration import revisions
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger
from tests.stores import findings, kinds, session_on, settle, store_chunk

SAMPLES = Path(__file__).parent / "samples"
SCHEMAS = [one.name.removesuffix(".sqlite.gz") for one in sorted(SAMPLES.glob("*.sqlite.gz"))]


@pytest.fixture(params=SCHEMAS)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of a sample, brought to this version's schema, and what was recorded of it."""
    path = tmp_path / "k.db"
    path.write_bytes(gzip.decompress((SAMPLES / f"{request.param}.sqlite.gz").read_bytes()))
    open_for_writing(str(path))[0].dispose()
    return path, json.loads((SAMPLES / f"{request.param}.json").read_text())


def test_every_schema_but_the_newest_has_a_sample() -> None:
    # A sample can be made as long as its schema is the newest: python -m tests.migration.samples.make
    assert {f"schema_{revision}" for revision in revisions()[:-1]} <= set(SCHEMAS)


def test_a_sample_is_as_it_was_written(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    (stream,) = kvledger("verify", "--store", path, "--json").json()["streams"]
    assert stream["findings"] == []
    assert (stream["stream"], stream["events"], stream["chain"]) == tuple(
        expected[name] for name in ("stream", "events", "chain")
    )


def test_a_sample_has_the_residency_that_it_had(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    found = kvledger("residency", "--store", path, "--json").json()["residencies"]
    there = [[one["key"], one["medium"], one["ownership"]] for one in found]
    assert sorted(there, key=str) == expected["resident"]


def test_a_sample_s_chunks_are_described_as_they_were(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    found = {}
    for key in expected["described"]:
        metadata = kvledger("history", key, "--store", path, "--json").json()["metadata"]
        found[key] = {
            "block_hashes": metadata["block_hashes"],
            "parent": metadata["parent_block_hash"],
            "token_ids": metadata["token_ids"],
        }
    assert found == expected["described"]


def test_a_sample_s_views_are_what_its_log_gives(sample: tuple[Path, dict[str, Any]]) -> None:
    path, _ = sample
    assert kvledger("rebuild", "--store", path, "--json").json()["changed"] == 0


def test_a_sample_can_be_gone_on_with(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    engine, _ = open_for_writing(str(path))
    with session_on(engine, expected["stream"]) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
    engine.dispose()
    # The epoch's beginning, the description, the store.
    assert kinds(path)[expected["events"] :] == ["epoch_started", "chunk_described", "chunk_stored"]
    assert findings(path) == []
