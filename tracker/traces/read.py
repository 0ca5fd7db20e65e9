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
from eventstore.domain.events import MOST_PLACES
from eventstore.domain.key import block_hash, check_key, group_index, parse_key
from eventstore.domain.place import parse_locality, parse_medium
from tracker.traces.calls import Call, Open, Record, RecordLookup, RecordStore, Reset, TakeEvents

_SUFFIX = ".calls.jsonl.gz"
_decoder = msgspec.json.Decoder(Call)


class Trace(msgspec.Struct, frozen=True):
    """A checked trace: its name, and the calls of each process that it recorded."""

    name: str
    processes: list[list[Call]]


def read_trace(path: Path) -> Trace:
    """The trace at `path`. Raises `TraceError` naming the first line that cannot be run."""
    processes: list[list[Call]] = []
    places: set[tuple[str, str | None]] = set()
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
            _check(call, places)
        except BadInput as error:
            raise TraceError(path, number, str(error)) from None
        processes[-1].append(call)
    if not processes:
        raise TraceError(path, None, "holds no call")
    name = path.name.removesuffix(_SUFFIX) if path.name.endswith(_SUFFIX) else path.name.split(".")[0]
    if not name:
        raise TraceError(path, None, "the file's name gives the stream none; a trace is NAME.calls.jsonl.gz")
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


def _check(call: Call, places: set[tuple[str, str | None]]) -> None:
    if isinstance(call, TakeEvents):
        for event in call.events:
            places.add((parse_medium(event.medium), event.ownership))
            if len(places) > MOST_PLACES:
                raise BadInput(f"one more place than the {MOST_PLACES} that a stream can have")
            parse_locality(event.locality)
            if event.ownership is not None and "\0" in event.ownership:
                raise BadInput("the owner's name holds a NUL character")
            for key in event.keys:
                parse_key(key)
    elif not isinstance(call, Open | Reset):
        _check_record(call)


def _check_record(call: Record) -> None:
    group = call.group
    if group.tokens_per_chunk % group.tokens_per_block:
        raise BadInput("the group's chunk is no whole number of blocks")
    whole, hashes_left = divmod(group.hashes_per_chunk, group.tokens_per_chunk // group.tokens_per_block)
    if not whole or hashes_left or group.tokens_per_chunk % group.hashes_per_chunk:
        raise BadInput("the group's hashes do not divide its chunk and its blocks evenly")
    key = parse_key(call.key)
    if group_index(key) != group.idx:
        raise BadInput(f"the key is of group {group_index(key)}, the call of group {group.idx}")
    hashes = [_hash(one) for one in call.block_hashes]
    parent = _hash(call.parent) if call.parent is not None else None
    if len({len(one) for one in [*hashes, *([parent] if parent else [])]}) > 1:
        raise BadInput("the chunk's hashes and its parent's differ in length")
    if isinstance(call, RecordStore | RecordLookup):
        blocks, tokens, first = group.tokens_per_chunk // group.tokens_per_block, group.tokens_per_chunk, call.chunk_idx
    else:
        tokens_per_hash = group.tokens_per_chunk // group.hashes_per_chunk
        first = (call.boundary_tokens - 1) // group.tokens_per_chunk
        tokens = call.boundary_tokens - first * group.tokens_per_chunk
        blocks = tokens // tokens_per_hash
        if tokens % tokens_per_hash:
            raise BadInput("a partial tail ends on a hash boundary")
    if len(hashes) != blocks or len(call.token_ids) != tokens:
        raise BadInput(
            f"the chunk has {blocks} hashes and {tokens} tokens, the line gives {len(hashes)} and {len(call.token_ids)}"
        )
    if block_hash(key) != hashes[-1]:
        raise BadInput("the key is not the chunk's last hash and its group")
    if (parent is None) != (first == 0):
        raise BadInput("the first chunk of a request has no parent, every other one has")


def _hash(text: str) -> bytes:
    try:
        return check_key(bytes.fromhex(text) + bytes(4))[:-4]
    except ValueError:
        raise BadInput(f"hash {text!r} is not hex") from None
