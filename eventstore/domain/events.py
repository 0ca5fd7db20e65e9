"""The kinds of event in the log and how one fits in an integer; changes when the log learns a new fact.

A row of the log names its chunk and its place by number. What does not fit a row (a description, the body of an event
about the stream) stands beside it, under the same seq.
"""

import enum
from typing import Any

import msgspec

from eventstore.domain.place import Locality, Place


class Kind(enum.IntEnum):
    """What happened. The numbers are in users' stores: append only."""

    EPOCH_STARTED = 1
    CHUNK_DESCRIBED = 2
    CHUNK_STORED = 3
    CHUNK_REMOVED = 4
    RESIDENCY_CLOSED = 5
    RESIDENCY_CONFIRMED = 6
    CACHE_RESET = 7
    GAP = 8
    EPOCH_ENDED = 9


class Reason(enum.IntEnum):
    """Why a residency ended (or, for a confirmation, why we looked). In users' stores: append only."""

    EVICTED = 1
    DEMOTED = 2
    METADATA_ONLY = 3
    ENGINE_RESTART = 4
    CONFIG_CHANGED = 5
    TIER_REMOVED = 6
    CACHE_RESET = 7
    MISSING = 8
    EXPIRED = 9
    RESTATED = 10


# Flags of `chunk_stored` and `chunk_removed`; `residency_closed` and `residency_confirmed` carry a Reason there.
REMOVAL_EXPECTED = METADATA_ONLY = 1
#: Memory knew the chunk to be there already (stored) or knew it not to be there (removed): nothing was published.
REPEATED = UNMATCHED = 2
#: Published without tokens, since the chunk was not described.
PLACEHOLDER = 4
LOCALITY_SHIFT = 3

_LOCALITIES = (None, Locality.LOCAL, Locality.REMOTE)
_LOCALITY_CODES = {None: 0, Locality.LOCAL: 1 << LOCALITY_SHIFT, Locality.REMOTE: 2 << LOCALITY_SHIFT}

KIND_BITS, FLAG_BITS, PLACE_BITS = 4, 6, 10
PLACE_SHIFT = KIND_BITS + FLAG_BITS
CHUNK_SHIFT = PLACE_SHIFT + PLACE_BITS
#: Place 0 means none, so a stream can have this many.
MOST_PLACES = (1 << PLACE_BITS) - 1


def locality_flag(locality: Locality | None) -> int:
    """The flag bits of a locality."""
    return _LOCALITY_CODES[locality]


def locality_of(flags: int) -> Locality | None:
    """The locality in an event's flags."""
    return _LOCALITIES[flags >> LOCALITY_SHIFT & 3]


def pack_fact(kind: int, flags: int = 0, place: int = 0, chunk: int = 0) -> int:
    """One event's row as one integer, as the append statement takes it. 63 bits, 43 of them the chunk's number."""
    return chunk << CHUNK_SHIFT | place << PLACE_SHIFT | flags << KIND_BITS | kind


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of the log. `time_ns` is UTC; `chunk` and `place` are the stream's numbers, 0 for none.

    `body` is the packed metadata of a `chunk_described`, and msgpack-free JSON for an event about the stream.
    """

    seq: int
    time_ns: int
    kind: Kind
    flags: int = 0
    place: int = 0
    chunk: int = 0
    body: bytes = b""


class End(msgspec.Struct, frozen=True):
    """Every residency at a place ends, as part of a fact about the stream."""

    place: int
    reason: Reason


class StreamBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an event about the stream carries; each kind uses the fields that it needs."""

    epoch: int = 0
    boot_id: str = ""
    host: str = ""
    pid: int = 0
    versions: dict[str, str] = {}
    fingerprint: dict[str, Any] = {}
    policies: dict[str, Any] = {}
    announce: str = ""
    synchronous: str = ""
    continues: str = ""
    ends: list[End] = []
    #: Places whose survivors are unconfirmed until their tier has been asked.
    unconfirmed: list[int] = []
    lost: int = 0
    since_ns: int = 0
    reason: str = ""


_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(StreamBody)


def encode_body(body: StreamBody) -> bytes:
    """A stream event's body as JSON."""
    return _encoder.encode(body)


def decode_body(raw: bytes) -> StreamBody:
    """The body of a stream event. Raises `msgspec.DecodeError` where the bytes are damaged."""
    return _decoder.decode(raw or b"{}")


class PlaceRow(msgspec.Struct, frozen=True):
    """A place's number in its stream, the medium's word as the engine first gave it, and whether a store there ever
    carried `removal_expected`."""

    number: int
    place: Place
    word: str
    flagged: bool = False
