"""One event of the log in words, with all that it takes to get the event back; changes with the form of the lines.

The words are for a person and for `import` alike: where they do not say everything (token ids withheld, a body of
another version), the bytes themselves stand beside them as `exact`.
"""

from typing import Any

import msgspec

from eventstore.domain import clock
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
    encode_body,
    locality_of,
)
from eventstore.domain.key import GROUP_BYTES
from eventstore.domain.metadata import HAS_PARENT, Metadata, pack, unpack


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
        line |= place_words(places[event.place])
    if event.kind is Kind.CHUNK_STORED:
        line |= stored_words(event.flags)
    elif event.kind is Kind.CHUNK_REMOVED:
        line["locality"] = locality_word(event.flags)
        line["metadata_only"] = bool(event.flags & METADATA_ONLY)
        line["matched"] = not event.flags & UNMATCHED
    elif event.kind in (Kind.RESIDENCY_CLOSED, Kind.RESIDENCY_CONFIRMED):
        line["reason"] = Reason(event.flags).name.lower()
    elif event.kind is Kind.CHUNK_DESCRIBED:
        line["metadata"] = metadata_words(key, event.body)
        if not _says_all(key, event.body):
            line["exact"] = event.body.hex()
    else:
        body = decode_body(event.body)
        line |= _body_words(event, places)
        if encode_body(body) != event.body:
            line["exact"] = event.body.hex()
    return line


def place_words(row: PlaceRow) -> dict[str, Any]:
    """A place as lines name it."""
    return {"medium": row.place.medium.value, "ownership": row.place.ownership}


def stored_words(flags: int) -> dict[str, Any]:
    """What a store's flags say."""
    return {
        "locality": locality_word(flags),
        "removal_expected": bool(flags & REMOVAL_EXPECTED),
        "repeated": bool(flags & REPEATED),
        "placeholder": bool(flags & PLACEHOLDER),
    }


def locality_word(flags: int) -> str | None:
    """The locality in an event's flags, as a word."""
    locality = locality_of(flags)
    return locality.value if locality else None


def metadata_words(key: bytes, packed: bytes) -> dict[str, Any] | None:
    """A description in words, hashes in hex; None for a chunk that is not described."""
    if not packed:
        return None
    meta = unpack(key, packed)
    words = {name: getattr(meta, name) for name in Metadata.__struct_fields__}
    words["token_ids"] = list(meta.token_ids)
    words["block_hashes"] = [one.hex() for one in meta.block_hashes]
    words["parent_block_hash"] = meta.parent_block_hash.hex() if meta.parent_block_hash is not None else None
    return words


def _says_all(key: bytes, packed: bytes) -> bool:
    """Whether a description can be made again from its words."""
    if not packed or (not packed[1] & ~HAS_PARENT and packed[2] == len(key) - GROUP_BYTES):
        return True  # the usual shape: no LoRA, no extra keys, no window, tokens not withheld
    try:
        # As JSON brings them back: what is no JSON (bytes among the extra keys) does not come back the same.
        meta = msgspec.structs.replace(
            unpack(key, packed), extra_keys=msgspec.json.decode(msgspec.json.encode(unpack(key, packed).extra_keys))
        )
    except (msgspec.MsgspecError, TypeError):
        return False
    return pack(key, meta) == packed


def _body_words(event: Event, places: dict[int, PlaceRow]) -> dict[str, Any]:
    body = decode_body(event.body)
    words: dict[str, Any] = msgspec.to_builtins(body)
    words.pop("ends", None)
    if event.kind in (Kind.EPOCH_STARTED, Kind.CACHE_RESET):
        words["ends"] = [place_words(places[end.place]) | {"reason": end.reason.name.lower()} for end in body.ends]
    if body.unconfirmed:
        words["unconfirmed"] = [place_words(places[number]) for number in body.unconfirmed]
    return words


def places_in(events: list[Event]) -> set[int]:
    """The numbers of all places that `events` name, in their bodies too."""
    numbers = {event.place for event in events if event.place}
    for event in events:
        if event.kind in (Kind.EPOCH_STARTED, Kind.CACHE_RESET):
            body = decode_body(event.body)
            numbers.update([end.place for end in body.ends], body.unconfirmed)
    return numbers
