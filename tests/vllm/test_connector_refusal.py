"""What a user of `vllm serve` sees when the connector refuses to start."""

from pathlib import Path

import pytest

from tests.vllm.deployment import Deployment
from tests.vllm.serve import ServedLife


def printed(deployment: Deployment) -> list[str]:
    """All that `vllm serve` prints, line by line, until it ends by itself."""
    life = ServedLife(deployment, load_seed=0)
    try:
        with pytest.raises(AssertionError, match="the engine ended by itself"):
            life.stands()
    finally:
        life.kill()
    return (deployment.folder / "served.log").read_text().splitlines()


def test_the_traceback_that_vllm_logs_ends_with_one_line_that_says_what_to_change(tmp_path: Path) -> None:
    lines = printed(Deployment(tmp_path, ledger={"stroe": "elsewhere.db"}))
    where = "kv_connector_extra_config.kvledger"
    told = f"KvledgerError: kvledger: {where}: no setting is called 'stroe'; did you mean 'store'?"
    logged = [line for line in lines if " ERROR " in line and line.endswith(told)]
    assert len(logged) == 1
    # Nothing that vLLM logs of the start comes after it, but that the engine is no more.
    after = [line for line in lines[lines.index(logged[0]) + 1 :] if " ERROR " in line]
    assert after == []
