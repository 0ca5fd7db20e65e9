"""`kvledger status`: where every stream of the store stands."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from eventstore.audit.tally import lost_events
from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store
from eventstore.cli.reading import reading
from eventstore.domain import clock
from eventstore.domain.events import Kind
from eventstore.log.read import batches_backwards, count_of
from eventstore.log.stream import StreamRow, all_streams
from eventstore.storage.migration import revision_of
from eventstore.storage.url import parse_store, show, store_path
from eventstore.views.residency import positions, resident_counts

NAME = "status"


def command(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Streams with their epochs, seqs, views, residents and gaps, and the size of the store."""
    url = parse_store(store)
    with reading(store) as connection:
        streams = [_stream(connection, row) for row in all_streams(connection)]
        found = {
            "store": show(url),
            "schema": revision_of(connection),
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
    columns = ["stream", "epoch", "last seq", "handed out", "views at", "resident", "gaps", "lost", "last commit"]
    rows = [
        (
            one["stream"],
            one["epoch"],
            one["last_seq"],
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


def _stream(connection: Connection, row: StreamRow) -> dict[str, Any]:
    last = next(batches_backwards(connection, row.stream), None)
    views = positions(connection, row.stream)
    return {
        "stream": row.name,
        "epoch": row.epoch,
        "floor_seq": row.floor_seq,
        "last_seq": row.last_seq,
        "handed_out_seq": last.handed_out if last else 0,
        "last_commit": clock.iso(last.time_ns) if last else None,
        "last_commit_ns": last.time_ns if last else None,
        "views": views,
        "views_behind": row.last_seq - min(views.values(), default=row.last_seq),
        "resident": resident_counts(connection, row.stream),
        "gaps": count_of(connection, row.stream, Kind.GAP),
        "lost": lost_events(connection, row.stream),
        "ended_cleanly": _ended_cleanly(connection, row),
    }


def _ended_cleanly(connection: Connection, row: StreamRow) -> bool:
    last = connection.exec_driver_sql(
        "SELECT kind FROM event WHERE stream = ? AND seq = ?", (row.stream, row.last_seq)
    ).scalar()
    return last == Kind.EPOCH_ENDED


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
