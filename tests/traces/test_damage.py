"""Whatever is changed in the log, `verify` finds it and names the seq."""

import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine

from eventstore.domain.errors import StoreDamaged
from eventstore.log.strays import strays
from eventstore.log.stream import all_streams
from eventstore.log.verify import Finding, verify
from eventstore.storage.store import open_for_writing
from tests.traces.conftest import Drives
from tests.traces.damage import LOG, NOT_LOGGED, add_the_kinds_that_no_trace_has, cells, flips
from tests.traces.driving import Mode, document, kvledger

SEED = 11


@pytest.fixture(scope="module")
def store(driven: Drives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with every kind of event in it, as one file."""
    path = tmp_path_factory.mktemp("damage") / "store.db"
    source = driven("two_tier/small/1", Mode(crash=True)).store
    with closing(sqlite3.connect(source)) as driven_store, closing(sqlite3.connect(path)) as made:
        driven_store.backup(made)
    engine, _ = open_for_writing(str(path))
    add_the_kinds_that_no_trace_has(engine)
    engine.dispose()
    assert document("verify", "--store", path)["ok"]
    return path


@pytest.fixture(scope="module")
def opened(store: Path) -> Iterator[Engine]:
    engine, _ = open_for_writing(str(store))
    yield engine
    engine.dispose()


def findings(connection: Connection) -> list[Finding]:
    """What `verify` finds in the store as this connection sees it."""
    found = [finding for stream in all_streams(connection) for finding in verify(connection, stream).findings]
    return found + strays(connection)


def found_after(engine: Engine, statement: str, *values: object) -> list[Finding] | None:
    """What `verify` finds after a change that is not kept; None where the database refuses the change."""
    with engine.connect() as connection:
        try:
            changed = connection.exec_driver_sql(statement, values)
        except StoreDamaged:
            return None
        assert changed.rowcount >= 1, statement
        found = findings(connection)
        connection.rollback()
    return found


def test_any_value_of_the_log_that_is_changed_is_found_and_its_seq_named(opened: Engine) -> None:
    pick = random.Random(SEED)
    with opened.connect() as connection:
        some = list(cells(connection, pick, rows_a_table=5))
    assert {cell.table for cell in some} == set(LOG)
    for cell in some:
        for value in flips(cell.value, pick):
            change = f'UPDATE {cell.table} SET "{cell.column}" = ? WHERE {cell.where}'
            found = found_after(opened, change, value)
            if found is None:
                continue
            assert found, f"seed {SEED}: {cell} changed to {value!r} was not found"
            assert found[0].seq in cell.seqs, f"seed {SEED}: {cell} changed to {value!r} was named as {found[0]}"


def test_no_bit_of_one_column_makes_up_for_one_of_the_next(opened: Engine) -> None:
    """Kind, flags, place and chunk are one number in a checksum."""
    with opened.connect() as connection:
        seq, *values = connection.exec_driver_sql(
            "SELECT seq, kind, flags, place FROM event WHERE kind = 3 AND flags & 1 AND place & 1 = 0 LIMIT 1"
        ).one()
    for column, value in zip(("kind", "flags", "place"), values, strict=True):
        for bit in range(63):
            found = found_after(opened, f"UPDATE event SET {column} = ? WHERE seq = {seq}", value ^ 1 << bit)
            named = [finding.seq for finding in found or ()]
            assert named[:1] == [seq], f"{column} {value} with bit {bit} flipped"


@pytest.mark.parametrize("table", LOG)
def test_a_row_that_is_gone_is_found(opened: Engine, table: str) -> None:
    order, about = LOG[table]
    with opened.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY {order}").mappings().all()
    for row in random.Random(SEED).sample(rows, min(8, len(rows))):
        where = " AND ".join(f"{name} = {row[name]}" for name in ("stream", *order.split(", ")))
        found = found_after(opened, f"DELETE FROM {table} WHERE {where}")
        assert found, f"seed {SEED}: {table} without {dict(row)}"
        assert about is None or found[0].seq == row[about], f"seed {SEED}: {table} without {dict(row)}: {found[0]}"


@pytest.mark.parametrize(
    ("table", "key", "rest"),
    [
        ("event", "seq", "time_ns, kind, flags, place, chunk"),
        ("batch", "first_seq", "last_seq, epoch, time_ns, uptime_ns, handed_out, sums, chain"),
        ("payload", "seq", "body"),
        ("chunk", "chunk", 'wire, "key"'),
        ("place", "place", "medium, ownership, word, flagged"),
    ],
)
def test_two_rows_that_have_changed_places_are_found(opened: Engine, table: str, key: str, rest: str) -> None:
    with opened.connect() as connection:
        keys = list(connection.exec_driver_sql(f"SELECT {key} FROM {table} ORDER BY {key}").scalars())
        first, second = keys[0], keys[-1]
        connection.exec_driver_sql(
            f"UPDATE {table} SET ({rest}) = (SELECT {rest} FROM {table} AS o WHERE o.stream = {table}.stream"
            f" AND o.{key} = CASE {table}.{key} WHEN ?1 THEN ?2 ELSE ?1 END) WHERE {key} IN (?1, ?2)",
            (first, second),
        )
        found = findings(connection)
        connection.rollback()
    assert found
    assert table == "place" or found[0].seq == first


@pytest.mark.parametrize(
    "row",
    [
        "event VALUES (1, (SELECT last_seq + 1 FROM stream), 0, 3, 0, 1, 2)",
        "event VALUES (1, 0, 0, 3, 0, 1, 2)",
        "event VALUES (7, 1, 0, 3, 0, 1, 2)",
        "batch SELECT 1, last_seq + 1, last_seq + 1, epoch, 0, 0, 0, x'00000000', chain FROM stream",
        "batch VALUES (1, 40, 40, 1, 0, 0, 0, x'00000000', x'00')",
        "batch VALUES (1, -5, -5, 1, 0, 0, 0, x'00000000', x'00')",
        "batch VALUES (7, 1, 1, 1, 0, 0, 0, x'00000000', x'00')",
        "payload VALUES (1, 0, 3, x'00')",
        "payload VALUES (7, 0, 3, x'00')",
        "chunk VALUES (1, 999999, 0, x'000000000000000000000000')",
        "chunk VALUES (7, 1, 0, x'000000000000000000000000')",
        "place VALUES (1, 9, 'CPU', 'nobody', 'CPU', 0)",
        "place VALUES (7, 1, 'CPU', NULL, 'CPU', 0)",
    ],
)
def test_a_row_too_many_is_found(opened: Engine, row: str) -> None:
    assert found_after(opened, f"INSERT INTO {row}")


def test_the_command_exits_1_and_names_the_seq(store: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(store, tmp_path / "store.db"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE event SET time_ns = time_ns + 1 WHERE seq = 77")
        database.commit()
    found = document("verify", "--store", path, exits=1)
    code, said = kvledger("verify", "--store", path)
    assert [finding["seq"] for finding in found["streams"][0]["findings"]] == [77]
    assert (found["ok"], code, ", seq 77: " in said) == (False, 1, True)


def log_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that the log says, row by row out of the tables themselves."""
    with closing(sqlite3.connect(path)) as database:
        return {
            table: [
                tuple(row)
                for row in database.execute(f"SELECT {', '.join(columns(database, table))} FROM {table} NOT INDEXED")
            ]
            for table in LOG
        }


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    names = [f'"{name}"' for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    return [name for name in names if (table, name.strip('"')) not in NOT_LOGGED]


def is_closed_to_sqlite_too(path: Path) -> bool:
    """Whether SQLite itself cannot say which streams of which schema there are."""
    with closing(sqlite3.connect(path)) as database:
        try:
            revisions = list(database.execute("SELECT version_num FROM alembic_version"))
            list(database.execute("SELECT * FROM stream"))
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return True
    return len(revisions) != 1


def test_a_flipped_bit_in_the_file_is_found_or_says_nothing(store: Path, tmp_path: Path) -> None:
    """A page has free space in it, where a bit can flip and no row is another."""
    pick, whole, before = random.Random(SEED), store.read_bytes(), log_of(store)
    outcomes = Counter[int]()
    for number in range(200):
        at = pick.randrange(len(whole))
        path = tmp_path / f"{number}.db"
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1 << pick.randrange(8),)) + whole[at + 1 :])
        code, out = kvledger("verify", "--store", path, "--json")
        outcomes[code] += 1
        if code == 1:
            found = json.loads(out)
            named = [*found["strays"], *(one for stream in found["streams"] for one in stream["findings"])]
            assert min(finding["seq"] for finding in named) >= 1, f"seed {SEED}: byte {at}"
        elif code == 0:
            assert log_of(path) == before, f"seed {SEED}: byte {at}"
        else:
            assert is_closed_to_sqlite_too(path), f"seed {SEED}: byte {at} ended in {code}"
    assert outcomes[1] > 30, f"seed {SEED}: {outcomes}"
