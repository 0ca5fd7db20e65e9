"""The connector as one of several under vLLM's MultiConnector."""

from pathlib import Path

import pytest

from tests.vllm.engine import Engine, make_prompts
from tests.vllm.ledgers import CPU, assert_sound, last_events, resident
from tests.vllm.models import TOKENS_PER_BLOCK, Model
from tracker.vllm.connector import KvledgerError

PREFIX_BLOCKS = 6


def engine(model: Model, folder: Path) -> Engine:
    return Engine(
        model,
        connector="KvledgerConnector",
        events=True,
        extra_config={"kvledger": {"store": str(folder / "ledger.db"), "stream": "test"}},
        # Only then vLLM registers metrics.
        llm_arguments={"disable_log_stats": False},
    )


def test_beside_a_connector_of_another_kind_both_do_their_work(llama: Model, tmp_path: Path) -> None:
    settings = engine(llama, tmp_path)
    settings.connectors_before = [
        {
            "kv_connector": "ExampleConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "example")},
        }
    ]
    prompts = make_prompts(seed=1, prefix_blocks=PREFIX_BLOCKS, count=2)
    with settings as running:
        first = running.generate(prompts)
        running.forget_gpu()
        # A prompt that vLLM's example has not seen: its prefix can only come from our pool.
        (third,) = running.generate([prompts[0][:-1]])
        assert third.cached_tokens == PREFIX_BLOCKS * TOKENS_PER_BLOCK
        assert [answer.token_ids for answer in running.generate(prompts)] == [answer.token_ids for answer in first]
        assert resident(tmp_path / "ledger.db") == {CPU: set(running.truth().cpu)}
    assert list((tmp_path / "example").rglob("*.safetensors"))
    assert last_events(tmp_path / "ledger.db") == ["epoch_ended"]
    assert_sound(tmp_path / "ledger.db")


def test_after_vllms_own_offloading_connector_the_engine_is_refused_in_one_line(llama: Model, tmp_path: Path) -> None:
    settings = engine(llama, tmp_path)
    settings.connectors_before = [
        {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": "TorchCPUOffloadingSpec",
                "spec_module_path": "tracker.vllm.cpu_spec",
                "cpu_bytes_to_use": 64 * llama.bytes_per_block,
            },
        }
    ]
    with pytest.raises(KvledgerError) as refusal, settings:
        pass
    assert 'remove "OffloadingConnector" from the "connectors" of MultiConnector' in str(refusal.value)
    assert "\n" not in str(refusal.value)
