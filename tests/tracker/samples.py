"""Chunks that the tests speak of, each with its description written by hand; changes when a test needs another one.

Prompts A and B begin with the same block, so that a0 and b0 share a hash; all groups have chunks over the same blocks,
so that chunks of different groups share hashes too.
"""

from typing import NamedTuple

from eventstore.domain.metadata import Metadata
from eventstore.domain.place import Medium, Place
from tests.scheduler import GroupSpec, Layout, LoRA, Prompt, make_hash, make_key
from tracker.tracker import Tracker

PRIMARY = Place(Medium.CPU)
PEER = Place(Medium.CPU, "peer")
TIER_A = Place(Medium.STORAGE, "a")
TIER_B = Place(Medium.STORAGE, "b")
#: Flags removals only from some point on.
LATE = Place(Medium.STORAGE, "late")
#: Never says that it announces removals.
STORE_ONLY = Place(Medium.STORAGE)

H = [make_hash(number) for number in range(30)]

FULL = Layout()
WINDOW = Layout(group_idx=1, sliding_window_size_in_chunks=2, kv_event_group_spec=GroupSpec("sliding_window", 16))
#: Four blocks a chunk.
LONG = Layout(group_idx=4, tokens_per_chunk=16, hashes_per_chunk=4)
#: Twice the block size of the group that the request is hashed for: two hashes a block.
WIDE = Layout(group_idx=2, tokens_per_block=8)
RECURRENT = Layout(group_idx=3, kv_event_group_spec=GroupSpec("mamba"))

A = Prompt([H[1], H[2], H[3], H[4]], list(range(100, 116)))
B = Prompt([H[1], H[5], H[6], H[7]], [100, 101, 102, 103, *range(204, 216)])
WITH_LORA = Prompt([H[8], H[9]], list(range(300, 308)), LoRA(7, "poet"))


class Sample(NamedTuple):
    """A chunk: how it is recorded and what is then known of it. `at`: its index, or the boundary of a partial tail."""

    name: str
    key: bytes
    prompt: Prompt
    group: Layout
    at: int
    #: What describes it; None for a chunk of a group that is never described.
    metadata: Metadata | None
    partial: bool = False

    def __repr__(self) -> str:
        return self.name.upper()

    def record_store(self, tracker: Tracker) -> None:
        """The chunk is about to be stored."""
        record = tracker.record_partial_store if self.partial else tracker.record_store
        record(self.prompt, self.group, self.at, self.key)

    def record_lookup(self, tracker: Tracker) -> None:
        """A lookup hit the chunk."""
        record = tracker.record_partial_lookup if self.partial else tracker.record_lookup
        record(self.prompt, self.group, self.at, self.key)

    @property
    def own_hash(self) -> int:
        """The key's hash, as events carry it: all that a placeholder has."""
        return int.from_bytes(self.key[:-4][-8:], "big")

    @property
    def hashes(self) -> list[int]:
        """All member hashes, as events carry them."""
        members = self.metadata.block_hashes if self.metadata is not None else (self.key[:-4],)
        return [int.from_bytes(one[-8:], "big") for one in members]


A0 = Sample(
    "a0", make_key(H[2]), A, FULL, 0, Metadata((H[1], H[2]), None, tuple(range(100, 108)), 4, 0, "full_attention")
)
A1 = Sample(
    "a1", make_key(H[4]), A, FULL, 1, Metadata((H[3], H[4]), H[2], tuple(range(108, 116)), 4, 0, "full_attention")
)
B0 = Sample(
    "b0",
    make_key(H[5]),
    B,
    FULL,
    0,
    Metadata((H[1], H[5]), None, (100, 101, 102, 103, 204, 205, 206, 207), 4, 0, "full_attention"),
)
FOUR = Sample(
    "four", make_key(H[4], 4), A, LONG, 0, Metadata(tuple(H[1:5]), None, tuple(range(100, 116)), 4, 4, "full_attention")
)
WIDE0 = Sample(
    "wide0", make_key(H[2], 2), A, WIDE, 0, Metadata((H[2],), None, tuple(range(100, 108)), 8, 2, "full_attention")
)
TAIL = Sample(
    "tail", make_key(H[3], 3), A, RECURRENT, 12, Metadata((H[3],), H[2], (108, 109, 110, 111), 4, 3, "mamba"), True
)
LORA = Sample(
    "lora",
    make_key(H[9]),
    WITH_LORA,
    FULL,
    0,
    Metadata((H[8], H[9]), None, tuple(range(300, 308)), 4, 0, "full_attention", lora_id=7, lora_name="poet"),
)
WINDOW0 = Sample("window0", make_key(H[2], 1), A, WINDOW, 0, None)

SAMPLES = (A0, A1, B0, FOUR, WIDE0, TAIL, LORA, WINDOW0)
BY_KEY = {sample.key: sample for sample in SAMPLES}
