"""From a request to a chunk's packed metadata, while the request is alive; changes with upstream's record calls.

What is captured is what upstream's `_build_event_metadata` and `_record_partial_tail` capture
(vllm/.../offloading/events.py, 0.32 and 0.33), as bytes.
"""

import msgspec

from eventstore.domain.metadata import HAS_LAST, Extras, Shape, shape
from tracker.calls import Group, Request


class _Layout(msgspec.Struct, frozen=True):
    """What all full chunks of one group share."""

    group: Group
    hashes_per_chunk: int
    tokens_per_chunk: int
    #: Request hashes a block: where groups have different block sizes, the last of each run is the block's hash.
    scale: int
    hash_size: int
    shape: Shape


class Capture:
    """Packs descriptions; keeps what chunks of a group have in common."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}

    def full(self, request: Request, group: Group, chunk_idx: int, key: bytes) -> bytes:
        """The packed metadata of chunk `chunk_idx` of `request` in `group`."""
        layout = self._layouts.get(group.group_idx)
        if layout is None or layout.group is not group:
            layout = self._layouts[group.group_idx] = _layout(request, group, chunk_idx)
        count = layout.hashes_per_chunk
        first = chunk_idx * count
        all_hashes = request.block_hashes
        hashes = all_hashes[first : first + count]
        start = chunk_idx * layout.tokens_per_chunk
        tokens = request.all_token_ids[start : start + layout.tokens_per_chunk]
        made = layout.shape
        if request.lora_request is not None or len(hashes[-1]) != layout.hash_size:
            made = _shape(request, group, len(hashes[-1]), count // layout.scale, len(tokens), group.tokens_per_block)
        if layout.scale > 1:
            hashes = hashes[layout.scale - 1 :: layout.scale]
        last = hashes[-1]
        if not key.startswith(last):
            return _with_last(made, all_hashes[first - 1] if first else None, hashes, tokens)
        if first:
            if count == 1:
                return made.with_parent + all_hashes[first - 1] + made.pack_tokens.pack(*tokens)
            return b"".join((made.with_parent, all_hashes[first - 1], *hashes[:-1], made.pack_tokens.pack(*tokens)))
        return b"".join((made.without_parent, *hashes[:-1], made.pack_tokens.pack(*tokens)))

    def partial(self, request: Request, group: Group, boundary_tokens: int, key: bytes) -> bytes:
        """The packed metadata of a partial tail that ends at `boundary_tokens`: only its valid hashes and tokens.

        The tail ends on a hash boundary, before its physical chunk is full.
        """
        tokens_per_hash = group.tokens_per_chunk // group.hashes_per_chunk
        # One less, so that a boundary on a chunk's edge does not select the chunk after it.
        start = (boundary_tokens - 1) // group.tokens_per_chunk * group.tokens_per_chunk
        first, end = start // tokens_per_hash, boundary_tokens // tokens_per_hash
        hashes = request.block_hashes[first:end]
        tokens = request.all_token_ids[start:boundary_tokens]
        parent = request.block_hashes[first - 1] if first else None
        made = _shape(request, group, len(hashes[-1]), len(hashes), len(tokens), tokens_per_hash)
        if not key.startswith(hashes[-1]):
            return _with_last(made, parent, hashes, tokens)
        header = made.without_parent if parent is None else made.with_parent
        return b"".join((header, parent or b"", *hashes[:-1], made.pack_tokens.pack(*tokens)))


def _layout(request: Request, group: Group, chunk_idx: int) -> _Layout:
    count = group.hashes_per_chunk
    blocks = group.tokens_per_chunk // group.tokens_per_block
    size = len(request.block_hashes[chunk_idx * count])
    return _Layout(
        group=group,
        hashes_per_chunk=count,
        tokens_per_chunk=group.tokens_per_chunk,
        scale=count // blocks,
        hash_size=size,
        shape=_shape(None, group, size, blocks, group.tokens_per_chunk, group.tokens_per_block),
    )


def _shape(request: Request | None, group: Group, size: int, hashes: int, tokens: int, block_size: int) -> Shape:
    spec = group.kv_event_group_spec
    lora = request.lora_request if request is not None else None
    extras = Extras(
        lora_id=lora.adapter_id if lora is not None else None,
        lora_name=lora.name if lora is not None else None,
        sliding_window=spec.kv_cache_spec_sliding_window,
    )
    return shape(size, hashes, tokens, block_size, group.group_idx, spec.kv_cache_spec_kind, extras)


def _with_last(made: Shape, parent: bytes | None, hashes: object, tokens: object) -> bytes:
    """For a key that does not begin with the chunk's last hash: all hashes are written out."""
    header = made.without_parent if parent is None else made.with_parent
    header = bytes((header[0], header[1] | HAS_LAST)) + header[2:]
    return b"".join((header, parent or b"", *hashes, made.pack_tokens.pack(*tokens)))  # type: ignore[misc]
