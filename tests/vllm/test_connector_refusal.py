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
    ends = [line for line in lines if line.endswith(told)]
    # vLLM logs the traceback; the process that dies of it prints it once more.
    assert [" ERROR " in line for line in ends] == [True, False]
