"""Our tracker against upstream's, of both vLLM versions: equal but for what docs/differences.md lists.

The 0.33 half runs in a child with that version's Python files first on the path; `make test-vllm` puts them beside this
environment. KVLEDGER_DIFFERENTIAL_SEED repeats a run.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.vllm.differential import compare
from tests.vllm.improvements import Improvement
from tests.vllm.sequences import CHUNKS
from tests.vllm.upstream import VERSION

ROOT = Path(__file__).parents[2]
NEWER = Path(sys.prefix, "vllm-0.33.0")
SEQUENCES, SEQUENCES_AFTER_COMMIT = 2_000, 200
#: What cannot differ: it is what 0.33 has changed, and what only one way of publishing has.
IN_BOTH_VERSIONS = set(Improvement) - {Improvement.LOOKUP_HOLDS, Improvement.COMMITTED_FIRST}


@pytest.fixture(scope="module")
def seed() -> int:
    chosen = int(os.environ.get("KVLEDGER_DIFFERENTIAL_SEED", random.randrange(2**32)))
    print(f"KVLEDGER_DIFFERENTIAL_SEED={chosen}")
    return chosen


def test_what_0_32_publishes_and_holds_ours_does_but_for_the_improvements(seed: int) -> None:
    assert VERSION == "0.32"
    found = compare(SEQUENCES, "at_once", seed)
    assert_met(found, IN_BOTH_VERSIONS | {Improvement.LOOKUP_HOLDS})


def test_after_commit_publishes_the_same_in_the_same_order(seed: int) -> None:
    found = compare(SEQUENCES_AFTER_COMMIT, "after_commit", seed)
    assert found[Improvement.COMMITTED_FIRST]


def test_what_0_33_publishes_and_holds_ours_does_but_for_the_improvements(seed: int) -> None:
    found = run_with_newer("tests.vllm.differential", "--sequences", str(SEQUENCES), "--seed", str(seed))
    assert (found["vllm"], found["sequences"]) == ("0.33", SEQUENCES)
    counts = {Improvement[name]: count for name, count in found["improvements"].items()}
    assert_met(counts, IN_BOTH_VERSIONS)
    assert not counts[Improvement.LOOKUP_HOLDS], "0.33 holds what a lookup hits, as ours does"


def test_the_documentation_explains_each_improvement_under_its_name() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "differences.md").read_text(), re.MULTILINE)
    assert headings == [improvement.value for improvement in Improvement]


def test_no_two_chunks_of_the_sequences_have_one_key() -> None:
    assert len({chunk.key for chunk in CHUNKS}) == len(CHUNKS)


def run_with_newer(module: str, *arguments: str) -> dict[str, object]:
    """Run a module with vLLM 0.33's Python files before this environment's; returns what it prints."""
    assert NEWER.is_dir(), f"{NEWER} is not there: `make test-vllm` makes it"
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(NEWER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-20_000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def assert_met(found: Mapping[Improvement, int], improvements: set[Improvement]) -> None:
    """The sequences came across each of `improvements`: where one is never met, nothing is shown of it."""
    assert {one for one in improvements if not found.get(one)} == set()
