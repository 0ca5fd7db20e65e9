"""The views for people on logs written by hand: descriptions of every kind, gaps, ends, states."""

from pathlib import Path
from typing import Any

import pytest

from eventstore.domain import clock
from eventstore.domain.events import End, Kind, Reason, StreamBody
from eventstore.domain.metadata import Metadata, pack, without_tokens
from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.replay.handmade import CPU, A, Handmade, described, key
from tests.stores import reading, session_on, settle, store_chunk


def one_row(path: Path, sql: str) -> dict[str, Any]:
    with reading(path) as (connection, _):
        return dict(connection.exec_driver_sql(sql).mappings().one())


@pytest.mark.parametrize(
    ("meta", "says"),
    [
        ({}, {"blocks": 2, "block_size": 16, "tokens": 3, "parent": None, "parent_wire": None}),
        (
            {"parent_block_hash": b"\xff" * 32},
            {"blocks": 2, "block_size": 16, "tokens": 3, "parent": "ff" * 32, "parent_wire": -1},
        ),
        (
            {"parent_block_hash": bytes(24) + b"\x01" + bytes(6) + b"\x09", "lora_id": 7, "lora_name": "x" * 300},
            {
                "blocks": 2,
                "block_size": 16,
                "tokens": 3,
                "parent": "00" * 24 + "01" + "00" * 6 + "09",
                "parent_wire": (1 << 56) + 9,
            },
        ),
        ({"block_size": 70_000, "kind": "something new"}, {"blocks": 2, "block_size": 70_000, "tokens": 3}),
        ({"block_hashes": tuple(bytes([at]) * 32 for at in range(1, 130))}, {"blocks": 129, "tokens": 3}),
    ],
    ids=["plain", "parent", "parent and LoRA", "large block, unknown kind", "many blocks that end elsewhere"],
)
def test_chunks_reads_every_kind_of_description(tmp_path: Path, meta: dict[str, Any], says: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "block_hashes": (bytes(31) + b"\x07", key(1)[:-4]),
        "parent_block_hash": None,
        "token_ids": (5, 6, 7),
        "block_size": 16,
        "group_idx": 0,
    }
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), pack(key(1), Metadata(**fields | meta)))
        made.commit()
        found = one_row(made.path, "SELECT * FROM chunks")
    assert {name: found[name] for name in says} == says


def test_chunks_tells_tokens_that_were_withheld_from_none(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), without_tokens(described(1, hashes=2)))
        made.commit()
        found = one_row(made.path, "SELECT * FROM chunks")
    assert (found["blocks"], found["tokens"]) == (2, None)


@pytest.mark.parametrize("group", [0, 1, 2, 255, 256, 65_535])
def test_a_group_is_the_number_that_the_key_ends_with(tmp_path: Path, group: int) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1, group), b"")
        made.store(key(1, group), CPU)
        made.commit()
        for view in ("chunks", "residency", "lifecycle"):
            assert one_row(made.path, f"SELECT group_idx FROM {view}") == {"group_idx": group}


def test_epochs_tells_a_clean_end_from_a_crash(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.about_stream(Kind.EPOCH_ENDED, StreamBody(epoch=1, reason="shutdown"))
        made.commit()
        made.open()
        made.open()
        made.about_stream(Kind.EPOCH_ENDED, StreamBody(epoch=3, reason="shutdown"))
        made.commit()
        with reading(made.path) as (connection, _):
            found = connection.exec_driver_sql(
                "SELECT epoch, started_seq, last_seq, ended_cleanly, state FROM epochs ORDER BY epoch"
            ).all()
    assert [tuple(row) for row in found] == [(1, 1, 2, 1, "ended"), (2, 3, 3, 0, "crashed"), (3, 4, 5, 1, "ended")]


def test_gaps_shows_what_was_lost(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.step()
        seq = made.about_stream(Kind.GAP, StreamBody(lost=17, since_ns=1_700_000_000_250_000_000, reason="overflow"))
        made.commit()
        found = one_row(made.path, "SELECT * FROM gaps")
    assert found == {
        "stream": "handmade",
        "seq": seq,
        "time": "2023-11-14T22:13:22.000Z",
        "time_ns": 1_700_000_002_000_000_000,
        "lost": 17,
        "since": "2023-11-14T22:13:20.250Z",
        "since_ns": 1_700_000_000_250_000_000,
        "reason": "overflow",
    }


def test_a_survivor_is_unconfirmed_until_its_tier_has_answered(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        for number in (1, 2):
            made.describe(key(number), described(number))
            made.store(key(number), A)
        made.about_stream(Kind.CACHE_RESET, StreamBody(ends=[End(CPU, Reason.CACHE_RESET)], unconfirmed=[A]))
        made.confirm(key(2), A)
        made.commit()
        with reading(made.path) as (connection, _):
            found = connection.exec_driver_sql("SELECT chunk, confirmed FROM residency ORDER BY chunk").all()
    assert [tuple(row) for row in found] == [(made.numbers[key(1)], 0), (made.numbers[key(2)], 1)]


def test_a_stream_is_live_while_its_writer_is_and_ended_once_it_has_said_so(tmp_path: Path) -> None:
    engine, _ = open_for_writing(str(tmp_path / "k.db"))
    states = []
    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
        states.append(one_row(tmp_path / "k.db", "SELECT r.state FROM residency AS r")["state"])
        assert session.close()
        states.append(one_row(tmp_path / "k.db", "SELECT state FROM streams")["state"])
    engine.dispose()
    assert states == ["live", "ended"]


@pytest.mark.parametrize(("missed", "state"), [(2.9, "live"), (3.1, "silent")])
def test_a_stream_is_silent_once_three_heartbeats_are_missing(tmp_path: Path, missed: float, state: str) -> None:
    hour = 3_600 * 1_000_000_000
    with Handmade(tmp_path / "k.db") as made, made.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE stream SET heartbeat_every_ns = ?, heartbeat_ns = ?", (hour, clock.wall_ns() - round(missed * hour))
        )
    assert one_row(made.path, "SELECT state FROM streams")["state"] == state
