"""Where a chunk can live: medium and owner, and what is remembered of a place; changes when vLLM gets new media.

A place is (medium, ownership) as in vLLM's events (`vllm/distributed/kv_events.py`): ownership names a secondary
tier, None is the primary. The locality is an attribute of an event and never inferred.
"""

import enum

import msgspec

from eventstore.domain.errors import BadInput


class Medium(enum.StrEnum):
    """The kinds of memory that hold KV blocks."""

    GPU = "GPU"
    CPU = "CPU"
    STORAGE = "STORAGE"


#: Words that earlier vLLM versions and neighbours use for the same media.
_SYNONYMS = {"FS": Medium.STORAGE, "OBJ": Medium.STORAGE, "DISK": Medium.STORAGE}


class Locality(enum.StrEnum):
    """Whether the tier's storage is the publisher's own or shared over a network."""

    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class Place(msgspec.Struct, frozen=True, order=True):
    """(medium, ownership). The primary places have no owner."""

    medium: Medium
    ownership: str | None = None

    def __str__(self) -> str:
        return self.medium.value if self.ownership is None else f"{self.medium.value}/{self.ownership}"


PRIMARY = Place(Medium.CPU)


def parse_medium(word: str) -> Medium:
    """The medium that `word` names in some version. Raises `BadInput` for a word nobody uses."""
    if word in Medium.__members__:
        return Medium(word)
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    raise BadInput(f"unknown medium {word!r}: expected one of {', '.join(m.value for m in Medium)}")


def parse_locality(word: str | None) -> Locality | None:
    """The locality that `word` names. Raises `BadInput` for another word."""
    if word is None:
        return None
    if word not in Locality.__members__:
        raise BadInput(f"unknown locality {word!r}: expected LOCAL or REMOTE")
    return Locality(word)
