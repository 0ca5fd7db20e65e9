"""What a ledger says once an engine has written it: read through its SQL views, as a person would, and checked."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from eventstore.log.stream import all_streams
from eventstore.log.verify import verify
from eventstore.storage.store import open_for_reading, open_for_writing
from eventstore.views.rebuild import rebuild
from tests.vllm.engine import Truth

#: (medium, ownership).
Where = tuple[str, str | None]

CPU: Where = ("CPU", None)


def query(store: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Rows of the store, beside a running engine or after it."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, parameters).fetchall()


def resident(store: Path) -> dict[Where, set[bytes]]:
    """The keys that the view `residency` has at each place."""
    found: dict[Where, set[bytes]] = {}
    for key, medium, owner in query(store, 'SELECT "key", medium, ownership FROM residency'):
        found.setdefault((medium, owner), set()).add(bytes.fromhex(key))
    return found


def held(truth: Truth, places: dict[str, Where]) -> dict[Where, set[bytes]]:
    """What the managers hold, by place; `places` says where a tier's chunks are. A place without chunks is left out."""
    by_place = {CPU: set(truth.cpu)} | {places[tier]: set(keys) for tier, keys in truth.tiers.items()}
    return {place: keys for place, keys in by_place.items() if keys}


def ends(store: Path) -> Counter[tuple[str, str | None, str]]:
    """How many residencies ended, by medium, owner and reason."""
    rows = query(store, "SELECT medium, ownership, reason FROM lifecycle WHERE reason IS NOT NULL")
    return Counter(rows)


def stored_undescribed(store: Path) -> set[bytes]:
    """The keys that were stored, at any time, while the log had no description of them."""
    rows = query(
        store,
        'SELECT DISTINCT e."key" FROM events AS e JOIN chunks AS c ON c.stream = e.stream AND c."key" = e."key"'
        " WHERE e.kind = 'chunk_stored' AND NOT EXISTS (SELECT 1 FROM payload AS p JOIN stream AS s"
        "   ON s.stream = p.stream WHERE s.name = e.stream AND p.chunk = c.chunk AND p.seq < e.seq"
        "   AND length(p.body) > 0)",
    )
    return {bytes.fromhex(key) for (key,) in rows}


def last_events(store: Path, count: int = 1) -> list[str]:
    """The kinds of the last events, the last one last."""
    return [kind for (kind,) in query(store, "SELECT kind FROM events ORDER BY seq DESC LIMIT ?", count)][::-1]


def assert_sound(store: Path) -> None:
    """The log is what was written, and its views are what it adds up to."""
    with _connection(open_for_reading(str(store))) as connection:
        for stream in all_streams(connection):
            assert verify(connection, stream).findings == []
    with _connection(open_for_writing(str(store))[0]) as connection:
        for stream in all_streams(connection):
            assert rebuild(connection, stream).changed == {"residency": 0, "lifecycle": 0}


@contextmanager
def _connection(engine: Any) -> Iterator[Any]:
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
