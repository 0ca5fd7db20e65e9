"""The log as JSON lines, one event a line, in words; changes with that format (docs/replay.md)."""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection

from eventstore.domain import clock
from eventstore.domain.errors import BadInput
from eventstore.domain.events import (
    METADATA_ONLY,
    PLACEHOLDER,
    REMOVAL_EXPECTED,
    REPEATED,
    UNMATCHED,
    Event,
    Kind,
    PlaceRow,
    Reason,
    decode_body,
    locality_of,
)
from eventstore.domain.metadata import unpack
from eventstore.log.chunks import keys_of
from eventstore.log.read import page
from eventstore.log.stream import StreamRow, places_of

#: The version of the lines' form. A new field does not change it, a changed or missing one does.
SCHEMA_VERSION = 1

_encoder = msgspec.json.Encoder()


def slice_of(stream: StreamRow, first: int | None, last: int | None) -> tuple[int, int]:
    """The seqs from `first` to `last`, both included; None: from the floor, to the end.

    Raises `BadInput` where the log does not have them.
    """
    start = stream.floor_seq if first is None else first
    end = stream.last_seq if last is None else last
    if start < 1 or start > stream.last_seq + 1:
        raise BadInput(
            f"stream {stream.name!r} has no seq {start}: it goes from {stream.floor_seq} to {stream.last_seq}"
        )
    if start < stream.floor_seq:
        raise BadInput(f"stream {stream.name!r}: seq {start} was pruned, the floor is {stream.floor_seq}")
    if end < start - 1 or end > stream.last_seq:
        raise BadInput(f"stream {stream.name!r}: no slice from {start} to {end}; the log ends at {stream.last_seq}")
    return start, end


def lines(connection: Connection, stream: StreamRow, first: int, last: int) -> Iterator[bytes]:
    """Events `first` to `last` as JSON lines, read page by page; memory does not grow with the slice."""
    places = {row.number: row for row in places_of(connection, stream.stream)}
    after = first - 1
    while after < last and (events := page(connection, stream.stream, after, upto=last)):
        keys = keys_of(connection, stream.stream, {event.chunk for event in events if event.chunk})
        for event in events:
            yield _encoder.encode(as_words(event, stream.name, keys.get(event.chunk, b""), places)) + b"\n"
        after = events[-1].seq


def as_words(event: Event, stream: str, key: bytes, places: dict[int, PlaceRow]) -> dict[str, Any]:
    """One event as a person reads it: words for kinds, media and reasons, hex keys, times as ISO and nanoseconds."""
    line: dict[str, Any] = {
        "stream": stream,
        "seq": event.seq,
        "time": clock.iso(event.time_ns),
        "time_ns": event.time_ns,
        "kind": event.kind.name.lower(),
    }
    if event.chunk:
        line["key"] = key.hex()
    if event.place:
        place = places[event.place].place
        line |= {"medium": place.medium.value, "ownership": place.ownership}
    if event.kind in (Kind.CHUNK_STORED, Kind.CHUNK_REMOVED):
        locality = locality_of(event.flags)
        line["locality"] = locality.value if locality else None
    if event.kind is Kind.CHUNK_STORED:
        line["removal_expected"] = bool(event.flags & REMOVAL_EXPECTED)
        line["repeated"] = bool(event.flags & REPEATED)
        line["placeholder"] = bool(event.flags & PLACEHOLDER)
    elif event.kind is Kind.CHUNK_REMOVED:
        line["metadata_only"] = bool(event.flags & METADATA_ONLY)
        line["matched"] = not event.flags & UNMATCHED
    elif event.kind in (Kind.RESIDENCY_CLOSED, Kind.RESIDENCY_CONFIRMED):
        line["reason"] = Reason(event.flags).name.lower()
    elif event.kind is Kind.CHUNK_DESCRIBED:
        line["metadata"] = _metadata(key, event.body)
    else:
        line |= _stream_body(event, places)
    return line


def _metadata(key: bytes, packed: bytes) -> dict[str, Any] | None:
    if not packed:
        return None
    meta = unpack(key, packed)
    words = msgspec.to_builtins(meta)
    words["block_hashes"] = [one.hex() for one in meta.block_hashes]
    words["parent_block_hash"] = meta.parent_block_hash.hex() if meta.parent_block_hash is not None else None
    return dict(words)


def _stream_body(event: Event, places: dict[int, PlaceRow]) -> dict[str, Any]:
    body = decode_body(event.body)
    words: dict[str, Any] = msgspec.to_builtins(body)
    words.pop("ends", None)
    if event.kind in (Kind.EPOCH_STARTED, Kind.CACHE_RESET):
        words["ends"] = [
            {
                "medium": places[end.place].place.medium.value,
                "ownership": places[end.place].place.ownership,
                "reason": end.reason.name.lower(),
            }
            for end in body.ends
        ]
    return words
