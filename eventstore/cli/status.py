"""`kvledger status`: where every stream of the store stands."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from eventstore.audit.tally import lost_events
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store
from eventstore.cli.reading import reading
from eventstore.domain import clock
from eventstore.domain.errors import LedgerError
from eventstore.domain.events import Kind
from eventstore.log.read import batches_backwards
from eventstore.log.stream import StreamRow, all_streams
from eventstore.recovery.epoch import last_start
from eventstore.storage.engine import open_engine
from eventstore.storage.migration import revision_of
from eventstore.storage.url import parse_store, show, store_path
from eventstore.views.residency import positions, resident_counts

NAME = "status"


def command(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Streams with their epochs, seqs, views, residents and gaps, and the size of the store."""
    url = parse_store(store)
    with reading(store) as connection:
        durable = _durable_seqs(store)
        streams = [_stream(connection, row, durable) for row in all_streams(connection)]
        found = {
            "store": show(url),
            "schema": revision_of(connection, show(url)),
            "bytes": _size(store_path(url)),
            "wal_bytes": _size(Path(f"{store_path(url)}-wal")),
            "journal_mode": connection.exec_driver_sql("PRAGMA journal_mode").scalar(),
            "streams": streams,
        }
    if as_json:
        render.document(found)
        return
    render.say(
        f"{found['store']}: schema {found['schema']}, {found['bytes']:,} bytes, WAL {found['wal_bytes']:,} bytes"
    )
    columns = [
        "stream",
        "state",
        "epoch",
        "last seq",
        "durable",
        "handed out",
        "views at",
        "resident",
        "gaps",
        "lost",
        "last commit",
    ]
    rows = [
        (
            one["stream"],
            one["state"],
            one["epoch"],
            one["last_seq"],
            one["durable_seq"],
            one["handed_out_seq"],
            ", ".join(f"{view} {seq}" for view, seq in one["views"].items()),
            ", ".join(f"{medium} {count}" for medium, count in one["resident"].items()) or "nothing",
            one["gaps"],
            one["lost"],
            one["last_commit"],
        )
        for one in streams
    ]
    render.table("", columns, rows)


def _durable_seqs(store: str) -> dict[str, int]:
    """By stream, the last seq that has reached the database file itself: a power cut cannot take it."""
    engine = open_engine(store, read_only=True, as_of_checkpoint=True)
    try:
        with engine.begin() as connection:
            return {row.name: row.last_seq for row in all_streams(connection)}
    except LedgerError:
        # Nothing was checkpointed yet, or a checkpoint is being written at this moment.
        return {}
    finally:
        engine.dispose()


def _stream(connection: Connection, row: StreamRow, durable: dict[str, int]) -> dict[str, Any]:
    last = next(batches_backwards(connection, row.stream), None)
    started = last_start(connection, row.stream)
    synchronous = started.synchronous if started is not None else ""
    views = positions(connection, row.stream)
    return {
        "stream": row.name,
        "state": _state(connection, row),
        "epoch": row.epoch,
        "floor_seq": row.floor_seq,
        "last_seq": row.last_seq,
        "durable_seq": row.last_seq if synchronous in ("full", "extra") else durable.get(row.name, 0),
        "synchronous": synchronous,
        "handed_out_seq": last.handed_out if last else 0,
        "last_commit": clock.iso(last.time_ns) if last else None,
        "last_commit_ns": last.time_ns if last else None,
        "views": views,
        "views_behind": row.last_seq - min(views.values(), default=row.last_seq),
        "resident": resident_counts(connection, row.stream),
        "gaps": _gaps(connection, row),
        "lost": lost_events(connection, row.stream),
        "ended_cleanly": _ended_cleanly(connection, row),
    }


def _state(connection: Connection, row: StreamRow) -> str:
    return str(connection.exec_driver_sql("SELECT state FROM streams WHERE stream = ?", (row.name,)).scalar_one())


def _gaps(connection: Connection, row: StreamRow) -> int:
    return int(connection.exec_driver_sql("SELECT count(*) FROM gaps WHERE stream = ?", (row.name,)).scalar_one())


def _ended_cleanly(connection: Connection, row: StreamRow) -> bool:
    last = connection.exec_driver_sql(
        "SELECT kind FROM event WHERE stream = ? AND seq = ?", (row.stream, row.last_seq)
    ).scalar()
    return last == Kind.EPOCH_ENDED


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
