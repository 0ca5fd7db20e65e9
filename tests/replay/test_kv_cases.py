"""The KV form of what no recorded engine did, fact by fact."""

from pathlib import Path
from typing import Any

import pytest

from eventstore.domain.events import (
    METADATA_ONLY,
    PLACEHOLDER,
    REMOVAL_EXPECTED,
    REPEATED,
    UNMATCHED,
    End,
    Kind,
    Reason,
    StreamBody,
    locality_flag,
)
from eventstore.domain.place import Locality
from tests.replay.driving import done
from tests.replay.handmade import CPU, PEER, A, B, Handmade, described, key

ONE, TWO = key(1), key(2)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with Handmade(tmp_path / "made.db") as made:
        yield made


def _replayed(log: Handmade, *options: object) -> list[dict[str, Any]]:
    log.commit_rest()
    steps = done("replay", "--store", log.path, "--form", "kv", *options).lines()
    return [event for step in steps for event in step["events"]]


def _told(log: Handmade, *options: object) -> list[tuple[str, str, str | None, list[int]]]:
    return [
        (event["type"], event["medium"], event.get("ownership"), event["block_hashes"])
        for event in _replayed(log, *options)
    ]


def test_a_store_says_everything_that_describes_its_chunk(log: Handmade) -> None:
    meta = {"parent_block_hash": bytes(31) + b"\7", "kind": "mla_attention", "sliding_window": 9, "lora_id": 3}
    log.describe(ONE, described(1, 2, lora_name="tuned", extra_keys=[["salt"], None], **meta))
    log.store(ONE, A, REMOVAL_EXPECTED | locality_flag(Locality.REMOTE))
    assert _replayed(log) == [
        {
            "type": "BlockStored",
            "block_hashes": [1_001, 1],
            "parent_block_hash": 7,
            "token_ids": [0, 1],
            "block_size": 1,
            "lora_id": 3,
            "medium": "STORAGE",
            "lora_name": "tuned",
            "extra_keys": [["salt"], None],
            "group_idx": 0,
            "kv_cache_spec_kind": "mla_attention",
            "kv_cache_spec_sliding_window": 9,
            "locality": "REMOTE",
            "ownership": "a",
        }
    ]


def test_the_medium_is_the_engines_own_word(log: Handmade) -> None:
    log.describe(ONE, described(1))
    log.store(ONE, B)
    assert _told(log) == [("BlockStored", "FS", "b", [1])]


def test_what_was_not_published_is_not_replayed(log: Handmade) -> None:
    log.describe(ONE, described(1))
    log.store(ONE, A)
    log.store(ONE, A, REMOVAL_EXPECTED | REPEATED)
    log.remove(ONE, CPU, UNMATCHED)
    log.remove(ONE, A, METADATA_ONLY)
    assert _told(log) == [("BlockStored", "STORAGE", "a", [1])]


def test_a_removal_that_memory_did_not_expect_is_told_where_the_log_knows_what_it_ended(log: Handmade) -> None:
    log.describe(ONE, described(1))
    log.store(ONE, B)
    log.remove(ONE, B, UNMATCHED)
    assert _told(log)[-1] == ("BlockRemoved", "FS", "b", [1])


def test_a_removal_names_the_members_of_the_description_as_it_was_then(log: Handmade) -> None:
    log.describe(ONE, described(1, 3))
    log.store(ONE, A)
    log.commit()
    log.remove(ONE, A)
    log.commit()
    log.describe(ONE, described(1, 1))
    log.store(ONE, A)
    told = _told(log)
    assert told[1] == ("BlockRemoved", "STORAGE", "a", [1_001, 1_002, 1])
    assert told[2] == ("BlockStored", "STORAGE", "a", [1])


def test_a_placeholder_goes_by_its_own_hash(log: Handmade) -> None:
    log.describe(ONE, described(1, 4))
    log.store(ONE, A, REMOVAL_EXPECTED | PLACEHOLDER)
    log.remove(ONE, A)
    assert _told(log) == [("BlockStored", "STORAGE", "a", [1]), ("BlockRemoved", "STORAGE", "a", [1])]


def test_a_placeholder_is_announced_again_once_its_chunk_is_described(log: Handmade) -> None:
    log.describe(ONE, b"")
    log.store(ONE, A, REMOVAL_EXPECTED | PLACEHOLDER)
    log.store(ONE, B, PLACEHOLDER)
    log.commit()
    log.describe(ONE, described(1, 2))
    log.describe(ONE, described(1, 2))
    log.commit()
    log.remove(ONE, A)
    # Nothing is announced again where removals are not announced: the placeholder there could not be taken back.
    assert _told(log)[2:] == [
        ("BlockRemoved", "STORAGE", "a", [1]),
        ("BlockStored", "STORAGE", "a", [1_001, 1]),
        ("BlockRemoved", "STORAGE", "a", [1_001, 1]),
    ]


def test_a_residency_that_we_end_is_removed_once_for_each_store_published(log: Handmade) -> None:
    log.describe(ONE, described(1, 2))
    for _ in range(3):
        log.store(ONE, B)
    log.close(ONE, B, Reason.MISSING)
    assert _told(log)[-1] == ("BlockRemoved", "FS", "b", [1_001, 1] * 3)


def test_a_reset_removes_once_for_each_store_published(log: Handmade) -> None:
    log.describe(ONE, described(1))
    log.describe(TWO, described(2))
    log.store(ONE, CPU)
    log.store(TWO, CPU)
    log.store(TWO, CPU)
    log.store(ONE, B)
    log.step()
    log.about_stream(Kind.CACHE_RESET, StreamBody(ends=[End(CPU, Reason.CACHE_RESET)]))
    assert _told(log)[4:] == [("BlockRemoved", "CPU", None, [1, 2, 2])]


def test_removals_of_two_groups_go_out_as_one_event_a_group(log: Handmade) -> None:
    chunks = [key(1), key(2, 1), key(3), key(4, 1)]
    for number, chunk in enumerate(chunks, 1):
        log.describe(chunk, described(number) if chunk[-1] == 0 else b"")
        log.store(chunk, A)
    log.commit()
    for chunk in chunks:
        log.remove(chunk, A)
    assert [(event["group_idx"], event["block_hashes"]) for event in _replayed(log)[4:]] == [(0, [1, 3]), (1, [2, 4])]


def test_a_state_counts_one_store_and_an_end_takes_back_that_and_those_since(log: Handmade) -> None:
    log.describe(ONE, described(1))
    log.describe(TWO, described(2))
    for chunk in (ONE, TWO, ONE, ONE):
        log.store(chunk, PEER)
    log.commit()
    at = log.seq
    log.store(ONE, PEER)
    log.store(TWO, PEER)
    log.commit()
    log.open(End(PEER, Reason.ENGINE_RESTART))
    log.describe(key(3), described(3))
    told = _told(log, "--from-state", at)
    assert told[:2] == [("BlockStored", "CPU", "peer", [1]), ("BlockStored", "CPU", "peer", [2])]
    assert told[-1] == ("BlockRemoved", "CPU", "peer", [1, 1, 2, 2])


def test_a_state_knows_a_chunk_as_consumers_knew_it_then(log: Handmade) -> None:
    log.describe(ONE, described(1, 2))
    log.store(ONE, A, REMOVAL_EXPECTED | PLACEHOLDER)
    log.commit()
    before = log.seq
    log.describe(ONE, described(1, 3))
    log.commit()
    after = log.seq
    log.describe(ONE, described(1, 4))
    assert _told(log, "--from-state", before)[0] == ("BlockStored", "STORAGE", "a", [1])
    assert _told(log, "--from-state", after)[0] == ("BlockStored", "STORAGE", "a", [1_001, 1_002, 1])


def test_a_state_of_more_than_a_page_is_told_whole_in_lines_of_a_page(log: Handmade) -> None:
    count = 5_000
    for number in range(1, count + 1):
        log.describe(key(number), b"")
        log.store(key(number), A, REMOVAL_EXPECTED | PLACEHOLDER)
    log.commit()
    lines = done("replay", "--store", log.path, "--form", "kv", "--from-state", log.seq).lines()
    parts = [[event["block_hashes"][0] for event in line["events"]] for line in lines]
    assert [one for part in parts for one in part] == list(range(1, count + 1))
    assert [len(part) for part in parts] == [2_048, 2_048, 904]


def test_an_end_of_more_than_a_page_is_told_whole_and_a_line_holds_no_more_than_a_page(log: Handmade) -> None:
    count = 9_000
    for number in range(1, count + 1):
        log.describe(key(number), b"")
        log.store(key(number), CPU, PLACEHOLDER)
        if not number % 2_000:
            log.commit()
    log.commit()
    seq = log.open(End(CPU, Reason.ENGINE_RESTART))
    lines = done("replay", "--store", log.path, "--form", "kv", "--from", seq).lines()
    parts = [[one for event in line["events"] for one in event["block_hashes"]] for line in lines]
    assert [one for part in parts for one in part] == list(range(1, count + 1))
    assert [len(part) for part in parts] == [4_096, 4_096, 808]
    assert {(line["first_seq"], line["last_seq"]) for line in lines} == {(seq, seq)}


def test_a_step_of_more_than_a_page_goes_on_in_the_next_line(log: Handmade) -> None:
    first = log.seq + 1
    for number in range(1, 3_001):
        log.describe(key(number), b"")
        log.store(key(number), CPU, PLACEHOLDER)
    log.commit()
    lines = done("replay", "--store", log.path, "--form", "kv").lines()
    assert [one for line in lines for event in line["events"] for one in event["block_hashes"]] == list(range(1, 3_001))
    assert [(line["first_seq"], line["last_seq"]) for line in lines] == [
        (first, first + 4_095),
        (first + 4_096, first + 5_999),
    ]
    assert len({line["time_ns"] for line in lines}) == 1
