"""`eventstore.storage.schema`, which the code reads by, says what the migrations make."""

from typing import Any

import pytest
from sqlalchemy import Engine, Table, inspect
from sqlalchemy.engine.interfaces import ReflectedColumn

from eventstore.storage.schema import metadata
from eventstore.storage.store import open_for_reading
from tests.stores import make_store


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A reader of a new store."""
    engine = open_for_reading(str(make_store(tmp_path_factory.mktemp("schema") / "k.db")))
    yield engine
    engine.dispose()


def said(table: Table) -> dict[str, Any]:
    """A table as `schema.py` has it."""
    return {
        "columns": [(one.name, str(one.type), bool(one.nullable)) for one in table.columns],
        "primary key": [one.name for one in table.primary_key.columns],
        "unique": sorted(one.name for one in table.columns if one.unique),
        "indexes": {str(one.name): [column.name for column in one.columns] for one in table.indexes},
    }


def made(engine: Engine, name: str) -> dict[str, Any]:
    """The same table as the database has it."""
    found = inspect(engine)

    def column(one: ReflectedColumn) -> tuple[str, str, bool]:
        return one["name"], str(one["type"]), one["nullable"]

    return {
        "columns": [column(one) for one in found.get_columns(name)],
        "primary key": found.get_pk_constraint(name)["constrained_columns"],
        "unique": sorted(column for one in found.get_unique_constraints(name) for column in one["column_names"]),
        "indexes": {str(one["name"]): one["column_names"] for one in found.get_indexes(name)},
    }


def test_the_code_knows_every_table_and_no_other(migrated: Engine) -> None:
    assert set(inspect(migrated).get_table_names()) - {"alembic_version"} == set(metadata.tables)


@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_a_table_is_what_the_code_thinks_it_is(migrated: Engine, name: str) -> None:
    assert said(metadata.tables[name]) == made(migrated, name)


def test_every_table_is_strict(migrated: Engine) -> None:
    with migrated.begin() as connection:
        rows = connection.exec_driver_sql("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")
        types = {name: strict for name, strict in rows if name in metadata.tables}
    assert types == dict.fromkeys(metadata.tables, 1)
