"""`kvledger history`: the life of one chunk."""

from typing import Annotated, Any

import msgspec
import typer

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store, Stream
from eventstore.cli.reading import reading_stream
from eventstore.domain import clock
from eventstore.domain.key import block_hash, group_index, wire_hash
from eventstore.domain.metadata import unpack
from eventstore.log.naming import one, parse_name
from eventstore.views.history import Interval, descriptions, intervals

NAME = "history"


def command(
    chunk: Annotated[
        str,
        typer.Argument(
            metavar="CHUNK",
            help="Its key, or the hash of one of its blocks: in hex, or as KV events have it, a number.",
        ),
    ],
    store: Store = DEFAULT_STORE,
    stream: Stream = None,
    group: Annotated[
        int | None, typer.Option("--group", help="The KV-cache group, where chunks of several share the hash.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a chunk is, and each of its residencies from opening to end."""
    name = parse_name(chunk)
    with reading_stream(store, stream) as (connection, row):
        named = one(connection, row, name, group)
        wanted, number = named.key, named.number
        lives = [_words(life) for life in intervals(connection, row.stream, number)]
        described = descriptions(connection, row.stream, number)
    latest = next((unpack(wanted, body) for _, body in reversed(described) if body), None)
    found: dict[str, Any] = {
        "stream": row.name,
        "key": wanted.hex(),
        "wire": wire_hash(block_hash(wanted)),
        "group_idx": group_index(wanted),
        "first_seq": number,
        "described_at": [seq for seq, body in described if body],
        "metadata": None,
        "residencies": lives,
    }
    if latest is not None:
        found["metadata"] = msgspec.to_builtins(latest) | {
            "block_hashes": [block.hex() for block in latest.block_hashes],
            "parent_block_hash": latest.parent_block_hash.hex() if latest.parent_block_hash is not None else None,
        }
    if as_json:
        render.document(found)
        return
    what = f"{len(latest.token_ids)} tokens in {len(latest.block_hashes)} blocks" if latest else "never described"
    render.say(f"{wanted.hex()}: {what}; first named at seq {number}")
    columns = ["medium", "ownership", "opened seq", "opened", "closed seq", "closed", "reason"]
    names = ("medium", "ownership", "opened_seq", "opened", "closed_seq", "closed", "reason")
    render.table("", columns, ([life[column] for column in names] for life in lives))


def _words(one: Interval) -> dict[str, Any]:
    return {
        "medium": one.medium,
        "ownership": one.ownership,
        "opened_seq": one.opened_seq,
        "opened": clock.iso(one.opened_ns),
        "closed_seq": one.closed_seq,
        "closed": clock.iso(one.closed_ns) if one.closed_ns is not None else None,
        "reason": one.reason.name.lower() if one.reason is not None else None,
        "seconds": (one.closed_ns - one.opened_ns) / 1e9 if one.closed_ns is not None else None,
        "stores": one.stores,
    }
