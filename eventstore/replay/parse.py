"""A line of the log form back into what the log holds; changes with the form of the lines (`lines`, `words`)."""

import struct
from typing import Annotated, Any

import msgspec

from eventstore.domain.errors import BadInput
from eventstore.domain.events import (
    METADATA_ONLY,
    MOST_PLACES,
    PLACEHOLDER,
    REMOVAL_EXPECTED,
    REPEATED,
    UNMATCHED,
    End,
    Kind,
    PlaceRow,
    Reason,
    StreamBody,
    encode_body,
    locality_flag,
)
from eventstore.domain.key import check_key
from eventstore.domain.metadata import Metadata, pack
from eventstore.domain.place import Place, parse_locality, parse_medium

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Uint16 = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]


class SliceWords(msgspec.Struct, frozen=True):
    """What the file's first line says of all of it."""

    schema_version: int
    first: int = msgspec.field(name="from")
    last: int | None = msgspec.field(name="to")
    state_at: int | None = None
    media: list[str] = []
    groups: list[int] = []


class PlaceWords(msgspec.Struct, frozen=True, kw_only=True):
    """A place, with the number that events have it by in the store."""

    number: int = 0
    word: str = ""
    medium: str
    ownership: str | None
    reason: str = ""


class BatchWords(msgspec.Struct, frozen=True):
    """The batch that ends with the line's event."""

    first_seq: Int64
    epoch: Int64
    time_ns: Int64
    uptime_ns: Int64
    handed_out: Int64
    chain: str


class MetadataWords(msgspec.Struct, frozen=True):
    """A description."""

    block_hashes: list[str]
    parent_block_hash: str | None
    token_ids: list[Uint32]
    block_size: Uint32
    group_idx: Uint16
    kind: str | None
    sliding_window: int | None
    lora_id: int | None
    lora_name: str | None
    extra_keys: list[Any] | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event in words. Each kind has the fields that it needs."""

    stream: str
    seq: Int64
    time_ns: Int64
    kind: str
    sum: Uint32
    key: str = ""
    medium: str | None = None
    ownership: str | None = None
    locality: str | None = None
    removal_expected: bool = False
    repeated: bool = False
    placeholder: bool = False
    metadata_only: bool = False
    matched: bool = True
    reason: str = ""
    metadata: MetadataWords | None = None
    exact: str | None = None
    ends: list[PlaceWords] = []
    unconfirmed: list[PlaceWords] = []
    batch: BatchWords | None = None
    slice: SliceWords | None = None
    places: list[PlaceWords] = []


class Fact(msgspec.Struct, frozen=True):
    """What a line says, as the log has it: `key` in place of the chunk's number, empty for an event of the stream."""

    kind: Kind
    flags: int
    place: int
    key: bytes
    body: bytes


Numbers = dict[tuple[str, str | None], int]
_line_decoder = msgspec.json.Decoder(Line)


def parse_line(raw: bytes) -> Line:
    """The line that `raw` spells. Raises `BadInput` where it spells none."""
    try:
        return _line_decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise BadInput(f"no line of `kvledger replay --form log`: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"no line of JSON: {error}") from None


def parse_place(words: PlaceWords) -> PlaceRow:
    """The place that a line makes known."""
    if not 1 <= words.number <= MOST_PLACES:
        raise BadInput(f"place {words.number} is out of range")
    medium = parse_medium(words.word)
    if medium.value != words.medium:
        raise BadInput(f"calls place {words.number} {words.medium} and {words.word} at once")
    return PlaceRow(words.number, Place(medium, words.ownership), words.word)


def parse_fact(line: Line, raw: bytes, numbers: Numbers) -> Fact:
    """The fact that `line` tells; `raw` is all of it, `numbers` the places by medium and owner.

    Raises `BadInput` where it tells none.
    """
    kind = _word(Kind, line.kind)
    key = check_key(_hex(line.key)) if line.key else b""
    place = _number(line.medium, line.ownership, numbers) if line.medium is not None else 0
    return Fact(kind, _flags(kind, line), place, key, _body(kind, line, key, raw, numbers))


def _flags(kind: Kind, line: Line) -> int:
    if kind is Kind.CHUNK_STORED:
        flags = REMOVAL_EXPECTED * line.removal_expected | REPEATED * line.repeated | PLACEHOLDER * line.placeholder
        return flags | locality_flag(parse_locality(line.locality))
    if kind is Kind.CHUNK_REMOVED:
        flags = METADATA_ONLY * line.metadata_only | UNMATCHED * (not line.matched)
        return flags | locality_flag(parse_locality(line.locality))
    if kind in (Kind.RESIDENCY_CLOSED, Kind.RESIDENCY_CONFIRMED):
        return int(_word(Reason, line.reason))
    return 0


def _body(kind: Kind, line: Line, key: bytes, raw: bytes, numbers: Numbers) -> bytes:
    if line.exact is not None:
        return _hex(line.exact)
    if kind is Kind.CHUNK_DESCRIBED:
        return _packed(key, line.metadata) if line.metadata is not None else b""
    if kind in (Kind.CHUNK_STORED, Kind.CHUNK_REMOVED, Kind.RESIDENCY_CLOSED, Kind.RESIDENCY_CONFIRMED):
        return b""
    words = {name: value for name, value in msgspec.json.decode(raw).items() if name in StreamBody.__struct_fields__}
    words["ends"] = [End(_number(one.medium, one.ownership, numbers), _word(Reason, one.reason)) for one in line.ends]
    words["unconfirmed"] = [_number(one.medium, one.ownership, numbers) for one in line.unconfirmed]
    try:
        return encode_body(msgspec.convert(words, StreamBody))
    except msgspec.ValidationError as error:
        raise BadInput(f"no event of the stream: {error}") from None


def _packed(key: bytes, words: MetadataWords) -> bytes:
    parent = words.parent_block_hash
    try:
        return pack(
            key,
            Metadata(
                block_hashes=tuple(_hex(one) for one in words.block_hashes),
                parent_block_hash=_hex(parent) if parent is not None else None,
                token_ids=tuple(words.token_ids),
                block_size=words.block_size,
                group_idx=words.group_idx,
                kind=words.kind,
                sliding_window=words.sliding_window,
                lora_id=words.lora_id,
                lora_name=words.lora_name,
                extra_keys=words.extra_keys,
            ),
        )
    except (ValueError, OverflowError, struct.error) as error:
        raise BadInput(f"no description of a chunk: {error}") from None


def _number(medium: str | None, ownership: str | None, numbers: Numbers) -> int:
    number = numbers.get((str(medium), ownership))
    if number is None:
        raise BadInput(
            f"names the place {medium}{'/' + ownership if ownership else ''}, which no line before makes known"
        )
    return number


def _word(kind: Any, word: str) -> Any:
    found = kind.__members__.get(word.upper())
    if found is None:
        raise BadInput(f"{word!r} is no {kind.__name__.lower()}")
    return found


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadInput(f"{text[:80]!r} is not hex") from None
