"""What describes a chunk, packed: the bytes kept in memory, written to the log and read back at recovery.

Layout of version 1, little-endian (a later version gets an upcast in `storage/upcast.py`; old ones are read for ever):

    header   12 bytes: version, flags, hash size, cache-spec kind, group index (2), number of hashes (2), block size (4)
    extras   2 bytes of length and msgpack, only with flag EXTRAS: LoRA, extra keys, sliding window, an unknown kind
    parent   one hash, only with flag PARENT
    hashes   all of the chunk's, without the last one, which is the key's (with flag LAST: the last one too)
    tokens   4 bytes each, big-endian like the hashes, so that one unpacking gives both; to the end

The fields are those of upstream's `_OffloadEventMetadata` (vllm/.../offloading/events.py).
"""

import struct
from typing import Any

import msgspec

from eventstore.domain.key import GROUP_BYTES

VERSION = 1
HAS_PARENT, HAS_EXTRAS, HAS_LAST, TOKENS_WITHHELD = 1, 2, 4, 8

#: vLLM's `KVCacheSpecKind` words by code, so that the usual ones cost one byte. Append only.
KINDS: tuple[str | None, ...] = (
    None,
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "sink_full_attention",
    "encoder_only_attention",
    "cross_attention",
    "unknown",
)
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
_KIND_IN_EXTRAS = 255

_HEADER = struct.Struct("<BBBBHHI")
HEADER_BYTES = _HEADER.size
_extras_encoder = msgspec.msgpack.Encoder()


class Extras(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that most chunks leave at their default."""

    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    sliding_window: int | None = None
    kind: str | None = None


NO_EXTRAS = Extras()
_extras_decoder = msgspec.msgpack.Decoder(Extras)


class Metadata(msgspec.Struct, frozen=True):
    """One chunk's description, unpacked. Hashes are bytes, tokens plain integers, block size in tokens."""

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None
    token_ids: tuple[int, ...]
    block_size: int
    group_idx: int
    kind: str | None = None
    sliding_window: int | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None


class Shape(msgspec.Struct, frozen=True):
    """What all chunks of one group, LoRA and size share: their header, made once."""

    with_parent: bytes
    without_parent: bytes
    pack_tokens: struct.Struct


def shape(
    hash_size: int,
    hashes: int,
    tokens: int,
    block_size: int,
    group_idx: int,
    kind: str | None = None,
    extras: Extras = NO_EXTRAS,
) -> Shape:
    """The shared part of chunks with `hashes` hashes of `hash_size` bytes and `tokens` token ids."""
    code = _KIND_CODES.get(kind, _KIND_IN_EXTRAS)
    if code == _KIND_IN_EXTRAS:
        extras = msgspec.structs.replace(extras, kind=kind)
    tail, flags = b"", 0
    if extras != NO_EXTRAS:
        body = _extras_encoder.encode(extras)
        tail, flags = struct.pack("<H", len(body)) + body, HAS_EXTRAS
    fields = (hash_size, code, group_idx, hashes, block_size)
    return Shape(
        with_parent=_HEADER.pack(VERSION, flags | HAS_PARENT, *fields) + tail,
        without_parent=_HEADER.pack(VERSION, flags, *fields) + tail,
        pack_tokens=struct.Struct(f">{tokens}I"),
    )


def pack(key: bytes, meta: Metadata) -> bytes:
    """`meta` as version 1 bytes. The hot path goes through `shape` instead; both give the same bytes."""
    if not meta.block_hashes:
        raise ValueError("a described chunk has at least one block hash")
    extras = Extras(meta.lora_id, meta.lora_name, meta.extra_keys, meta.sliding_window)
    made = shape(
        len(meta.block_hashes[-1]),
        len(meta.block_hashes),
        len(meta.token_ids),
        meta.block_size,
        meta.group_idx,
        meta.kind,
        extras,
    )
    header = made.with_parent if meta.parent_block_hash is not None else made.without_parent
    hashes = meta.block_hashes[:-1]
    if meta.block_hashes[-1] != key[:-GROUP_BYTES]:
        header = bytes((header[0], header[1] | HAS_LAST)) + header[2:]
        hashes = meta.block_hashes
    return b"".join((header, meta.parent_block_hash or b"", *hashes, made.pack_tokens.pack(*meta.token_ids)))


def hash_count(packed: bytes) -> int:
    """How many member hashes the chunk has; 1 for a chunk that was never described."""
    return int.from_bytes(packed[6:8], "little") if packed else 1


def without_tokens(packed: bytes) -> bytes:
    """The same description with the token ids left out, for stores that may not hold what users wrote."""
    if not packed:
        return packed
    end = _tokens_at(packed)
    return bytes((packed[0], packed[1] | TOKENS_WITHHELD)) + packed[2:end]


def _hashes_at(packed: bytes) -> int:
    at = _HEADER.size
    if packed[1] & HAS_EXTRAS:
        at += 2 + int.from_bytes(packed[at : at + 2], "little")
    if packed[1] & HAS_PARENT:
        at += packed[2]
    return at


def _tokens_at(packed: bytes) -> int:
    stored = hash_count(packed) - (0 if packed[1] & HAS_LAST else 1)
    return _hashes_at(packed) + stored * packed[2]


def unpack(key: bytes, packed: bytes) -> Metadata:
    """The description that `packed` holds. Raises `ValueError` for a version that this code does not know."""
    version, flags, size, code, group_idx, count, block_size = _HEADER.unpack_from(packed)
    if version != VERSION:
        raise ValueError(f"metadata of version {version}, this code reads up to {VERSION}")
    extras = NO_EXTRAS
    if flags & HAS_EXTRAS:
        start = _HEADER.size + 2
        extras = _extras_decoder.decode(packed[start : start + int.from_bytes(packed[start - 2 : start], "little")])
    first = _hashes_at(packed)
    tokens_at = first + (count if flags & HAS_LAST else count - 1) * size
    hashes = tuple(packed[at : at + size] for at in range(first, tokens_at, size))
    if not flags & HAS_LAST:
        hashes += (key[:-GROUP_BYTES],)
    return Metadata(
        block_hashes=hashes,
        parent_block_hash=packed[first - size : first] if flags & HAS_PARENT else None,
        token_ids=struct.unpack_from(f">{(len(packed) - tokens_at) // 4}I", packed, tokens_at),
        block_size=block_size,
        group_idx=group_idx,
        kind=extras.kind if code == _KIND_IN_EXTRAS else KINDS[code],
        sliding_window=extras.sliding_window,
        lora_id=extras.lora_id,
        lora_name=extras.lora_name,
        extra_keys=extras.extra_keys,
    )
