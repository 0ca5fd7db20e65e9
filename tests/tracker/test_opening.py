"""How an engine gets its stream: what is mended without it, what the user has to mend, and how it ends."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eventstore.domain.errors import LedgerError, StoreTooNew, StoreUnusable
from eventstore.domain.place import PRIMARY
from tests.lockholder import lock_held
from tests.stores import describe, findings, kinds, reading, settle, store_chunk, take
from tracker.configuration import Configuration
from tracker.opening import Engineside, Ledger, open_stream
from tracker.publish import Publisher

ENGINE = Engineside(self_describing=True, publisher=Publisher())


@contextmanager
def opened(path: Path, told: list[str] | None = None) -> Iterator[Ledger]:
    """The stream `engine` in the store at `path`; what its user is told goes to `told`."""
    configuration = Configuration(store=str(path), takeover_wait_s=0)
    ledger = open_stream(configuration, "engine", ENGINE, (told if told is not None else []).append)
    try:
        yield ledger
    finally:
        ledger.close(deadline_s=0)


def used(path: Path) -> Path:
    """A store that an engine has written, with enough in it to fill several pages, and left cleanly."""
    with opened(path) as ledger:
        for number in range(200):
            store_chunk(ledger.session.tracker, number, PRIMARY)
        settle(ledger.session)
        assert ledger.close()
    return path


def resident(path: Path) -> int:
    with reading(path) as (connection, _):
        return int(connection.exec_driver_sql("SELECT count(*) FROM residency").scalar_one())


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)


def tear(path: Path) -> None:
    """The inner pages of every table and index are nonsense."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    path.write_bytes(content[:page] + b"\xa5" * (len(content) - page))


def falsify(path: Path) -> None:
    """The database holds together, and what the log says of its epochs is no JSON."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE payload SET body = x'7b' WHERE chunk = 0")


def disconnect(path: Path) -> None:
    """A residency at a place that the stream does not have."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO open_residency SELECT stream, chunk, 9, 1, 1, 0, 1, 1 FROM chunk LIMIT 1")


@pytest.mark.parametrize("damage", [overwrite, tear, falsify, disconnect], ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_moved_aside_and_a_new_one_begun(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = used(tmp_path / "ledger.db")
    damage(path)
    content = path.read_bytes()
    told: list[str] = []
    with opened(path, told) as ledger:
        store_chunk(ledger.session.tracker, 1, PRIMARY)
        settle(ledger.session)
        assert ledger.close()
    assert kinds(path) == ["epoch_started", "chunk_described", "chunk_stored", "epoch_ended"]
    (aside,) = tmp_path.glob("ledger.db.damaged-*[0-9]")
    assert aside.read_bytes()[: len(content)] == content or damage is disconnect
    assert len(told) == 1
    assert f"It was moved to {aside}, and a new store begun" in told[0]


def test_a_second_damaged_store_does_not_overwrite_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for content in (b"first" * 100, b"second" * 100):
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        with opened(path):
            pass
    kept = {aside.read_bytes()[:5] for aside in tmp_path.glob("ledger.db.damaged-*") if "-wal" not in aside.name}
    assert kept >= {b"first", b"secon"}


def test_a_store_that_is_not_to_blame_stays_where_it_is(tmp_path: Path) -> None:
    path = used(tmp_path / "ledger.db")
    before = kinds(path)
    speechless = Engineside(self_describing=True, publisher=Publisher(), fingerprint={"engine": object()})
    told: list[str] = []
    with pytest.raises(TypeError):
        open_stream(Configuration(store=str(path), takeover_wait_s=0), "engine", speechless, told.append)
    assert (kinds(path), told) == (before, [])
    assert not list(tmp_path.glob("*damaged*"))


def make_newer(path: Path) -> None:
    used(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "error", "hint"),
    [
        (make_newer, StoreTooNew, "upgrade kvledger"),
        (make_foreign, StoreUnusable, "name another file"),
        (make_folder, StoreUnusable, "name an SQLite database"),
    ],
)
def test_what_the_user_has_to_mend_is_refused_in_one_line_and_left_alone(
    make: Callable[[Path], None], error: type[LedgerError], hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error) as refusal, opened(path):
        pass
    assert str(path) in str(refusal.value)
    assert hint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert not list(tmp_path.glob("*damaged*"))


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(StoreUnusable, match="its folder cannot be created"), opened(tmp_path / "taken" / "ledger.db"):
        pass


def test_a_refused_engine_does_not_keep_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    make_foreign(path)
    with pytest.raises(StoreUnusable), opened(path):
        pass
    path.unlink()
    with opened(path):
        pass


def test_the_primary_place_is_known_though_the_first_calls_have_no_events(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with opened(path) as ledger:
        take(ledger.session.tracker)
        take(ledger.session.tracker)
        store_chunk(ledger.session.tracker, 1, PRIMARY)
        settle(ledger.session)
        assert resident(path) == 1
        ledger.close()
    assert findings(path) == []


def test_a_clean_end_commits_what_was_recorded_and_is_said_last(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with opened(path) as ledger:
        describe(ledger.session.tracker, 1)
        assert ledger.close()
        # Asked twice, as an engine that is shut down and then exits does.
        assert ledger.close()
    assert kinds(path) == ["epoch_started", "chunk_described", "epoch_ended"]


def test_an_end_beside_a_stalled_store_gives_up_at_its_deadline_and_says_so(tmp_path: Path) -> None:
    path = used(tmp_path / "ledger.db")
    with opened(path) as ledger, lock_held(path) as holder:
        store_chunk(ledger.session.tracker, 1_000, PRIMARY)
        assert not ledger.close(deadline_s=0.1)
        assert holder.holds()


def test_the_user_is_told_once_when_the_store_stops_taking_commits_and_when_it_takes_them_again(tmp_path: Path) -> None:
    path = used(tmp_path / "ledger.db")
    told: list[str] = []
    with opened(path, told) as ledger:
        with lock_held(path) as holder:
            store_chunk(ledger.session.tracker, 1_000, PRIMARY)
            while len(told) < 1:
                assert holder.holds()
            holder.let_go()
        settle(ledger.session)
    assert len(told) == 2
    assert "another process holds its lock" in told[0]
    assert told[1] == "the store takes commits again"
