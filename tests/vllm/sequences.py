"""Sequences of a scheduler's calls on its tracker, as Hypothesis draws them; changes when there is one more thing to
draw.

The chunks are of prompts that share a prefix, in groups of every kind: several hashes a chunk and one, blocks wider
than a hash, a sliding window, partial tails, LoRA, what a cache can be called.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from hypothesis import strategies as st

from eventstore.domain.place import Medium
from eventstore.domain.place import Place as LedgerPlace
from eventstore.domain.policy import PolicyTable, TierPolicy
from tests.scheduler import GroupSpec, Layout, LoRA, Prompt, make_key
from tracker.settings import Announce, Publish

TOKENS_PER_HASH = 4


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=32).digest()


def _prompt(names: str, lora: LoRA | None = None) -> Prompt:
    """A prompt with one hash for each letter. What two prompts begin with in common, they share."""
    tokens = [1_000 * ord(letter) + at for letter in names for at in range(TOKENS_PER_HASH)]
    return Prompt([_hash(names[: at + 1] + str(lora and lora.name)) for at in range(len(names))], tokens, lora)


# A prompt more than once: the same adapter loaded again has another id, and the chunk's key stays the same.
PLAIN = (_prompt("abcdefgh"),)
FORKED = (_prompt("abcxyzuv"),)
ADAPTED = (_prompt("abcdefgh", LoRA(7, "poet")), _prompt("abcdefgh", LoRA(8, "poet")))
PROMPTS = (PLAIN, FORKED, ADAPTED)

FULL = Layout(0, 4, 8, 2)
WINDOWED = Layout(1, 4, 8, 2, sliding_window_size_in_chunks=2, kv_event_group_spec=GroupSpec("sliding_window", 16))
WIDE = Layout(2, 8, 16, 4)
SINGLE = Layout(3, 4, 4, 1, kv_event_group_spec=GroupSpec("full_attention", 64))
RECURRENT = Layout(4, 16, 16, 4, kv_event_group_spec=GroupSpec("mamba"))
NOVEL = Layout(5, 4, 8, 2, kv_event_group_spec=GroupSpec("not_heard_of_yet"))
GROUPS = (FULL, WINDOWED, WIDE, SINGLE, RECURRENT, NOVEL)


@dataclass(frozen=True, repr=False, eq=False)
class Chunk:
    """A chunk that calls can name. `at`: its index, or the boundary of a partial tail, in tokens. Equal is the same."""

    prompts: tuple[Prompt, ...]
    group: Layout
    at: int
    partial: bool = False

    @cached_property
    def key(self) -> bytes:
        """vLLM's OffloadKey."""
        hashes = self.at // TOKENS_PER_HASH if self.partial else (self.at + 1) * self.group.hashes_per_chunk
        return make_key(self.prompts[0].block_hashes[hashes - 1], self.group.group_idx)

    def __repr__(self) -> str:
        kind = "tail" if self.partial else "chunk"
        return f"<{kind} {self.at} of group {self.group.group_idx}, prompt {PROMPTS.index(self.prompts)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """So that Hypothesis names it instead of spelling out its tokens."""
        printer.text(repr(self))

    @property
    def is_describable(self) -> bool:
        """Groups with a sliding window are not described."""
        return self.group.sliding_window_size_in_chunks is None


CHUNKS = (
    *(Chunk(PLAIN, FULL, at) for at in (0, 1, 2)),
    *(Chunk(FORKED, FULL, at) for at in (1, 2)),
    *(Chunk(ADAPTED, FULL, at) for at in (0, 1)),
    *(Chunk(PLAIN, WINDOWED, at) for at in (0, 1)),
    *(Chunk(prompt, WIDE, at) for prompt in (PLAIN, FORKED) for at in (0, 1)),
    *(Chunk(PLAIN, SINGLE, at) for at in (0, 1, 2)),
    Chunk(ADAPTED, SINGLE, 1),
    *(Chunk(PLAIN, RECURRENT, at, partial=True) for at in (8, 12, 16, 20)),
    Chunk(FORKED, RECURRENT, 20, partial=True),
    Chunk(PLAIN, RECURRENT, 1),
    Chunk(PLAIN, WINDOWED, 4, partial=True),
    Chunk(FORKED, NOVEL, 1),
)

#: (medium, ownership).
Place = tuple[str, str | None]
PRIMARY: Place = ("CPU", None)
PLACES: tuple[Place, ...] = (PRIMARY, ("CPU", "peer"), ("STORAGE", "nvme0"), ("STORAGE", "s3"), ("STORAGE", None))
#: What a user can say of them.
POLICIES: tuple[dict[Place, bool], ...] = ({}, {("STORAGE", "s3"): False, ("STORAGE", None): True})
LOCALITIES = (None, "LOCAL", "REMOTE")


@dataclass(frozen=True)
class Record:
    """One of the four record calls. `variant`: which of the chunk's prompts it comes with."""

    store: bool
    chunk: Chunk
    variant: int


@dataclass(frozen=True)
class Raw:
    """A tier's event."""

    removed: bool
    place: Place
    chunks: tuple[Chunk, ...]
    flag: bool
    locality: str | None
    metadata_only: bool


@dataclass(frozen=True)
class Take:
    """A call of `take_events`."""

    events: tuple[Raw, ...]


@dataclass(frozen=True)
class Reset:
    """A call of `reset`."""


Call = Record | Take | Reset


@dataclass(frozen=True)
class Sequence:
    """How a tracker is made, and what is asked of it."""

    self_describing: bool
    integer_hashes: bool
    announce: Announce
    publish: Publish
    #: Whether metadata that nothing holds is kept.
    retains: bool
    record_window: int
    #: By place, whether removals are announced there, where a user said so.
    policies: dict[Place, bool]
    calls: tuple[Call, ...]

    def policy_table(self) -> PolicyTable:
        """The policies as settings have them."""
        return PolicyTable(
            {LedgerPlace(Medium(medium), owner): TierPolicy(says) for (medium, owner), says in self.policies.items()}
        )


def sequences(publish: Publish, *, metadata_only: bool) -> st.SearchStrategy[Sequence]:
    """Sequences of up to 30 calls about a few chunks. `metadata_only`: whether this vLLM has such removals."""
    # Numbers, made into chunks of a small pool afterwards: calls that meet are what matters.
    numbers = st.integers(0, 5)
    record = st.builds(_Drawn, st.just("record"), st.booleans(), numbers, st.integers(0, 1))
    event = st.tuples(
        st.booleans(),
        st.sampled_from((PRIMARY, *PLACES)),
        st.lists(numbers, min_size=1, max_size=3),
        st.booleans(),
        st.sampled_from(LOCALITIES),
        st.sampled_from((False, False, metadata_only)),
    )
    take = st.builds(_Drawn, st.just("take"), events=st.lists(event, max_size=4))
    reset = st.builds(_Drawn, st.just("reset"))
    return st.builds(
        _sequence,
        st.just(publish),
        st.sampled_from((True, True, True, False)),
        st.booleans(),
        st.sampled_from(_ANNOUNCES),
        st.sampled_from(_MEMORIES),
        st.lists(st.sampled_from(CHUNKS), min_size=1, max_size=6),
        st.lists(st.one_of(record, record, take, take, take, reset), min_size=1, max_size=30),
    )


_ANNOUNCES: tuple[Announce, ...] = ("full", "full", "closes", "none")
#: Whether metadata that nothing holds is kept, how many record calls hold, and what is said of places.
_MEMORIES = ((True, 65_536, 0), (True, 65_536, 0), (True, 65_536, 1), (True, 2, 0), (False, 65_536, 0))


@dataclass(frozen=True)
class _Drawn:
    call: str
    store: bool = False
    number: int = 0
    variant: int = 0
    events: Iterable[tuple[bool, Place, list[int], bool, str | None, bool]] = ()

    def call_on(self, pool: list[Chunk]) -> Call:
        if self.call == "reset":
            return Reset()
        if self.call == "record":
            chunk = pool[self.number % len(pool)]
            return Record(self.store, chunk, self.variant % len(chunk.prompts))
        return Take(
            tuple(
                Raw(
                    removed,
                    place,
                    tuple(pool[at % len(pool)] for at in numbers),
                    flag and not removed,
                    locality,
                    metadata_only and removed,
                )
                for removed, place, numbers, flag, locality, metadata_only in self.events
            )
        )


def _sequence(
    publish: Publish,
    self_describing: bool,
    integer_hashes: bool,
    announce: Announce,
    memory: tuple[bool, int, int],
    pool: list[Chunk],
    drawn: list[_Drawn],
) -> Sequence:
    retains, window, policies = memory
    calls = tuple(one.call_on(pool) for one in drawn)
    return Sequence(self_describing, integer_hashes, announce, publish, retains, window, POLICIES[policies], calls)
