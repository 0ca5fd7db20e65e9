"""How a person names a chunk: its key, a block hash, or the integer that routers know; changes when there is another
name for one.
"""

import re

import msgspec
from sqlalchemy import Connection

from eventstore.domain.errors import BadInput
from eventstore.domain.key import GROUP_BYTES, LONGEST, SHORTEST, block_hash, group_index, wire_hash
from eventstore.domain.metadata import unpack
from eventstore.log.stream import StreamRow

_MOST_WIRE = 2**64 - 1
_WIRE = re.compile(r"0[xX][0-9a-fA-F]{1,16}|-?[0-9]{1,20}")

# The index is named because SQLite without statistics would read all chunks of the stream.
_BY_WIRE = 'SELECT chunk, "key" FROM chunk INDEXED BY chunk_by_wire WHERE stream = ? AND wire = ? ORDER BY chunk'
_BY_MEMBER = (
    'SELECT DISTINCT d.chunk, c."key", d.body FROM payload AS d'
    " JOIN chunk AS c ON c.stream = d.stream AND c.chunk = d.chunk"
    " WHERE d.stream = ? AND d.chunk > 0 AND instr(d.body, ?) > 0 ORDER BY d.chunk, d.seq"
)


class Name(msgspec.Struct, frozen=True):
    """What a person said: `said` as it was, `raw` bytes of a key or a block hash, or `wire`, a 64-bit integer."""

    said: str
    raw: bytes = b""
    wire: int = 0


class Named(msgspec.Struct, frozen=True):
    """A chunk that a name means. `member`: the name is of one of its blocks before the last."""

    number: int
    key: bytes
    member: bool = False


def parse_name(text: str) -> Name:
    """The name that `text` is. Up to 20 decimal digits, or up to 16 hex digits after 0x, are the wire integer (a
    negative one as SQL shows it); anything else is hex. Raises `BadInput` where it is neither."""
    if _WIRE.fullmatch(text):
        value = int(text, 16 if text[:2].lower() == "0x" else 10)
        if not -(2**63) <= value <= _MOST_WIRE:
            raise BadInput(f"{text} is no 64-bit hash: the largest is {_MOST_WIRE}")
        return Name(text, wire=value & _MOST_WIRE)
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise BadInput(
            f"{text!r} names no chunk: give its key or a block hash in hex, or the 64-bit hash of KV events as a number"
        ) from None
    if not SHORTEST - GROUP_BYTES <= len(raw) <= LONGEST:
        raise BadInput(
            f"{text!r} has {len(raw)} bytes: a block hash has at least {SHORTEST - GROUP_BYTES},"
            f" a key {GROUP_BYTES} more"
        )
    return Name(text, raw)


def find(connection: Connection, stream: StreamRow, name: Name) -> list[Named]:
    """The chunks that `name` means, by number.

    By an index where it names the chunk or its last block. Only where nothing is found so, all descriptions are read
    for a chunk with such a block further in: about a second for a million chunks.
    """
    if name.raw:
        wires = {wire_hash(name.raw), wire_hash(block_hash(name.raw))}
    else:
        wires = {name.wire}
    found = {
        number: key
        for wire in wires
        for number, key in connection.exec_driver_sql(_BY_WIRE, (stream.stream, _signed(wire)))
        if not name.raw or name.raw in (key, block_hash(key))
    }
    # A whole key is meant as one, though its bytes could be another chunk's longer hash.
    exact = {number: key for number, key in found.items() if key == name.raw}
    chosen = sorted((exact or found).items())
    return [Named(number, key) for number, key in chosen] or _members(connection, stream, name)


def one(connection: Connection, stream: StreamRow, name: Name, group: int | None = None) -> Named:
    """The one chunk that `name` means, of KV-cache group `group` if one is given.

    Raises `BadInput` where there is none, and where there are several, with their keys to choose from.
    """
    named = find(connection, stream, name)
    chosen = [one for one in named if group is None or group_index(one.key) == group]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        which = f" of group {group}" if group is not None and named else ""
        raise BadInput(f"stream {stream.name!r} has never heard of a chunk{which} {name.said}")
    keys = ", ".join(f"{one.key.hex()} (group {group_index(one.key)})" for one in chosen[:10])
    more = f" and {len(chosen) - 10} more" if len(chosen) > 10 else ""
    raise BadInput(f"{name.said} means {len(chosen)} chunks; name one by its key, or use --group: {keys}{more}")


def _members(connection: Connection, stream: StreamRow, name: Name) -> list[Named]:
    sought = name.raw or name.wire.to_bytes(8, "big")
    found = {}
    for number, key, body in connection.exec_driver_sql(_BY_MEMBER, (stream.stream, sought)):
        hashes = unpack(key, body).block_hashes
        if any(one == name.raw if name.raw else wire_hash(one) == name.wire for one in hashes):
            found[number] = key
    return [Named(number, key, member=True) for number, key in sorted(found.items())]


def _signed(wire: int) -> int:
    return wire - 2**64 if wire >= 2**63 else wire
