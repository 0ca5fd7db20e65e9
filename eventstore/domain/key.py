"""vLLM's OffloadKey: the last block hash of a chunk, then its KV-cache group; changes with vLLM's key layout.

The layout is that of `vllm/v1/kv_offload/base.py` (`make_offload_key`), 0.32 and 0.33.
"""

from eventstore.domain.errors import BadInput

GROUP_BYTES = 4
#: A wire hash is the low 64 bits of a block hash, so no hash is shorter than that.
SHORTEST = 8 + GROUP_BYTES
LONGEST = 255
#: Where in a key the wire hash of its chunk stands.
OWN_WIRE = slice(-8 - GROUP_BYTES, -GROUP_BYTES)


def block_hash(key: bytes) -> bytes:
    """The chunk's last block hash."""
    return key[:-GROUP_BYTES]


def group_index(key: bytes) -> int:
    """The KV-cache group that the chunk belongs to."""
    return int.from_bytes(key[-GROUP_BYTES:], "big")


def wire_hash(hash_bytes: bytes) -> int:
    """A block hash as events carry it: its low 64 bits, unsigned (vLLM's `maybe_convert_block_hash`)."""
    return int.from_bytes(hash_bytes[-8:], "big")


def parse_key(text: str) -> bytes:
    """The key that `text` spells in hex. Raises `BadInput` where it spells none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise BadInput(
            f"key {_shortened(text)} is not hex: give the block hash and the group index, as `residency` prints it"
        ) from None
    return check_key(key)


def check_key(key: bytes) -> bytes:
    """`key` itself where its length makes sense. Raises `BadInput` where it does not."""
    if not SHORTEST <= len(key) <= LONGEST:
        raise BadInput(
            f"key {_shortened(key.hex())} has {len(key)} bytes: a key is a block hash of at least 8 bytes"
            f" and a group index of {GROUP_BYTES}"
        )
    return key


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
