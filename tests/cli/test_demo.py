"""`kvledger demo` where it cannot do what is asked."""

import sys
from pathlib import Path

import pytest

from tests.cli.command import kvledger


def test_a_live_engine_without_vllm_is_refused_with_a_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What an import finds where a package is not installed, whatever is installed here.
    monkeypatch.setitem(sys.modules, "vllm", None)
    outcome = kvledger("demo", "--engine", "vllm", "--keep", tmp_path, "--json")
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert "vLLM" in line
    assert "pip install 'kvledger[vllm]'" in line
    assert list(tmp_path.iterdir()) == []
