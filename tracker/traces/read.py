"""Reads a call trace and checks every line of it before anything is run; changes with what a trace may say.

Upstream asserts what is checked here (vllm/.../offloading/events.py), and a trace is a user's file: a bad line is
named, and nothing is written.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from eventstore.domain.errors import BadInput, TraceError
from eventstore.domain.key import check_key, parse_key
from eventstore.domain.place import parse_locality, parse_medium
from tracker.traces.calls import Call, Open, Record, RecordLookup, RecordStore, Reset, TakeEvents

_MOST_TOKEN = 2**32 - 1
_SUFFIX = ".calls.jsonl.gz"
_decoder = msgspec.json.Decoder(Call)


class Trace(msgspec.Struct, frozen=True):
    """A checked trace: its name, and the calls of each process that it recorded."""

    name: str
    processes: list[list[Call]]


def read_trace(path: Path) -> Trace:
    """The trace at `path`. Raises `TraceError` naming the first line that cannot be run."""
    processes: list[list[Call]] = []
    for number, line in enumerate(_lines(path), 1):
        try:
            call = _decoder.decode(line)
        except msgspec.ValidationError as error:
            raise TraceError(path, number, f"no call that can be run: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TraceError(path, number, f"not a line of JSON: {error}") from None
        if isinstance(call, Open):
            processes.append([])
        elif not processes:
            raise TraceError(path, number, "a trace begins with `open`, the start of a process")
        try:
            _check(call)
        except BadInput as error:
            raise TraceError(path, number, str(error)) from None
        processes[-1].append(call)
    if not processes:
        raise TraceError(path, None, "holds no call")
    name = path.name.removesuffix(_SUFFIX) if path.name.endswith(_SUFFIX) else path.name.split(".")[0]
    return Trace(name, processes)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                if line.strip():
                    yield line
    except gzip.BadGzipFile:
        raise TraceError(path, None, "not a gzip file; a trace is NAME.calls.jsonl.gz") from None
    except (EOFError, zlib.error):
        raise TraceError(path, None, "the gzip file is damaged or cut off") from None
    except OSError as error:
        raise TraceError(path, None, f"cannot be read: {error.strerror or error}") from None


def _check(call: Call) -> None:
    if isinstance(call, TakeEvents):
        for event in call.events:
            parse_medium(event.medium)
            parse_locality(event.locality)
            for key in event.keys:
                parse_key(key)
    elif not isinstance(call, Open | Reset):
        _check_record(call)


def _check_record(call: Record) -> None:
    group = call.group
    if min(group.tokens_per_block, group.tokens_per_chunk, group.hashes_per_chunk) <= 0 or group.idx < 0:
        raise BadInput("the group's sizes must be positive")
    if group.tokens_per_chunk % group.tokens_per_block:
        raise BadInput("the group's chunk is no whole number of blocks")
    parse_key(call.key)
    hashes = [_hash(one) for one in call.block_hashes]
    parent = _hash(call.parent) if call.parent is not None else None
    if len({len(one) for one in [*hashes, *([parent] if parent else [])]}) > 1:
        raise BadInput("the chunk's hashes and its parent's differ in length")
    if not all(0 <= token <= _MOST_TOKEN for token in call.token_ids):
        raise BadInput("a token id is no unsigned 32-bit number")
    if isinstance(call, RecordStore | RecordLookup):
        blocks, tokens, first = group.tokens_per_chunk // group.tokens_per_block, group.tokens_per_chunk, call.chunk_idx
    else:
        tokens_per_hash = group.tokens_per_chunk // group.hashes_per_chunk
        first = (call.boundary_tokens - 1) // group.tokens_per_chunk
        tokens = call.boundary_tokens - first * group.tokens_per_chunk
        blocks = tokens // tokens_per_hash
        if tokens % tokens_per_hash:
            raise BadInput("a partial tail ends on a hash boundary")
    if first < 0 or not hashes:
        raise BadInput("the chunk's position and hashes must be there")
    if len(hashes) != blocks or len(call.token_ids) != tokens:
        raise BadInput(
            f"the chunk has {blocks} hashes and {tokens} tokens, the line gives {len(hashes)} and {len(call.token_ids)}"
        )
    if (parent is None) != (first == 0):
        raise BadInput("the first chunk of a request has no parent, every other one has")


def _hash(text: str) -> bytes:
    try:
        return check_key(bytes.fromhex(text) + bytes(4))[:-4]
    except ValueError:
        raise BadInput(f"hash {text!r} is not hex") from None
