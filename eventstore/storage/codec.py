"""A batch as the append statement takes it, with its checksums and its link of the chain; changes with either.

Per event a CRC-32 over (seq, time, fact), the identity of its place, and the key and body that stand beside it: this
is what lets `verify` name the first bad seq. Per batch a BLAKE2b over the same bytes, the batch's own fields and the
hash of the batch before.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from eventstore.domain.events import PlaceRow
from eventstore.domain.key import block_hash

CHAIN_BYTES = 16
_event_bytes = struct.Struct("<qqq").pack
_batch_bytes = struct.Struct("<qqqqqq").pack
#: hashlib lets go of the GIL for 2,048 bytes and more, and each time waits to get it back from a busy engine thread.
_SLICE = 2_000


class Described(msgspec.Struct, frozen=True):
    """What stands beside an event: a description or a stream event's body. `key` only where the chunk is named."""

    seq: int
    chunk: int
    body: bytes
    key: bytes = b""


class Header(msgspec.Struct, frozen=True):
    """A batch's own fields. Times in nanoseconds; `uptime_ns` is steady, since the epoch was opened."""

    first_seq: int
    last_seq: int
    epoch: int
    time_ns: int
    uptime_ns: int
    handed_out: int


def first_chain(name: str) -> bytes:
    """The chain value that a stream's first batch continues."""
    return blake2b(name.encode(), digest_size=CHAIN_BYTES, person=b"kvledger stream").digest()


def place_sum(medium: str, ownership: str | None, word: str) -> int:
    """What an event's checksum starts from, so that it covers what its place's number means."""
    owner = "\1" if ownership is None else ownership
    return zlib.crc32(f"{medium}\0{owner}\0{word}".encode())


def event_rows(steps: Iterable[tuple[int, int, Sequence[int]]]) -> list[bytes]:
    """The bytes that stand for each event of `steps`, (first seq, time_ns, facts) each."""
    return [
        _event_bytes(seq, time_ns, fact) for first, time_ns, facts in steps for seq, fact in enumerate(facts, first)
    ]


def checksum(row: bytes, place: int, beside: Described | None) -> int:
    """One event's checksum. `place` is its place's `place_sum`, 0 for none."""
    found = zlib.crc32(row, place)
    if beside is not None:
        found = zlib.crc32(beside.body, zlib.crc32(beside.key, found))
    return found


def pack_sums(sums: Sequence[int]) -> bytes:
    """Checksums as the batch row keeps them, 4 bytes each."""
    return struct.pack(f"<{len(sums)}I", *sums)


def unpack_sums(packed: bytes) -> tuple[int, ...]:
    """The checksums of a batch row; a damaged length gives those that are whole."""
    return struct.unpack_from(f"<{len(packed) // 4}I", packed)


def chain(previous: bytes, header: Header, rows: Iterable[bytes], beside: Iterable[Described]) -> bytes:
    """The link of one batch: a hash over all that it holds and the link before."""
    state = blake2b(previous, digest_size=CHAIN_BYTES, person=b"kvledger batch")
    state.update(_batch_bytes(*msgspec.structs.astuple(header)))
    _feed(state, b"".join(rows))
    for described in beside:
        _feed(state, b"%d,%d," % (len(described.key), len(described.body)) + described.key + described.body)
    return state.digest()


def _feed(state: blake2b, data: bytes) -> None:
    for at in range(0, len(data), _SLICE):
        state.update(data[at : at + _SLICE])


def signed_wire(key: bytes) -> int:
    """A key's wire hash as SQLite's signed integer."""
    return int.from_bytes(block_hash(key)[-8:], "big", signed=True)


_json = msgspec.json.Encoder()


def steps_json(steps: Sequence[tuple[int, int, Sequence[int]]]) -> str:
    """The append statement's `steps`."""
    return _json.encode(steps).decode()


def places_json(places: Sequence[PlaceRow]) -> str:
    """The append statement's `places`."""
    rows = [[r.number, r.place.medium.value, r.place.ownership, r.word, int(r.flagged)] for r in places]
    return _json.encode(rows).decode()


def bodies_json(beside: Sequence[Described]) -> tuple[str, bytes]:
    """The append statement's `descs` and `bodies`."""
    rows: list[list[int]] = []
    parts: list[bytes] = []
    at = 1
    for one in beside:
        rows.append([one.seq, one.chunk, at, len(one.body), len(one.key), signed_wire(one.key) if one.key else 0])
        parts += (one.body, one.key)
        at += len(one.body) + len(one.key)
    return _json.encode(rows).decode(), b"".join(parts)
