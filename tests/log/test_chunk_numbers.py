"""How the numbers of keys are found: by the index, however many chunks the stream has."""

from pathlib import Path
from typing import Any

from sqlalchemy import event

from eventstore.log.chunks import numbers_of
from eventstore.storage.store import open_for_writing
from tests.scheduler import make_hash, make_key


def test_a_key_is_looked_up_by_the_index_of_wire_hashes(tmp_path: Path) -> None:
    engine, _ = open_for_writing(str(tmp_path / "ledger.db"))
    sent: list[tuple[str, Any]] = []
    event.listen(engine, "before_cursor_execute", lambda c, cursor, sql, values, *_: sent.append((sql, values)))
    with engine.connect() as connection:
        numbers_of(connection, 1, [make_key(make_hash(1))])
        sql, values = sent[-1]
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    engine.dispose()
    # Any other way reads every chunk of the stream for every key.
    assert plan[-1] == "SEARCH c USING INDEX chunk_by_wire (stream=? AND wire=?)"
