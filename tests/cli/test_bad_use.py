"""A command that is used wrongly says so in one line and does nothing."""

from pathlib import Path

import pytest

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger
from tests.cli.refusals import assert_refused, files_in
from tests.stores import chunk, session_on, settle, store_chunk

#: 1 the epoch's beginning, 2 a description, 3 a store.
LAST_SEQ = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one stream, `engine`, of three events."""
    path = tmp_path_factory.mktemp("store") / "k.db"
    engine, _ = open_for_writing(str(path))
    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
    engine.dispose()
    return path


@pytest.fixture(scope="module")
def two_streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the streams `left` and `right`."""
    path = tmp_path_factory.mktemp("two") / "k.db"
    engine, _ = open_for_writing(str(path))
    for name in ("left", "right"):
        with session_on(engine, name):
            pass
    engine.dispose()
    return path


WRONG = {
    "an unknown command": (["frobnicate"], ["No such command 'frobnicate'", "`kvledger --help`"]),
    "an unknown option": (["status", "--frob"], ["No such option: --frob", "`kvledger status --help`"]),
    "an option before the command": (["--frob", "status"], ["No such option: --frob"]),
    "an argument too many": (["status", "extra"], ["unexpected extra argument", "extra"]),
    "no trace": (["drive"], ["Missing argument", "`kvledger drive --help`"]),
    "no key": (["history"], ["Missing argument", "`kvledger history --help`"]),
    "an option without its value": (["status", "--store"], ["--store", "requires an argument"]),
    "a value for a switch": (["status", "--json=yes"], ["--json", "does not take a value"]),
    "a word that is no choice": (["drive", "x", "--publish", "never"], ["--publish", "after_commit", "at_once"]),
    "another word that is no choice": (["drive", "x", "--announce", "x"], ["--announce", "full", "closes", "none"]),
    "a word for a number": (["drive", "x", "--outbox-events", "many"], ["--outbox-events"]),
    "a number that is too small": (["drive", "x", "--outbox-events", "0"], ["--outbox-events"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_command_that_makes_no_sense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVLEDGER_STORE", str(tmp_path / "k.db"))
    arguments, says = WRONG[case]
    assert_refused(kvledger(*arguments), *says)
    assert files_in(tmp_path) == {}


SEQS: dict[str, tuple[list[object], str]] = {
    "residency before the beginning": (["residency", "--at", "-1"], "-1"),
    "residency after the end": (["residency", "--at", LAST_SEQ + 1], f"no seq {LAST_SEQ + 1}"),
    "residency at no number": (["residency", "--at", "x"], "'x' is no point of a stream"),
    "residency at a number that no store holds": (["residency", "--at", 10**30], str(10**30)),
    "a replay from nothing": (["replay", "--from", 0], "no seq 0"),
    "a replay from before the beginning": (["replay", "--from", "-1"], "-1"),
    "a replay from after the end": (["replay", "--from", LAST_SEQ + 2], f"no seq {LAST_SEQ + 2}"),
    "a replay to after the end": (["replay", "--to", LAST_SEQ + 1], str(LAST_SEQ + 1)),
    "a replay to before its beginning": (["replay", "--from", 3, "--to", 1], "3 to 1"),
    "a replay from no number": (["replay", "--from", "x"], "'x' is no point of a stream"),
    "a replay from a number that no store holds": (["replay", "--from", 10**30], str(10**30)),
    "a key that is too short": (["history", "ab"], "'ab' has 1 bytes"),
    "a key that is not hex": (["history", "zz"], "'zz' names no chunk"),
    "no key at all": (["history", ""], "'' has 0 bytes"),
    "a key that the stream never heard of": (["history", chunk(2).hex()], chunk(2).hex()),
    "a stream that is not there": (["verify", "--stream", "x"], "no stream 'x' in this store; it has: engine"),
    "a stream without a name": (["verify", "--stream", ""], "no stream ''"),
    "a rebuild of no stream": (["rebuild", "--stream", "x"], "no stream 'x' in this store; it has: engine"),
}


@pytest.mark.parametrize("case", SEQS)
def test_a_question_that_the_store_cannot_answer_is_refused(store: Path, case: str) -> None:
    arguments, says = SEQS[case]
    before = store.read_bytes()
    assert_refused(kvledger(*arguments, "--store", store), says)
    assert store.read_bytes() == before


@pytest.mark.parametrize("command", [["residency"], ["replay"], ["history", chunk(1).hex()]], ids=lambda one: one[0])
def test_a_stream_has_to_be_named_where_there_are_several(two_streams: Path, command: list[str]) -> None:
    assert_refused(kvledger(*command, "--store", two_streams), "has 2 streams; name one with --stream: left, right")


@pytest.mark.parametrize("command", [["residency"], ["replay"], ["history", chunk(1).hex()]], ids=lambda one: one[0])
def test_a_store_without_a_stream_says_that_nothing_was_recorded(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "k.db"
    assert kvledger("migrate", "--store", path).code == 0
    assert_refused(kvledger(*command, "--store", path), "nothing was ever recorded in it")


@pytest.mark.parametrize("output", ["missing/out.jsonl", "."])
def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, store: Path, output: str) -> None:
    found = kvledger("replay", "--store", store, "--output", tmp_path / output)
    assert_refused(found, str(tmp_path / output))
    assert files_in(tmp_path) == {}


def test_a_folder_to_keep_a_demo_in_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_refused(kvledger("demo", "--keep", tmp_path / "file" / "kept"), str(tmp_path / "file" / "kept"))
