"""A batch as the append statement takes it, with its checksums and its link of the chain; changes with either.

Per event a CRC-32 over (seq, time, fact), the identity of its place, and the key and body that stand beside it: this
is what lets `verify` name the first bad seq. Per batch a BLAKE2b over the same bytes, the batch's own fields and the
hash of the batch before.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, repeat
from itertools import chain as chain_of
from operator import add

import msgspec

from eventstore.domain.events import PlaceRow
from eventstore.domain.key import OWN_WIRE

CHAIN_BYTES = 16
_event_bytes = struct.Struct("<qqq").pack
_batch_bytes = struct.Struct("<qqqqqq").pack
#: hashlib lets go of the GIL for 2,048 bytes and more, and each time waits to get it back from a busy engine thread.
#: So little is hashed in slices, but much at once: there the engine thread would wait longer than we do.
_SLICE, _WORTH_A_WAIT = 2_000, 256 * 1024
_NO_WIRE = bytes(8)


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
    rows: list[bytes] = []
    for first, time_ns, facts in steps:
        rows += map(_event_bytes, range(first, first + len(facts)), repeat(time_ns), facts)
    return rows


def checksum(row: bytes, place: int, beside: Described | None) -> int:
    """One event's checksum. `place` is its place's `place_sum`, 0 for none."""
    found = zlib.crc32(row, place)
    if beside is not None:
        found = zlib.crc32(beside.body, zlib.crc32(beside.key, found))
    return found


def checksums(rows: Sequence[bytes], places: Iterable[int], beside: Iterable[Described], first_seq: int) -> list[int]:
    """The checksums of events that follow each other from `first_seq` on."""
    crc32 = zlib.crc32
    sums = list(map(crc32, rows, places))
    for one in beside:
        at = one.seq - first_seq
        sums[at] = crc32(one.body, crc32(one.key, sums[at]))
    return sums


def pack_sums(sums: Sequence[int]) -> bytes:
    """Checksums as the batch row keeps them, 4 bytes each."""
    return struct.pack(f"<{len(sums)}I", *sums)


def unpack_sums(packed: bytes) -> tuple[int, ...]:
    """The checksums of a batch row; a damaged length gives those that are whole."""
    return struct.unpack_from(f"<{len(packed) // 4}I", packed)


def chain(previous: bytes, header: Header, rows: Sequence[bytes], beside: Iterable[Described]) -> bytes:
    """The link of one batch: a hash over all that it holds and the link before."""
    state = blake2b(previous, digest_size=CHAIN_BYTES, person=b"kvledger batch")
    parts = [_batch_bytes(*msgspec.structs.astuple(header)), *rows]
    for one in beside:
        parts += (_lengths(len(one.key), len(one.body)), one.key, one.body)
    _feed(state, b"".join(parts))
    return state.digest()


@lru_cache(maxsize=1_024)
def _lengths(key: int, body: int) -> bytes:
    return b"%d,%d," % (key, body)


def _feed(state: blake2b, data: bytes) -> None:
    if len(data) > _WORTH_A_WAIT:
        state.update(data)
        return
    for at in range(0, len(data), _SLICE):
        state.update(data[at : at + _SLICE])


def signed_wire(key: bytes) -> int:
    """A key's wire hash as SQLite's signed integer."""
    return signed_wires([key])[0]


def signed_wires(keys: Iterable[bytes]) -> tuple[int, ...]:
    """The wire hashes of many keys as SQLite's signed integers; 0 for an empty one, which names no chunk."""
    wires = [key[OWN_WIRE] or _NO_WIRE for key in keys]
    return struct.unpack(f">{len(wires)}q", b"".join(wires))


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
    keys, bodies = [one.key for one in beside], [one.body for one in beside]
    key_lengths, body_lengths = list(map(len, keys)), list(map(len, bodies))
    offsets = accumulate(map(add, key_lengths, body_lengths), initial=1)
    seqs, chunks = [one.seq for one in beside], [one.chunk for one in beside]
    rows = list(zip(seqs, chunks, offsets, body_lengths, key_lengths, signed_wires(keys), strict=False))
    return _json.encode(rows).decode(), b"".join(chain_of.from_iterable(zip(bodies, keys, strict=True)))
