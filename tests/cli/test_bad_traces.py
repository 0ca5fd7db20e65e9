"""A trace that cannot be run is refused before anything is written: what is wrong, and in which line."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import kvledger
from tests.cli.refusals import assert_refused, files_in
from tests.cli.traces import (
    HASHES,
    KEY,
    OPEN,
    RECORD,
    STORED,
    grouped,
    partial,
    record,
    take,
    without,
    write_trace,
)

OTHER_HASH = "33" * 32


def assert_nothing_is_left(trace: Path, tmp_path: Path, *says: str) -> None:
    """`kvledger drive` refuses `trace`, and leaves the folder as it was."""
    before = files_in(tmp_path)
    store, published = tmp_path / "k.db", tmp_path / "published.jsonl"
    assert_refused(kvledger("drive", trace, "--store", store, "--published", published), str(trace), *says)
    assert files_in(tmp_path) == before


LINES: dict[str, tuple[Any, str]] = {
    "not JSON": ("what is this", "not a line of JSON"),
    "cut off JSON": ('{"call":"take_ev', "not a line of JSON"),
    "not UTF-8": (b'{"call":"\xff\xfe"}', "not a line of JSON"),
    "a number that is none": ('{"call":"take_events","step":NaN,"events":[]}', "not a line of JSON"),
    "half a surrogate pair": ('{"call":"take_events","step":1,"events":[],"x":"\\ud800"}', "not a line of JSON"),
    "a list": ([1, 2], "Expected `object`, got `array`"),
    "nested without end": ("[" * 100_000, "no call that can be run"),
    "no call": ({"step": 1}, "missing required field `call`"),
    "an unknown call": ({"call": "frobnicate"}, "Invalid value 'frobnicate'"),
    "a call that is no text": ({"call": 7}, "`$.call`"),
    "events are missing": ({"call": "take_events", "step": 1}, "missing required field `events`"),
    "keys are missing": ({"call": "take_events", "step": 1, "events": [without(STORED, "keys")]}, "`keys`"),
    "a group is missing": (without(RECORD, "group"), "missing required field `group`"),
    "part of a group is missing": (record(group={"idx": 0}), "$.group"),
    "a text for a number": ({"call": "take_events", "step": "one", "events": []}, "Expected `int`, got `str`"),
    "a number for a text": (take(medium=7), "$.events[0].medium"),
    "a text for true": (take(removed="yes"), "$.events[0].removed"),
    "null for a list": (record(token_ids=None), "$.token_ids"),
    "an unknown medium": (take(medium="TAPE"), "unknown medium 'TAPE': expected one of GPU, CPU, STORAGE"),
    "an unknown locality": (take(locality="MOON"), "unknown locality 'MOON': expected LOCAL or REMOTE"),
    "a NUL in an owner's name": (take(ownership="a\0b"), "NUL"),
    "a key that is too short": (take(keys=["00" * 11]), "has 11 bytes"),
    "a key that is too long": (take(keys=["00" * 256]), "has 256 bytes"),
    "a key that is not hex": (take(keys=["zz" * 36]), "is not hex"),
    "half a byte of a key": (take(keys=["0" * 71]), "is not hex"),
    "a recorded key that is too short": (record(key="00" * 11), "has 11 bytes"),
    "a key of another group": (record(key=HASHES[-1] + "00000001"), "the key is of group 1, the call of group 0"),
    "a key of another hash": (record(key=OTHER_HASH + "00000000"), "not the chunk's last hash"),
    "a hash that is not hex": (record(block_hashes=["xy" * 32, HASHES[-1]]), "is not hex"),
    "a hash that is too short": (record(block_hashes=["22" * 7, HASHES[-1]]), "has 11 bytes"),
    "hashes of two lengths": (record(block_hashes=["22" * 16, HASHES[-1]]), "differ in length"),
    "a hash too few": (record(block_hashes=HASHES[-1:]), "has 2 hashes and 4 tokens, the line gives 1 and 4"),
    "no hashes": (record(block_hashes=[]), "the line gives 0 and 4"),
    "a token too few": (record(token_ids=[1, 2, 3]), "the line gives 2 and 3"),
    "a token below zero": (record(token_ids=[1, 2, 3, -4]), "$.token_ids"),
    "a token that no 32 bits hold": (record(token_ids=[1, 2, 3, 2**32]), "$.token_ids"),
    "a parent of the first chunk": (record(parent=OTHER_HASH), "the first chunk of a request has no parent"),
    "a later chunk without its parent": (record(chunk_idx=1), "the first chunk of a request has no parent"),
    "a parent that is not hex": (record(chunk_idx=1, parent="zz" * 32), "is not hex"),
    "a chunk before the first": (record(chunk_idx=-1, parent=OTHER_HASH), "$.chunk_idx"),
    "blocks of no tokens": (grouped(tokens_per_block=0), "$.group.tokens_per_block"),
    "blocks below zero": (grouped(tokens_per_block=-2), "$.group.tokens_per_block"),
    "half a block a chunk": (grouped(tokens_per_chunk=5), "no whole number of blocks"),
    "a chunk smaller than a block": (grouped(tokens_per_chunk=1), "no whole number of blocks"),
    "no hashes a chunk": (grouped(hashes_per_chunk=0), "$.group.hashes_per_chunk"),
    "more hashes than tokens": (grouped(hashes_per_chunk=8), "do not divide its chunk"),
    "hashes that span blocks": (grouped(hashes_per_chunk=1), "do not divide its chunk"),
    "a group below zero": (grouped(idx=-1), "$.group.idx"),
    "a group that no 16 bits hold": (grouped(idx=70_000), "$.group.idx"),
    "a block that no 32 bits hold": (grouped(tokens_per_block=2**40, tokens_per_chunk=2**40), "tokens_per_block"),
    "a window of no chunks": (grouped(sliding_window_chunks=0), "$.group.sliding_window_chunks"),
    "a window that no 64 bits hold": (grouped(spec_sliding_window=10**30), "$.group.spec_sliding_window"),
    "an adapter that no 64 bits hold": (record(lora={"adapter_id": 2**64, "name": "x"}), "$.lora.adapter_id"),
    "a tail that ends at nothing": (partial(boundary_tokens=0), "$.boundary_tokens"),
    "a tail off a hash's boundary": (partial(boundary_tokens=3, token_ids=[1, 2, 3]), "ends on a hash boundary"),
    "a tail with a hash too many": (partial(block_hashes=HASHES), "the line gives 2 and 2"),
}


@pytest.mark.parametrize("problem", LINES)
def test_a_line_that_cannot_be_run_is_named(tmp_path: Path, problem: str) -> None:
    line, says = LINES[problem]
    trace = write_trace(tmp_path, OPEN, take(), line, take())
    assert_nothing_is_left(trace, tmp_path, "line 3: ", says)


def test_the_lines_that_the_spoiled_ones_were_made_from_can_be_run(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, OPEN, record(), take(), partial(key=KEY))
    assert kvledger("drive", trace, "--store", tmp_path / "k.db").code == 0


def test_more_places_than_a_stream_can_number_are_refused(tmp_path: Path) -> None:
    calls = [take(ownership=f"tier{number}") for number in range(1_025)]
    trace = write_trace(tmp_path, OPEN, *calls)
    assert_nothing_is_left(trace, tmp_path, "line 1025: one more place than the 1023")


@pytest.mark.parametrize("first", [take(), record(), {"call": "reset"}], ids=["events", "a record", "a reset"])
def test_a_call_before_the_first_process_is_refused(tmp_path: Path, first: dict[str, Any]) -> None:
    assert_nothing_is_left(write_trace(tmp_path, first, OPEN), tmp_path, "line 1: a trace begins with `open`")


def test_a_file_that_is_not_gzip_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "made.calls.jsonl.gz"
    trace.write_text('{"call": "open", "self_describing": true}\n')
    assert_nothing_is_left(trace, tmp_path, "not a gzip file")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_gzip_file_that_is_cut_off_is_refused(tmp_path: Path, part: float) -> None:
    trace = write_trace(tmp_path, OPEN, *(record(req=f"r{number}") for number in range(1_000)))
    whole = trace.read_bytes()
    trace.write_bytes(whole[: int(len(whole) * part)])
    assert_nothing_is_left(trace, tmp_path, "damaged or cut off")


def test_a_gzip_file_with_a_wrong_byte_is_refused(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, OPEN, *(record(req=f"r{number}") for number in range(1_000)))
    content = bytearray(trace.read_bytes())
    content[-6] ^= 1  # in the checksum at its end
    trace.write_bytes(content)
    assert_nothing_is_left(trace, tmp_path, str(trace))


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b""), gzip.compress(b"\n\n  \n")], ids=["no byte", "no line", "blank"]
)
def test_a_trace_without_a_call_is_refused(tmp_path: Path, content: bytes) -> None:
    trace = tmp_path / "made.calls.jsonl.gz"
    trace.write_bytes(content)
    assert_nothing_is_left(trace, tmp_path, "holds no call")


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "made.calls.jsonl.gz").mkdir()
    assert_nothing_is_left(tmp_path / "made.calls.jsonl.gz", tmp_path, "cannot be read: Is a directory")


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    assert_nothing_is_left(tmp_path / "made.calls.jsonl.gz", tmp_path, "cannot be read: No such file")


def test_a_file_whose_name_gives_the_stream_none_is_refused(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, OPEN, take(), name="")
    assert_nothing_is_left(trace, tmp_path, "the file's name gives the stream none")


def test_a_bad_trace_is_refused_in_the_same_way_with_crash(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, OPEN, {"call": "frobnicate"})
    assert_refused(kvledger("drive", trace, "--store", tmp_path / "k.db", "--crash"), "line 2")


def test_a_file_that_was_published_before_is_kept_where_the_trace_is_bad(tmp_path: Path) -> None:
    published = tmp_path / "published.jsonl"
    published.write_text("worth keeping\n")
    assert_nothing_is_left(write_trace(tmp_path, OPEN, "no JSON"), tmp_path, "line 2")


def test_a_stream_that_has_events_already_is_refused_and_left_alone(tmp_path: Path) -> None:
    trace, store, published = write_trace(tmp_path, OPEN, take()), tmp_path / "k.db", tmp_path / "published.jsonl"
    assert kvledger("drive", trace, "--store", store, "--published", published).code == 0
    before = files_in(tmp_path), kvledger("replay", "--store", store).out
    found = kvledger("drive", trace, "--store", store, "--published", published)
    assert_refused(found, "stream 'made' has events already", str(store), "another store")
    assert (files_in(tmp_path), kvledger("replay", "--store", store).out) == before


@pytest.mark.parametrize("published", ["missing/p.jsonl", ".", "made.calls.jsonl.gz/p"])
def test_a_place_where_nothing_can_be_published_is_refused_before_a_store_is_made(
    tmp_path: Path, published: str
) -> None:
    trace = write_trace(tmp_path, OPEN, take())
    before = files_in(tmp_path)
    found = kvledger("drive", trace, "--store", tmp_path / "k.db", "--published", tmp_path / published)
    assert_refused(found, str(tmp_path / published), "cannot be written")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("what", ["the store", "the trace"])
def test_nothing_is_published_over_what_is_read(tmp_path: Path, what: str) -> None:
    trace = write_trace(tmp_path, OPEN, take())
    store = tmp_path / "k.db"
    assert kvledger("migrate", "--store", store).code == 0
    before = files_in(tmp_path)
    over = store if what == "the store" else trace
    assert_refused(kvledger("drive", trace, "--store", store, "--published", over), f"{over} is {what}")
    assert files_in(tmp_path) == before
