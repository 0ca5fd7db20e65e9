"""A store is made and upgraded whole or not at all, by one process at a time, and only forward."""

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.cli.command import kvledger
from tests.lockholder import lock_held
from tests.migration.releases import NEXT, NOW, ROOT, Release
from tests.stores import findings, kinds, make_store, session_on, settle, store_chunk


def schema(path: Path) -> list[tuple[str, ...]]:
    """Everything that the database has, as SQLite describes it."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    version = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    connection.close()
    return [*rows, *version]


def used_store(path: Path) -> Path:
    """A store with something in it."""
    engine, _ = open_for_writing(str(path))
    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
    engine.dispose()
    return path


def test_a_new_store_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "k.db"
        engine, _ = open_for_writing(str(path))
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE stream SET epoch = epoch")
            modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in tmp_path.iterdir()}
        engine.dispose()
    finally:
        os.umask(before)
    assert modes == {"k.db": 0o600, "k.db-wal": 0o600, "k.db-shm": 0o600}


def test_processes_that_create_a_store_at_once_all_succeed(tmp_path: Path, this_release: Release) -> None:
    path = tmp_path / "k.db"
    running = [this_release.start("migrate", "--store", path, "--json") for _ in range(3)]
    done = [one.finish() for one in running]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    # One of them made the schema, the others found it.
    assert sum('"before": null' in one.stdout for one in done) == 1
    assert schema(path) == schema(make_store(tmp_path / "alone.db"))


def test_processes_that_wait_for_the_same_upgrade_do_it_once(tmp_path: Path, next_release: Release) -> None:
    path = used_store(tmp_path / "k.db")
    with lock_held(path) as holder:
        running = [next_release.start("migrate", "--store", path, "--json") for _ in range(2)]
        while not all(one.has_open(path) for one in running):
            os.sched_yield()
        holder.let_go()
        done = [one.finish() for one in running]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 2
    assert sorted(f'"before": "{NOW}"' in one.stdout for one in done) == [False, True]


def test_an_upgrade_keeps_what_is_in_the_store(tmp_path: Path, next_release: Release) -> None:
    path = used_store(tmp_path / "k.db")
    done = next_release.run("migrate", "--store", path)
    assert (done.returncode, done.stdout) == (0, f"{path}: upgraded from {NOW} to schema {NEXT}\n")
    shown = next_release.run("replay", "--store", path)
    assert shown.stdout.count("\n") == 3


def test_a_migration_that_fails_half_way_leaves_the_store_as_it_was(tmp_path: Path, next_release: Release) -> None:
    path = used_store(tmp_path / "k.db")
    before = schema(path)
    next_release.add_revision('op.execute("INSERT INTO nowhere VALUES (1)")')
    done = next_release.run("migrate", "--store", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no such table: nowhere" in done.stderr
    assert schema(path) == before
    assert kinds(path) == ["epoch_started", "chunk_described", "chunk_stored"]


def test_a_migration_that_failed_can_be_run_again(tmp_path: Path, next_release: Release) -> None:
    path = used_store(tmp_path / "k.db")
    next_release.add_revision('op.execute("INSERT INTO nowhere VALUES (1)")')
    assert next_release.run("migrate", "--store", path).returncode == 2
    next_release.add_revision("pass")
    assert next_release.run("migrate", "--store", path).returncode == 0
    assert next_release.run("verify", "--store", path).returncode == 0


def test_migrating_again_does_nothing(tmp_path: Path) -> None:
    path = used_store(tmp_path / "k.db")
    before = schema(path)
    assert kvledger("migrate", "--store", path, "--json").json()["before"] == NOW
    assert schema(path) == before
    assert findings(path) == []


def test_migrations_only_go_forward(tmp_path: Path) -> None:
    path = used_store(tmp_path / "k.db")
    before = schema(path)
    command = [sys.executable, "-m", "alembic", "-x", f"store={path}", "downgrade", "-1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "migrations only go forward" in done.stderr
    assert schema(path) == before


def test_an_older_store_is_refused_until_it_is_migrated(tmp_path: Path, next_release: Release) -> None:
    path = used_store(tmp_path / "k.db")
    content = path.read_bytes()
    done = next_release.run("status", "--store", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"kvledger: {path}: has schema {NOW}, this kvledger needs {NEXT}; run `kvledger migrate --store {path}`\n"
    )
    assert path.read_bytes() == content


@pytest.fixture(scope="module")
def newer_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the next release has upgraded."""
    folder = tmp_path_factory.mktemp("newer")
    release = Release(folder / "next")
    release.add_revision("pass")
    path = used_store(folder / "k.db")
    assert release.run("migrate", "--store", path).returncode == 0
    return path


@pytest.mark.parametrize("command", ["status", "migrate", "verify", "rebuild"])
def test_a_store_of_a_newer_release_is_refused_and_left_alone(newer_store: Path, command: str) -> None:
    content = newer_store.read_bytes()
    done = kvledger(command, "--store", newer_store)
    assert (done.code, done.out) == (2, "")
    assert f"schema {NEXT} is newer than this kvledger knows (up to {NOW}); upgrade kvledger" in done.err
    assert newer_store.read_bytes() == content
