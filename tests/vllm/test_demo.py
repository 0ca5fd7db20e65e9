"""`kvledger demo --engine vllm`: two live engines, each killed and started again, and what a router believes."""

import json
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "eventstore.cli.app", "demo", "--engine", "vllm", "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_with_kvledger_a_router_believes_at_every_moment_exactly_what_the_engine_holds(found: dict[str, Any]) -> None:
    moments = found["kvledger"]["moments"]
    assert [moment["name"] for moment in moments] == ["served", "killed", "restarted", "served again"]
    assert [(moment["ghosts"], moment["missing"]) for moment in moments] == [(0, 0)] * 4
    assert all(moment["right"] > 0 for moment in moments)


def test_with_kvledger_no_store_lacks_tokens_and_no_removal_a_member(found: dict[str, Any]) -> None:
    assert (found["kvledger"]["placeholders"], found["kvledger"]["unnamed"]) == (0, 0)
    assert found["verify"]["ok"] is True


def test_upstream_s_connector_leaves_a_router_with_what_died_with_the_process(found: dict[str, Any]) -> None:
    moments = found["upstream"]["moments"]
    assert [moment["ghosts"] for moment in moments[:2]] == [0, 0]
    assert moments[2]["ghosts"] > 0
