"""A store that cannot be used is refused by every command, and left as it was: what is wrong, where, what to do."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger
from tests.cli.refusals import assert_refused, files_in
from tests.cli.traces import KEY, OPEN, take, write_trace
from tests.lockholder import lock_held
from tests.stores import make_store, session_on, settle, store_chunk

READING = ("status", "residency", "verify", "replay", "history")
WRITING = ("migrate", "rebuild", "drive")
COMMANDS = READING + WRITING


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that can be driven."""
    return write_trace(tmp_path_factory.mktemp("trace"), OPEN, take())


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in one file with a few hundred events in it."""
    path = tmp_path_factory.mktemp("used") / "k.db"
    engine, _ = open_for_writing(str(path))
    with session_on(engine) as session:
        for number in range(500):
            store_chunk(session.tracker, number, PRIMARY)
        settle(session)
    engine.dispose()
    return path


def arguments_of(command: str, trace: Path) -> list[str]:
    """What a command needs beside the store."""
    return {"history": [KEY], "drive": [str(trace)]}.get(command, [])


def refused(command: str, store: object, trace: Path, *says: str) -> None:
    """`command` on `store` is refused."""
    arguments = arguments_of(command, trace)
    assert_refused(kvledger(command, *arguments, "--store", store), *says)


def sqlite(path: Path, *statements: str) -> None:
    """A database made by another program."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def text(path: Path) -> None:
    path.write_text("Dear diary, this is not a database.\n" * 100)


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 32)


def other_tables(path: Path) -> None:
    sqlite(path, "CREATE TABLE users (name)", "INSERT INTO users VALUES ('alice')")


def other_migrations(path: Path) -> None:
    other_tables(path)
    sqlite(path, "CREATE TABLE alembic_version (version_num)", "INSERT INTO alembic_version VALUES ('0001')")


def a_view_alone(path: Path) -> None:
    sqlite(path, "CREATE VIEW one AS SELECT 1")


def another_mark(path: Path) -> None:
    sqlite(path, "PRAGMA application_id = 252006674")


NOT_OURS: dict[str, tuple[Callable[[Path], None], str]] = {
    "text": (text, "is not an SQLite database; name another file"),
    "noise": (noise, "is not an SQLite database; name another file"),
    "another program's tables": (other_tables, "is another program's; name another file"),
    "another program's migrations": (other_migrations, "is another program's; name another file"),
    "another program's view": (a_view_alone, "is another program's; name another file"),
    "another program's mark": (another_mark, "is another program's; name another file"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", NOT_OURS)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_was(
    tmp_path: Path, trace: Path, kind: str, command: str
) -> None:
    make, says = NOT_OURS[kind]
    path = tmp_path / "k.db"
    make(path)
    before = files_in(tmp_path)
    refused(command, path, trace, str(path), says)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kept", [50, 100, 4_096, 30_000], ids=lambda kept: f"{kept} bytes kept")
def test_a_store_that_is_cut_off_is_refused_and_left_as_it_was(
    tmp_path: Path, trace: Path, used: Path, kept: int, command: str
) -> None:
    path = tmp_path / "k.db"
    path.write_bytes(used.read_bytes()[:kept])
    before = files_in(tmp_path)
    refused(command, path, trace, str(path), "restore a backup")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("command", [*READING, "rebuild"])
def test_a_store_without_a_schema_is_refused_with_the_way_out(tmp_path: Path, trace: Path, command: str) -> None:
    path = tmp_path / "k.db"
    path.touch()
    refused(command, path, trace, f"{path}: has no schema", f"run `kvledger migrate --store {path}`")
    assert path.read_bytes() == b""


@pytest.mark.parametrize("command", [*READING, "rebuild"])
def test_a_missing_store_is_refused_with_the_way_out(tmp_path: Path, trace: Path, command: str) -> None:
    path = tmp_path / "folder" / "k.db"
    refused(command, path, trace, f"{path}: there is no such file", f"`kvledger migrate --store {path}` makes one")
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_no_store(tmp_path: Path, trace: Path, command: str) -> None:
    refused(command, tmp_path, trace, f"{tmp_path}: this is no file")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_no_store_and_is_not_waited_for(tmp_path: Path, trace: Path, command: str) -> None:
    os.mkfifo(tmp_path / "k.db")
    refused(command, tmp_path / "k.db", trace, "this is no file")


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("what", ["the file", "its folder"])
def test_a_read_only_store_is_refused_by_what_writes(
    tmp_path: Path, trace: Path, used: Path, what: str, command: str
) -> None:
    # The mode bits count, so that this holds for root as well.
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "k.db"
    shutil.copy(used, path)
    closed = path if what == "the file" else folder
    before, mode = files_in(tmp_path), closed.stat().st_mode
    closed.chmod(mode & ~0o222)
    try:
        refused(command, path, trace, str(path), "is read-only; make it writable")
    finally:
        closed.chmod(mode)
    assert files_in(tmp_path) == before


def test_no_store_is_made_in_a_read_only_folder(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(0o500)
    refused("migrate", folder / "k.db", trace, f"its folder {folder} is read-only")
    assert files_in(tmp_path) == {"folder": None}


def test_a_store_below_a_file_is_refused(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "file").touch()
    refused("migrate", tmp_path / "file" / "k.db", trace, "its folder cannot be created: ")


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "k.db").symlink_to(tmp_path / "nowhere")
    refused("migrate", tmp_path / "k.db", trace, str(tmp_path / "k.db"), "cannot be opened")
    assert not (tmp_path / "nowhere").exists()


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "k.db").symlink_to(tmp_path / "k.db")
    refused("status", tmp_path / "k.db", trace, "cannot be used: Too many levels of symbolic links")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path, trace: Path) -> None:
    refused("migrate", tmp_path / ("k" * 300), trace, "File name too long")


def test_a_store_whose_lock_another_process_holds_is_refused(tmp_path: Path, trace: Path) -> None:
    path = make_store(tmp_path / "k.db")
    with lock_held(path):
        refused("rebuild", path, trace, str(path), "another process holds its lock; try again when that one is done")


ADDRESSES: dict[str, tuple[str, str]] = {
    "nothing": ("", "the store's address is empty"),
    "blanks": ("   ", "the store's address is empty"),
    "a driver that is not supported": ("postgresql://localhost/k", "driver 'postgresql' is not supported; use sqlite:"),
    "another way to SQLite": ("sqlite+pysqlcipher:///k.db", "driver 'sqlite+pysqlcipher' is not supported"),
    "a driver that nobody knows": ("foo://x", "driver 'foo' is not supported"),
    "no driver": ("://x", "cannot be parsed"),
    "a port that is none": ("postgresql://h:port/k", "cannot be parsed"),
    "half an address": ("postgresql://[::1/k", "cannot be parsed"),
    "one slash": ("sqlite:/k.db", "has three slashes"),
    "no slash": ("sqlite:k.db", "has three slashes"),
    "two slashes": ("sqlite://k.db", "three slashes"),
    "a host": ("sqlite://host/k.db", "three slashes"),
    "no file": ("sqlite:///", "name a file"),
    "memory": (":memory:", "a ledger in memory would record nothing"),
    "memory as a URL": ("sqlite:///:memory:", "a ledger in memory would record nothing"),
    "memory without slashes": ("sqlite://", "a ledger in memory would record nothing"),
    "SQLite's own URL": ("file:k.db?mode=memory", "name a file"),
    "SQLite's own URL in a URL": ("sqlite:///file:k.db", "name a file"),
    "options": ("sqlite:///k.db?mode=ro", "options in the URL are not supported"),
    "a NUL": ("k\0.db", "NUL"),
}


@pytest.mark.parametrize("command", ["status", "migrate", "drive"])
@pytest.mark.parametrize("kind", ADDRESSES)
def test_an_address_that_names_no_store_is_refused(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, kind: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    address, says = ADDRESSES[kind]
    refused(command, address, trace, says)
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:s3cret@host/k",
        "postgresql://user:s3cret@host:port/k",
        "postgresql://user:s3cret@[::1/k",
        "postgresql://user:x@s3cret@host/k",
        "postgresql://user:x/s3cret@host/k",
        "postgresql://user:x?s3cret@host/k",
        "postgresql://user:x#s3cret@host/k",
        "postgresql://host/k?password=s3cret",
        "sqlite://user:s3cret@host/k.db",
        "sqlite://user:s3cret@/k.db",
        "sqlite://:s3cret@/k.db",
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_password_is_never_shown(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, address: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = arguments_of(command, trace)
    found = kvledger(command, *arguments, "--store", address)
    assert_refused(found)
    assert "s3cret" not in found.err
    assert files_in(tmp_path) == {}


def test_the_environment_s_store_is_refused_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLEDGER_STORE", "foo://x")
    assert_refused(kvledger("status"), "driver 'foo' is not supported")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE place SET medium = 'TAPE'",
        "UPDATE payload SET body = x'ff' WHERE chunk > 0",
        "UPDATE payload SET body = x'7b' WHERE chunk = 0",
        "UPDATE event SET kind = 99 WHERE seq = 3",
    ],
    ids=["a medium", "a description", "a body", "a kind"],
)
@pytest.mark.parametrize("command", ["status", "residency", "replay", "rebuild"])
def test_content_that_kvledger_does_not_write_never_ends_in_a_traceback(
    tmp_path: Path, used: Path, damage: str, command: str
) -> None:
    path = tmp_path / "k.db"
    shutil.copy(used, path)
    sqlite(path, damage)
    found = kvledger(command, "--store", path)
    # A command that does not come across the damage has nothing to say of it; `verify` finds it always.
    assert found.code in (0, 2)
    if found.code:
        assert found.err.count("\n") == 1
        assert "run `kvledger verify`" in found.err
    assert kvledger("verify", "--store", path).code == 1
