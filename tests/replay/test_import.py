"""Export, import, export: the same stream, and nothing that is not the same stream."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventstore.domain.events import REMOVAL_EXPECTED, Kind, StreamBody
from eventstore.domain.metadata import without_tokens
from eventstore.recovery.epoch import Opening, open_epoch
from eventstore.storage.store import open_for_writing
from tests.facts import NAMES
from tests.replay.conftest import Drives
from tests.replay.driving import done, kvledger
from tests.replay.handmade import A, Handmade, described, key


def _export(store: Path, *options: object) -> bytes:
    return done("replay", "--store", store, *options).out


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _refused(file: Path, store: Path) -> str:
    """What the command says of a file that it does not take; the store has no stream then."""
    ran = kvledger("import", file, "--store", store)
    assert ran.code == 2
    assert ran.err.startswith("kvledger: ")
    assert ran.err.count("\n") == 1
    assert json.loads(done("status", "--store", store, "--json").out)["streams"] == []
    return ran.err


@pytest.mark.parametrize("name", NAMES)
def test_an_import_is_the_exported_stream_to_the_last_byte(name: str, driven: Drives, tmp_path: Path) -> None:
    exported = _export(driven(name).store)
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "exported.jsonl", exported), "--store", store)
    assert _export(store) == exported


@pytest.mark.parametrize("name", NAMES)
def test_an_imported_stream_verifies_and_its_views_are_those_of_its_log(
    name: str, driven: Drives, tmp_path: Path
) -> None:
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "exported.jsonl", _export(driven(name).store)), "--store", store)
    done("verify", "--store", store)
    assert json.loads(done("rebuild", "--store", store, "--json").out)["changed"] == 0
    there = json.loads(done("residency", "--store", driven(name).store, "--json").out)
    assert json.loads(done("residency", "--store", store, "--json").out) == there


def test_a_part_up_to_the_end_of_a_batch_can_be_imported(driven: Drives, tmp_path: Path) -> None:
    lines = _export(driven("two_tier").store).splitlines()
    border = next(n for n, line in enumerate(lines, 1) if n > len(lines) // 2 and "batch" in msgspec.json.decode(line))
    part = _export(driven("two_tier").store, "--to", border)
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "part.jsonl", part), "--store", store)
    assert _export(store) == part
    done("verify", "--store", store)


def test_a_stream_that_is_there_already_is_refused_and_stays_as_it_was(driven: Drives, tmp_path: Path) -> None:
    exported = _export(driven("cpu_only").store)
    store = tmp_path / "imported.db"
    file = _write(tmp_path / "exported.jsonl", exported)
    done("import", file, "--store", store)
    said = kvledger("import", file, "--store", store)
    assert said.code == 2
    assert "line 1: stream 'cpu_only' has events already" in said.err
    assert _export(store) == exported


def test_a_process_can_open_an_imported_stream_and_go_on_with_it(driven: Drives, tmp_path: Path) -> None:
    exported = _export(driven("two_tier").store)
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "exported.jsonl", exported), "--store", store)
    engine, _ = open_for_writing(str(store))
    with engine.begin() as connection:
        opened = open_epoch(connection, Opening(stream="two_tier"))
    engine.dispose()
    assert (opened.epoch, opened.seq) == (3, exported.count(b"\n") + 1)
    done("verify", "--store", store)


def test_descriptions_that_words_do_not_tell_whole_come_back_whole(tmp_path: Path) -> None:
    with Handmade(tmp_path / "made.db") as log:
        packed = [
            described(1, 3),
            without_tokens(described(2, 3)),
            described(3, lora_id=5, lora_name="tuned", sliding_window=64),
            described(4, extra_keys=[["salt"], None, {"image": 1}]),
            described(5, extra_keys=[b"\x00bytes"]),
            described(6, kind="a kind of tomorrow"),
            described(7, parent_block_hash=bytes(32)),
            b"",
        ]
        for number, body in enumerate(packed, 1):
            log.describe(key(number), body)
            log.store(key(number), A, REMOVAL_EXPECTED)
        log.describe(key(9) + bytes(4), described(9))
        log.about_stream(Kind.GAP, StreamBody(lost=3, since_ns=1, reason="overflow"))
        log.commit()
        exported = _export(log.path)
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "exported.jsonl", exported), "--store", store)
    assert _export(store) == exported
    done("verify", "--store", store)


def test_a_line_that_another_program_has_written_anew_is_still_the_line(tmp_path: Path, driven: Drives) -> None:
    exported = _export(driven("cpu_only").store)
    spaced = b"".join(json.dumps(json.loads(line), indent=None).encode() + b"\n" for line in exported.splitlines())
    assert spaced != exported
    store = tmp_path / "imported.db"
    done("import", _write(tmp_path / "spaced.jsonl", spaced), "--store", store)
    assert _export(store) == exported


def _small(tmp_path: Path) -> list[bytes]:
    """A short export with a line of each kind."""
    with Handmade(tmp_path / "small.db") as log:
        for number in range(1, 6):
            log.describe(key(number), described(number, 2))
            log.store(key(number), A)
            log.step()
        log.remove(key(1), A)
        log.close(key(2), A, 8)
        log.about_stream(Kind.CACHE_RESET, StreamBody())
        log.commit()
        log.open()
        log.about_stream(Kind.EPOCH_ENDED, StreamBody(epoch=2, reason="shutdown"))
        log.commit()
        return _export(log.path).splitlines(keepends=True)


@pytest.mark.parametrize("seed", range(8))
def test_any_damaged_byte_is_found_on_its_line_and_nothing_is_written(seed: int, tmp_path: Path) -> None:
    lines = _small(tmp_path)
    rnd = random.Random(seed)
    store = tmp_path / "imported.db"
    for _ in range(12):
        # The first line names places and an end that only later lines can contradict.
        number = rnd.randrange(1, len(lines))
        line = bytearray(lines[number])
        at = rnd.randrange(len(line) - 1)
        line[at] ^= 1 << rnd.randrange(7)
        said = _refused(
            _write(tmp_path / "damaged.jsonl", b"".join([*lines[:number], line, *lines[number + 1 :]])), store
        )
        assert f"damaged.jsonl, line {number + 1}: " in said, bytes(line)


def _without(name: str) -> Any:
    def change(line: dict[str, Any]) -> None:
        line.pop(name, None)

    return change


def _with(**fields: Any) -> Any:
    def change(line: dict[str, Any]) -> None:
        line |= fields

    return change


@pytest.mark.parametrize(
    ("number", "change", "problem"),
    [
        (1, _without("slice"), "line 1: does not say what slice it begins"),
        (1, _with(slice={"schema_version": 2, "from": 1, "to": 16}), "line 1: is of version 2"),
        (1, _with(slice={"schema_version": 1, "from": 1, "to": 99}), "line 16: is the last line, with seq 16: cut off"),
        (1, _without("places"), "line 3: names the place STORAGE/a, which no line before makes known"),
        (3, _with(seq=4), "line 3: has seq 4 where 3 follows"),
        (3, _with(key=key(99).hex()), "line 3: names a chunk that no line before describes"),
        (3, _with(key="abc"), "line 3: 'abc' is not hex"),
        (3, _with(kind="chunk_lost"), "line 3: 'chunk_lost' is no kind"),
        (3, _with(time="2001-01-01T00:00:00Z"), "line 3: is not what was written: 'time' contradicts the rest"),
        (3, _with(time_ns=2**70), "line 3: no line of `kvledger replay --form log`"),
        (3, _with(stream="other"), "line 3: begins another slice"),
        (14, _with(batch={}), "line 14: no line of `kvledger replay --form log`"),
    ],
)
def test_a_line_that_contradicts_the_file_is_named_with_what_is_wrong(
    number: int, change: Any, problem: str, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in _small(tmp_path)]
    change(lines[number - 1])
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    assert f"wrong.jsonl, {problem}" in _refused(_write(tmp_path / "wrong.jsonl", content), tmp_path / "imported.db")


def test_a_file_that_is_cut_off_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    lines = _small(tmp_path)
    store = tmp_path / "imported.db"
    for end in range(1, len(lines)):
        said = _refused(_write(tmp_path / "cut.jsonl", b"".join(lines[:end])), store)
        assert f"line {end}: is the last line, with seq {end}: cut off, the slice goes to {len(lines)}" in said
        within = b"".join(lines[:end]) + lines[end][: len(lines[end]) // 2]
        assert f"line {end + 1}: is cut off" in _refused(_write(tmp_path / "cut.jsonl", within), store)


def test_a_part_that_is_no_beginning_is_refused(driven: Drives, tmp_path: Path) -> None:
    store = driven("cpu_only").store
    for options in (("--from", 2), ("--medium", "CPU"), ("--group", 0), ("--from-state", 9)):
        part = _write(tmp_path / "part.jsonl", _export(store, *options))
        assert "line 1: " in _refused(part, tmp_path / "imported.db")


def test_a_part_that_ends_within_a_batch_is_refused_with_where_to_end(tmp_path: Path) -> None:
    _small(tmp_path)
    part = _write(tmp_path / "part.jsonl", _export(tmp_path / "small.db", "--to", 9))
    assert "line 9: ends within a batch, which goes on after seq 9; export up to 1" in _refused(part, tmp_path / "i.db")


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08 no text", b"[1, 2]\n", b'{"seq": 1}\n', b"\xff\xfe\n"])
def test_a_file_that_is_no_export_is_refused(content: bytes, tmp_path: Path) -> None:
    assert "nonsense, line 1: " in _refused(_write(tmp_path / "nonsense", content), tmp_path / "imported.db")


def test_a_file_that_cannot_be_read_is_refused_and_no_store_is_made(tmp_path: Path) -> None:
    ran = kvledger("import", tmp_path / "missing.jsonl", "--store", tmp_path / "imported.db")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "missing.jsonl: cannot be read" in ran.err
    assert not (tmp_path / "imported.db").exists()
