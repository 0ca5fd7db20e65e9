"""A chunk's life, whatever it is called by: key, block hash, a hash further in, the number in KV events."""

from pathlib import Path
from typing import Any

import pytest

from tests.audit.conftest import Tellings
from tests.audit.lives import Lives, group_of, signed
from tests.cli.command import kvledger
from tests.facts import NAMES
from tests.replay.handmade import CPU, A, Handmade, described, key


def history(store: Path, *arguments: object) -> dict[str, Any]:
    ran = kvledger("history", "--store", store, "--json", *arguments)
    assert ran.code == 0, ran.err
    return ran.json()


def refused(store: Path, *arguments: object) -> str:
    ran = kvledger("history", "--store", store, *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    return ran.err


def busiest(lives: Lives) -> str:
    """A described chunk with the most residencies."""
    return max(lives.described, key=lambda chunk: sum(life.at[0] == chunk for life in lives.all))


@pytest.mark.parametrize("name", NAMES)
def test_a_chunk_s_residencies_are_those_of_a_fold_of_the_lines(told: Tellings, name: str) -> None:
    one = told(name)
    chunk = busiest(one.lives)
    expected = [
        {
            "medium": life.at[1],
            "ownership": life.at[2],
            "opened_seq": life.opened["seq"],
            "opened": life.opened["time"],
            "closed_seq": life.closed["seq"] if life.closed else None,
            "closed": life.closed["time"] if life.closed else None,
            "reason": life.reason,
            "seconds": life.seconds,
            "stores": life.stores,
        }
        for life in one.lives.all
        if life.at[0] == chunk
    ]
    found = history(one.store, chunk)
    assert found["residencies"] == expected
    assert len(expected) > 2


@pytest.mark.parametrize("name", NAMES)
def test_a_chunk_says_what_it_is(told: Tellings, name: str) -> None:
    one = told(name)
    chunk = busiest(one.lives)
    found, meta = history(one.store, chunk), one.lives.metadata(chunk)
    assert meta is not None
    assert (found["stream"], found["key"], found["first_seq"]) == (name, chunk, one.lives.named[chunk])
    assert (found["wire"], found["group_idx"]) == (signed(chunk) % 2**64, group_of(chunk))
    assert found["described_at"] == [line["seq"] for line in one.lives.described[chunk]]
    assert {name: found["metadata"][name] for name in meta} == meta


def names_of(chunk: str) -> list[object]:
    """All that can be said instead of the key."""
    wire = int(chunk[-24:-8], 16)
    return [chunk[:-8], chunk.upper(), wire, hex(wire), f"0X{wire:X}"]


def test_a_chunk_is_found_by_its_block_hash_and_by_its_wire_hash(told: Tellings) -> None:
    one = told("two_tier")
    chunk = busiest(one.lives)
    assert [history(one.store, said)["key"] for said in names_of(chunk)] == [chunk] * 5


def test_a_wire_hash_can_be_said_as_sql_shows_it(told: Tellings) -> None:
    one = told("two_tier")
    chunk = next(chunk for chunk in one.lives.described if signed(chunk) < 0)
    assert history(one.store, "--", signed(chunk))["key"] == chunk


def test_a_chunk_is_found_by_a_block_further_in(told: Tellings) -> None:
    one = told("store_only")
    chunk = busiest(one.lives)
    meta = one.lives.metadata(chunk)
    assert meta is not None
    members = meta["block_hashes"]
    assert len(members) == 4
    said = [*members, *(int(member[-16:], 16) for member in members)]
    assert [history(one.store, name)["key"] for name in said] == [chunk] * 8


def test_a_parent_s_hash_means_the_parent_and_not_the_chunks_that_name_it(told: Tellings) -> None:
    one = told("store_only")
    for chunk in one.lives.described:
        meta = one.lives.metadata(chunk)
        assert meta is not None
        parent = meta["parent_block_hash"]
        if parent is not None and parent + "00000000" in one.lives.named:
            assert history(one.store, parent)["key"] == parent + "00000000"
            return
    raise AssertionError("no chunk of the recorded engine has a parent that is a chunk")


def test_a_parent_that_the_stream_never_named_is_no_chunk_s_block(tmp_path: Path) -> None:
    parent = bytes(range(32))
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), described(1, hashes=2, parent_block_hash=parent))
        made.commit()
    assert "has never heard of" in refused(made.path, parent.hex())


@pytest.fixture
def shared_hash(tmp_path: Path) -> Path:
    """Chunk 7 in group 0 and in group 1, with one block hash."""
    with Handmade(tmp_path / "k.db") as made:
        for group in (0, 1):
            made.describe(key(7, group), described(7) if not group else b"")
            made.store(key(7, group), (CPU, A)[group])
        made.commit()
    return made.path


@pytest.mark.parametrize("said", [key(7)[:-4].hex(), "7", "0x7"])
def test_a_hash_of_several_chunks_is_refused_with_their_keys(shared_hash: Path, said: str) -> None:
    line = refused(shared_hash, said)
    assert "means 2 chunks" in line
    assert "--group" in line
    assert all(f"{key(7, group).hex()} (group {group})" in line for group in (0, 1))


def test_a_group_chooses_among_them(shared_hash: Path) -> None:
    assert [history(shared_hash, 7, "--group", group)["key"] for group in (0, 1)] == [
        key(7, 0).hex(),
        key(7, 1).hex(),
    ]


def test_a_whole_key_means_one_chunk(shared_hash: Path) -> None:
    assert history(shared_hash, key(7, 1).hex())["residencies"][0]["ownership"] == "a"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("xyz", "'xyz' names no chunk"),
        ("abc", "'abc' names no chunk"),
        ("", "'' has 0 bytes"),
        ("abcd", "'abcd' has 2 bytes"),
        ("ab" * 300, "has 300 bytes"),
        ("0x", "'0x' names no chunk"),
        ("18446744073709551616", "is no 64-bit hash"),
        ("0x10000000000000000", "names no chunk"),
        ("12345", "has never heard of a chunk 12345"),
        ("ab" * 32, "has never heard of a chunk abab"),
        ("ab" * 36, "has never heard of a chunk abab"),
    ],
)
def test_what_names_no_chunk_ends_in_one_line(told: Tellings, said: str, problem: str) -> None:
    assert problem in refused(told("two_tier").store, said)


def test_a_group_without_such_a_chunk_ends_in_one_line(shared_hash: Path) -> None:
    assert "of group 5" in refused(shared_hash, 7, "--group", 5)


def test_of_several_streams_one_has_to_be_named(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with Handmade(tmp_path / "k.db", name) as made:
            made.describe(key(7), described(7))
            made.commit()
    assert "name one with --stream: one, other" in refused(tmp_path / "k.db", 7)
    assert history(tmp_path / "k.db", 7, "--stream", "other")["stream"] == "other"
