"""What commands write: data on stdout, one JSON document where asked, no colours where unwanted, help for all."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from eventstore.cli.app import app
from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import COMMAND, kvledger
from tests.cli.traces import OPEN, record, take, write_trace
from tests.stores import chunk, session_on, settle, store_chunk

NAMES = sorted(str(command.name) for command in app.registered_commands)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a chunk in it."""
    path = tmp_path_factory.mktemp("store") / "k.db"
    engine, _ = open_for_writing(str(path))
    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
    engine.dispose()
    return path


DOCUMENTS: dict[str, list[object]] = {
    "migrate": ["migrate"],
    "status": ["status"],
    "residency": ["residency"],
    "residency at a seq": ["residency", "--at", 2],
    "history": ["history", chunk(1).hex()],
    "verify": ["verify"],
    "rebuild": ["rebuild"],
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_json_is_one_document_with_a_schema_version_and_nothing_else(store: Path, case: str) -> None:
    found = kvledger(*DOCUMENTS[case], "--store", store, "--json")
    assert (found.code, found.err) == (0, "")
    document = json.loads(found.out)
    assert document["schema_version"] == 1


def test_json_of_a_drive_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, OPEN, record(), take())
    found = kvledger("drive", trace, "--store", tmp_path / "k.db", "--json")
    assert (found.code, found.err) == (0, "")
    assert json.loads(found.out)["schema_version"] == 1


def test_a_finding_is_told_on_stdout_with_exit_code_1(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "k.db"
    path.write_bytes(store.read_bytes())
    engine, _ = open_for_writing(str(path))
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE event SET time_ns = time_ns + 1 WHERE seq = 2")
    engine.dispose()
    found = kvledger("verify", "--store", path, "--json")
    assert (found.code, found.err) == (1, "")
    assert json.loads(found.out)["streams"][0]["findings"][0]["seq"] == 2


def test_the_environment_names_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLEDGER_STORE", str(store))
    assert json.loads(kvledger("status", "--json").out)["store"] == str(store)


def test_the_version_is_shown() -> None:
    found = kvledger("--version")
    assert found.code == 0
    assert re.fullmatch(r"kvledger \d+\.\d+\.\d+\n", found.out)


def test_without_a_command_the_help_is_shown_and_the_use_is_bad() -> None:
    found = kvledger()
    assert (found.code, found.out) == (2, "")
    assert "Usage: kvledger" in found.err


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_names_every_command(option: str) -> None:
    found = kvledger(option)
    assert found.code == 0
    shown = {line.split()[0] for line in found.out.split("Commands:\n")[1].splitlines() if line.strip()}
    assert shown == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_says_what_it_does(name: str) -> None:
    found = kvledger(name, "--help")
    assert found.code == 0
    usage, _, rest = found.out.partition("\n\n")
    assert usage.strip().startswith(f"Usage: kvledger {name}")
    assert len(rest.split("Options:")[0].strip()) > 20


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_is_for(name: str) -> None:
    (command,) = (one for one in app.registered_commands if one.name == name)
    assert command.callback is not None
    options = [line for line in kvledger(name, "--help").out.splitlines() if line.startswith("  -")]
    bare = [line for line in options if not re.search(r"  \S.*  +\S", line) and len(line) < 24]
    assert bare == []


def in_a_terminal(*arguments: object, **environment: str) -> str:
    """What a person sees: the command's stdout and stderr are a terminal."""
    terminal, inside = pty.openpty()
    given = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=inside,
        stderr=inside,
        env=given | {"TERM": "xterm-256color"} | environment,
    )
    os.close(inside)
    seen = b""
    while True:
        try:
            seen += os.read(terminal, 65_536)
        except OSError:  # the other side is closed
            break
        if process.poll() is not None and not seen:
            break
    os.close(terminal)
    assert process.wait(60) == 0
    return seen.decode()


#: A colour: 30 to 49, 90 to 107, 38;5;N and their like.
COLOUR = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(3[0-9]|4[0-9]|9[0-7]|10[0-7])[0-9;]*m")


def test_a_terminal_gets_colours(store: Path) -> None:
    assert COLOUR.search(in_a_terminal("verify", "--store", store))


def test_no_color_is_honoured(store: Path) -> None:
    assert not COLOUR.search(in_a_terminal("verify", "--store", store, NO_COLOR="1"))


def test_a_dumb_terminal_gets_no_escape_at_all(store: Path) -> None:
    assert "\x1b" not in in_a_terminal("verify", "--store", store, TERM="dumb")
