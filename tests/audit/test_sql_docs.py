"""docs/sql.md says of every view and column what it is, and of no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from eventstore.storage.store import open_for_reading
from tests.audit.conftest import Tellings
from tests.benchmarks.big_store import make
from tests.documented import DOCS
from tests.facts import NAMES

#: How the writer puts a batch in: no view for people.
NOT_FOR_PEOPLE = {"append"}

_SECTION = re.compile(r"^## `(\w+)`$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^\| `(\w+)` \| (text|integer|real) \| (.+) \|$", re.MULTILINE)
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def documented() -> dict[str, dict[str, str]]:
    """Every column's type, by view, in the page's order."""
    text = (DOCS / "sql.md").read_text(encoding="utf-8")
    return {view: {name: kind for name, kind, _ in _COLUMN.findall(body)} for view, body in _SECTION.findall(text)}


DOCUMENTED = documented()
TIMES = [
    (view, name.removesuffix("_ns")) for view, columns in DOCUMENTED.items() for name in columns if name.endswith("_ns")
]


@pytest.fixture(scope="module")
def stores(told: Tellings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Connection]]:
    """The recorded engines, and one that had a gap, resets, clean ends and three places."""
    made = tmp_path_factory.mktemp("big") / "big.db"
    make(made, 20_000)
    engines = [open_for_reading(str(path)) for path in [*(told(name).store for name in NAMES), Path(made)]]
    connections = [engine.connect() for engine in engines]
    yield connections
    for connection, engine in zip(connections, engines, strict=True):
        connection.close()
        engine.dispose()


def test_every_view_is_documented_and_no_other(stores: list[Connection]) -> None:
    there = set(stores[0].exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'view'").scalars())
    assert set(DOCUMENTED) == there - NOT_FOR_PEOPLE


@pytest.mark.parametrize("view", sorted(DOCUMENTED))
def test_every_column_is_documented_in_its_order_and_no_other(stores: list[Connection], view: str) -> None:
    columns = stores[0].exec_driver_sql("SELECT name FROM pragma_table_info(?)", (view,)).scalars()
    assert list(DOCUMENTED[view]) == list(columns)


@pytest.mark.parametrize(
    ("view", "column", "kind"), [(v, name, kind) for v, columns in DOCUMENTED.items() for name, kind in columns.items()]
)
def test_a_column_holds_the_documented_type(stores: list[Connection], view: str, column: str, kind: str) -> None:
    found: set[str] = set()
    for connection in stores:
        found |= set(
            connection.exec_driver_sql(
                f'SELECT DISTINCT typeof("{column}") FROM (SELECT "{column}" FROM {view} LIMIT 5000)'
            ).scalars()
        )
    assert found - {"null"} == {kind}


@pytest.mark.parametrize(("view", "name"), TIMES)
def test_a_time_is_there_as_text_and_as_nanoseconds_of_the_same_moment(
    stores: list[Connection], view: str, name: str
) -> None:
    seen = 0
    for connection in stores:
        for text, time_ns, milliseconds in connection.exec_driver_sql(
            f'SELECT "{name}", {name}_ns, CAST(round((julianday("{name}") - 2440587.5) * 86400000) AS INTEGER)'
            f" FROM {view} WHERE {name}_ns IS NOT NULL LIMIT 200"
        ):
            assert _ISO.fullmatch(text)
            assert abs(milliseconds - time_ns / 1e6) <= 1
            seen += 1
    assert seen
