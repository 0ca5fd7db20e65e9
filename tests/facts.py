"""What the recorded engines really did, as numbers (docs/traces.md); changes when a trace is recorded anew.

Everything is counted from the calls alone, but for `Upstream`: what vLLM's own tracker made of the same calls.
"""

from pathlib import Path
from typing import Any, NamedTuple

import tracker.traces

_HERE = Path(__file__).parent / "recorded"
_SHIPPED = Path(tracker.traces.__file__).parent / "recorded"

NAMES = ("cpu_only", "store_only", "two_tier", "hybrid")


def recorded(name: str) -> Path:
    """The file of a recorded trace."""
    return (_SHIPPED if name == "two_tier" else _HERE) / f"{name}.calls.jsonl.gz"


class Upstream(NamedTuple):
    """What upstream's tracker published, and what a reference-counting consumer believes at the end of it."""

    #: Stores without tokens, and how many of these were of chunks described before.
    placeholders: int
    placeholders_of_described: int
    #: Member hashes that its removals failed to name.
    unnamed: int
    right: int
    ghosts: int


class Facts(NamedTuple):
    """One trace: what `kvledger drive` must print, and what it is measured against."""

    counts: dict[str, Any]
    #: Events of the second process about chunks that only the first one had described.
    carried_over: int
    upstream: Upstream


FACTS = {
    "cpu_only": Facts(
        {
            "epochs": 2,
            "batches": 394,
            "resets": 1,
            "described": 2_128,
            "stored": 3_994,
            "repeated": 0,
            "placeholders": 0,
            "removed": 3_876,
            "removed_hashes": 3_876,
            "unmatched_removals": 0,
            "closed_on_restart": 38,
            "closed_on_restart_hashes": 38,
            "closed_on_reset": 40,
            "resident_at_end": {"CPU": 40, "STORAGE": 0},
            "lost": 0,
        },
        carried_over=0,
        upstream=Upstream(113, 113, 0, 40, 63),
    ),
    "store_only": Facts(
        {
            "epochs": 2,
            "batches": 877,
            "resets": 1,
            "described": 771,
            "stored": 1_746,
            "repeated": 0,
            "placeholders": 0,
            "removed": 888,
            "removed_hashes": 3_552,
            "unmatched_removals": 0,
            "closed_on_restart": 24,
            "closed_on_restart_hashes": 96,
            "closed_on_reset": 24,
            "resident_at_end": {"CPU": 24, "STORAGE": 765},
            "lost": 0,
        },
        carried_over=0,
        upstream=Upstream(26, 26, 3, 2_222, 96),
    ),
    "two_tier": Facts(
        {
            "epochs": 2,
            "batches": 1_444,
            "resets": 2,
            "described": 2_106,
            "stored": 6_451,
            "repeated": 122,
            "placeholders": 0,
            "removed": 6_164,
            "removed_hashes": 12_328,
            "unmatched_removals": 0,
            "closed_on_restart": 27,
            "closed_on_restart_hashes": 54,
            "closed_on_reset": 60,
            "resident_at_end": {"CPU": 30, "STORAGE": 48},
            "lost": 0,
        },
        carried_over=41,
        upstream=Upstream(12, 12, 310, 153, 206),
    ),
    "hybrid": Facts(
        {
            "epochs": 2,
            "batches": 744,
            "resets": 1,
            "described": 2_311,
            "stored": 11_216,
            "repeated": 316,
            "placeholders": 2_417,
            "removed": 10_738,
            "removed_hashes": 10_738,
            "unmatched_removals": 18,
            "closed_on_restart": 40,
            "closed_on_restart_hashes": 40,
            "closed_on_reset": 40,
            "resident_at_end": {"CPU": 40, "STORAGE": 60},
            "lost": 0,
        },
        carried_over=49,
        upstream=Upstream(2_444, 27, 0, 82, 94),
    ),
}
