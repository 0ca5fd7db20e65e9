"""From a request to a chunk's packed metadata, while the request is alive; changes with upstream's record calls.

What is captured is what upstream's `_build_event_metadata` and `_record_partial_tail` capture
(vllm/.../offloading/events.py, 0.32 and 0.33), as bytes.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from eventstore.domain.key import GROUP_BYTES
from eventstore.domain.metadata import HAS_LAST, Extras, Shape, shape
from tracker.calls import Group, Request


class _Layout(NamedTuple):
    """What all full chunks of one group share."""

    group: Group
    hashes: int
    tokens: int
    #: Request hashes a block: where groups have different block sizes, the last of each run is the block's hash.
    scale: int
    hash_size: int
    with_parent: bytes
    without_parent: bytes
    pack_tokens: Callable[..., bytes]


class Capture:
    """Packs descriptions; keeps what chunks of a group have in common."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}
        self._latest: _Layout | tuple[None] = (None,)

    def full(self, request: Request, group: Group, chunk_idx: int, key: bytes) -> bytes:
        """The packed metadata of chunk `chunk_idx` of `request` in `group`."""
        layout = self._latest
        if layout[0] is not group:
            layout = self._latest = self._layout(request, group, chunk_idx)
        _, count, tokens_per_chunk, scale, hash_size, with_parent, without_parent, pack_tokens = layout
        hashes = request.block_hashes
        first, start = chunk_idx * count, chunk_idx * tokens_per_chunk
        end = first + count - 1
        last = hashes[end]
        tokens = request.all_token_ids[start : start + tokens_per_chunk]
        if request.lora_request is not None or key[:-GROUP_BYTES] != last or len(last) != hash_size:
            members = hashes[first + scale - 1 : end + 1 : scale]
            made = _shape(request, group, len(last), len(members), len(tokens), group.tokens_per_block)
            return _pack(made, hashes[first - 1] if first else None, members, tokens, key)
        # The hash before the chunk's first one is its parent; the last one is the key's own.
        if scale > 1:
            others = hashes[first + scale - 1 : end : scale]
            if first:
                others = [hashes[first - 1], *others]
        elif count == 1 and first:
            # The commonest case by far.
            return b"".join((with_parent, hashes[first - 1], pack_tokens(*tokens)))
        else:
            others = hashes[first - 1 if first else 0 : end]
        return (with_parent if first else without_parent) + b"".join(others) + pack_tokens(*tokens)

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
        made = _shape(request, group, len(hashes[-1]), len(hashes), len(tokens), tokens_per_hash)
        return _pack(made, request.block_hashes[first - 1] if first else None, hashes, tokens, key)

    def _layout(self, request: Request, group: Group, chunk_idx: int) -> _Layout:
        layout = self._layouts.get(group.group_idx)
        if layout is None or layout.group is not group:
            layout = self._layouts[group.group_idx] = _layout(request, group, chunk_idx)
        return layout


def _layout(request: Request, group: Group, chunk_idx: int) -> _Layout:
    count = group.hashes_per_chunk
    blocks = group.tokens_per_chunk // group.tokens_per_block
    size = len(request.block_hashes[chunk_idx * count])
    made = _shape(None, group, size, blocks, group.tokens_per_chunk, group.tokens_per_block)
    return _Layout(
        group=group,
        hashes=count,
        tokens=group.tokens_per_chunk,
        scale=count // blocks,
        hash_size=size,
        with_parent=made.with_parent,
        without_parent=made.without_parent,
        pack_tokens=made.pack_tokens.pack,
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


def _pack(made: Shape, parent: bytes | None, hashes: Sequence[bytes], tokens: Sequence[int], key: bytes) -> bytes:
    header = made.without_parent if parent is None else made.with_parent
    if key[:-GROUP_BYTES] == hashes[-1]:
        hashes = hashes[:-1]
    else:
        # The key does not say the last hash, so all of them are written out.
        header = bytes((header[0], header[1] | HAS_LAST)) + header[2:]
    return b"".join((header, parent or b"", *hashes, made.pack_tokens.pack(*tokens)))
