"""Each view for people shows what the log's lines say, worked out in plain Python."""

from typing import Any

import pytest

from tests.audit.answers import iso
from tests.audit.conftest import Tellings, Told
from tests.audit.lives import Life, group_of, signed
from tests.facts import NAMES


def rows(told: Told, sql: str) -> list[tuple[Any, ...]]:
    with told.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def start_of(life: Life) -> tuple[Any, ...]:
    return life.opened["seq"], iso(life.opened["time_ns"]), life.opened["time_ns"]


def end_of(life: Life) -> tuple[Any, ...]:
    if life.closed is None:
        return None, None, None, None, None
    return life.closed["seq"], iso(life.closed["time_ns"]), life.closed["time_ns"], life.seconds, life.reason


@pytest.mark.parametrize("name", NAMES)
def test_events_shows_every_line_of_a_replay(told: Tellings, name: str) -> None:
    one = told(name)
    why = {(*life.at, life.closed["seq"]): life.reason for life in one.lives.ended if life.closed is not None}
    expected = []
    for line in one.lives.lines:
        at = (line.get("key"), line.get("medium"), line.get("ownership"))
        flags = ("removal_expected", "repeated", "placeholder", "matched", "metadata_only")
        expected.append(
            (
                name,
                line["seq"],
                iso(line["time_ns"]),
                line["time_ns"],
                line["kind"],
                *at,
                line.get("locality"),
                *(None if line.get(flag) is None else int(line[flag]) for flag in flags),
                why.get((*at, line["seq"])),  # type: ignore[arg-type]
                one.lives.named.get(line.get("key", "")),
            )
        )
    assert (
        rows(
            one,
            'SELECT stream, seq, time, time_ns, kind, "key", medium, ownership, locality, removal_expected, repeated,'
            " placeholder, matched, metadata_only, reason, chunk FROM events ORDER BY seq",
        )
        == expected
    )


@pytest.mark.parametrize("name", NAMES)
def test_residency_shows_what_is_open(told: Tellings, name: str) -> None:
    one = told(name)
    expected = [
        (
            name,
            "silent",
            life.at[0],
            group_of(life.at[0]),
            signed(life.at[0]),
            *life.at[1:],
            life.opened["locality"],
            *start_of(life),
            1,
            int(life.placeholder),
            life.stores,
            one.lives.named[life.at[0]],
        )
        for life in one.lives.open.values()
    ]
    found = rows(
        one,
        'SELECT stream, state, "key", group_idx, wire, medium, ownership, locality, opened_seq, opened, opened_ns,'
        " confirmed, placeholder, stores, chunk FROM residency",
    )
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("name", NAMES)
def test_lifecycle_shows_every_residency_ended_or_not(told: Tellings, name: str) -> None:
    one = told(name)
    expected = [
        (
            name,
            life.at[0],
            group_of(life.at[0]),
            signed(life.at[0]),
            *life.at[1:],
            life.opened["locality"],
            *start_of(life),
            *end_of(life),
            int(life.placeholder),
            life.stores,
            one.lives.named[life.at[0]],
        )
        for life in one.lives.all
    ]
    found = rows(
        one,
        'SELECT stream, "key", group_idx, wire, medium, ownership, locality, opened_seq, opened, opened_ns, closed_seq,'
        " closed, closed_ns, seconds, reason, placeholder, stores, chunk FROM lifecycle",
    )
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("name", NAMES)
def test_ended_shows_every_residency_that_has_ended(told: Tellings, name: str) -> None:
    one = told(name)
    expected = [
        (
            name,
            *life.at[1:],
            one.lives.named[life.at[0]],
            *start_of(life),
            *end_of(life),
            int(life.placeholder),
            life.stores,
        )
        for life in one.lives.ended
    ]
    found = rows(
        one,
        "SELECT stream, medium, ownership, chunk, opened_seq, opened, opened_ns, closed_seq, closed, closed_ns,"
        " seconds, reason, placeholder, stores FROM ended",
    )
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("name", NAMES)
def test_chunks_shows_every_chunk_with_its_latest_description(told: Tellings, name: str) -> None:
    one = told(name)
    expected: list[tuple[Any, ...]] = []
    for chunk, number in one.lives.named.items():
        meta = one.lives.metadata(chunk)
        there = sum(at[0] == chunk for at in one.lives.open)
        head = (name, chunk, chunk[:-8], group_of(chunk), signed(chunk), str(signed(chunk) % 2**64), number)
        if meta is None:
            expected.append((*head, None, None, None, None, None, None, there, number))
            continue
        parent = meta["parent_block_hash"]
        says = (
            one.lives.described[chunk][-1]["seq"],
            len(meta["block_hashes"]),
            meta["block_size"],
            len(meta["token_ids"]),
            parent,
            None if parent is None else signed(parent + "00000000"),
        )
        expected.append((*head, *says, there, number))
    found = rows(
        one,
        'SELECT stream, "key", block_hash, group_idx, wire, wire_unsigned, first_seq, described_seq, blocks,'
        " block_size, tokens, parent, parent_wire, places, chunk FROM chunks ORDER BY chunk",
    )
    assert found == sorted(expected, key=lambda row: row[-1])


@pytest.mark.parametrize("name", NAMES)
def test_places_shows_every_place_and_whether_it_said_that_it_announces_removals(told: Tellings, name: str) -> None:
    one = told(name)
    flagged: dict[Any, int] = {}
    for line in one.lives.lines:
        if line["kind"] == "chunk_stored":
            at = (line["medium"], line["ownership"])
            flagged[at] = flagged.get(at, 0) | int(line["removal_expected"])
    assert rows(one, "SELECT stream, place, medium, ownership, word, flagged FROM places ORDER BY place") == [
        (name, number, *at, at[0], flag) for number, (at, flag) in enumerate(flagged.items(), 1)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_epochs_shows_each_process_life_and_how_it_ended(told: Tellings, name: str) -> None:
    one = told(name)
    expected = []
    for number, (first, last) in one.lives.epochs().items():
        times = [(line["seq"], iso(line["time_ns"]), line["time_ns"]) for line in (first, last)]
        state = "crashed" if number == 1 else "silent"
        who = (first["host"], first["pid"], first["boot_id"], first["announce"])
        expected.append((name, number, *times[0], *times[1], 0, state, *who))
    assert (
        rows(
            one,
            "SELECT stream, epoch, started_seq, started, started_ns, last_seq, last, last_ns, ended_cleanly, state,"
            " host, pid, boot_id, announce FROM epochs ORDER BY epoch",
        )
        == expected
    )
