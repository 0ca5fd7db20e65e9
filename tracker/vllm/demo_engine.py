"""The engine of `kvledger demo --engine vllm`, in a process of its own, so that it can be killed; changes with vLLM.

`python -m tracker.vllm.demo_engine ORDER` where ORDER is the JSON of `Order`. Commands come in by a pipe, line by line;
each is answered by one line of JSON, a `State`.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import IO, Any

import msgspec

#: Tokens a block; on a CPU vLLM's attention wants a multiple of 32.
TOKENS_PER_BLOCK = 32
BLOCKS_PER_CHUNK = 2
CPU_CHUNKS, TIER_CHUNKS, GPU_BLOCKS = 20, 36, 40
OWNER = "nvme0"
#: Requests under way at a time.
IN_FLIGHT = 4
TOPICS, TOPIC_BLOCKS = 14, 8

_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Order(msgspec.Struct):
    """What to run: upstream's connector or ours, over which folder; where to publish; the pipes."""

    connector: str
    folder: str
    endpoint: str
    replay_endpoint: str
    engine_id: str
    commands: int
    answers: int


class State(msgspec.Struct):
    """Requests answered in this life; keys held at the CPU pool and in the tier, in hex; frames published."""

    answered: int
    cpu: list[str]
    tier: list[str]
    frames: int


def prompts() -> list[list[int]]:
    """Every prompt of the demo, the same for each engine: random tokens, many with a beginning in common."""
    draw = random.Random(0)  # noqa: S311 - nobody's secret
    topics = [[draw.randrange(3, 1000) for _ in range(TOPIC_BLOCKS * TOKENS_PER_BLOCK)] for _ in range(TOPICS)]
    made = []
    for _ in range(120):
        # The first topics are asked for most.
        topic = topics[min(draw.randrange(TOPICS), draw.randrange(TOPICS))]
        length = draw.randint(TOPIC_BLOCKS // 2, TOPIC_BLOCKS) * TOKENS_PER_BLOCK
        made.append(topic[:length] + [draw.randrange(3, 1000) for _ in range(draw.randint(1, 40))])
    return made


def write_model(folder: Path) -> None:
    """A model's folder: tiny, without weights (vLLM draws them) and without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))


def start(order: Order) -> Any:
    """A vLLM engine in this process, with its offloading to a CPU pool and a bounded file tier."""
    from vllm import LLM  # noqa: PLC0415 - takes seconds, and the parent reads this module too
    from vllm.config import KVEventsConfig, KVTransferConfig  # noqa: PLC0415
    from vllm.platforms import current_platform  # noqa: PLC0415

    on_cpu = current_platform.is_cpu()
    # vLLM's own spec copies with the GPU's copy engine.
    spec = {"spec_name": "TieringOffloadingSpec"}
    if on_cpu:
        spec = {"spec_name": "TorchTieringOffloadingSpec", "spec_module_path": "tracker.vllm.cpu_spec"}
    folder = Path(order.folder)
    layers, pairs = _CONFIG["num_hidden_layers"], _CONFIG["num_key_value_heads"]
    value_bytes = 4 if on_cpu else 2
    block_bytes = TOKENS_PER_BLOCK * layers * 2 * pairs * _CONFIG["head_dim"] * value_bytes
    tier = {
        "type": "EvictingFileTier",
        "module_path": "tracker.vllm.evicting_tier",
        "root_dir": str(folder / "tier"),
        "max_chunks": TIER_CHUNKS,
        "owner": OWNER,
        "enable_kv_events": True,
        "locality": "LOCAL",
        "n_read_threads": 2,
        "n_write_threads": 2,
    }
    return LLM(
        model=str(folder.parent / "model"),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32" if on_cpu else "float16",
        block_size=TOKENS_PER_BLOCK,
        num_gpu_blocks_override=GPU_BLOCKS,
        max_model_len=(GPU_BLOCKS // 2 - 1) * TOKENS_PER_BLOCK,
        max_num_seqs=IN_FLIGHT,
        seed=0,
        kv_transfer_config=KVTransferConfig(
            kv_connector=order.connector,
            kv_role="kv_both",
            engine_id=order.engine_id,
            kv_connector_extra_config=spec
            | {
                "cpu_bytes_to_use": CPU_CHUNKS * BLOCKS_PER_CHUNK * block_bytes,
                "blocks_per_chunk": BLOCKS_PER_CHUNK,
                "self_describing_kv_events": True,
                "secondary_tiers": [tier],
            }
            | ({"kvledger": {"store": str(folder / "demo.db")}} if order.connector == "KvledgerConnector" else {}),
        ),
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=order.endpoint,
            replay_endpoint=order.replay_endpoint,
        ),
    )


class Life:
    """Obeys the parent until it is killed or told to end."""

    def __init__(self, llm: Any) -> None:
        self._engine = llm.llm_engine
        self._core = llm.llm_engine.engine_core.engine_core
        self._prompts = prompts()
        self._answered = self._frames = 0
        publisher = self._core.scheduler.kv_event_publisher
        self._publish, publisher.publish = publisher.publish, self._counted

    def _counted(self, batch: Any) -> None:
        self._publish(batch)
        self._frames += 1

    def obey(self, commands: IO[str], answers: IO[str]) -> None:
        """Work off the commands: `serve FIRST LAST`, `serve FIRST LAST UNTIL` (stop with requests under way)."""
        answers.write(msgspec.json.encode(self._state()).decode() + "\n")
        for line in commands:
            word, *numbers = line.split()
            if word == "serve":
                self._serve(*map(int, numbers))
            if word == "serve" and len(numbers) == 2:
                self._settle()
            answers.write(msgspec.json.encode(self._state()).decode() + "\n")

    def _serve(self, first: int, last: int, until: int | None = None) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.inputs import TokensPrompt  # noqa: PLC0415

        parameters = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
        waiting = list(range(first, last))[::-1]
        answered = 0
        while waiting or self._engine.has_unfinished_requests():
            while waiting and self._engine.get_num_unfinished_requests() < IN_FLIGHT:
                number = waiting.pop()
                prompt = TokensPrompt(prompt_token_ids=self._prompts[number % len(self._prompts)])
                self._engine.add_request(f"request-{number}", prompt, parameters)
            answered += sum(output.finished for output in self._engine.step())
            if until is not None and answered >= until:
                break
        self._answered += answered

    def _settle(self) -> None:
        """Step on until there is nothing to do: in this process nobody else does."""
        while self._core.scheduler.has_requests():
            self._core.step_fn()

    def _state(self) -> State:
        manager = self._core.scheduler.connector.connector_scheduler.manager
        (tier,) = manager.secondary_tiers
        # vLLM has no public list of what its pool holds.
        chunks = manager.primary_tier._policy.chunks
        return State(
            answered=self._answered,
            cpu=[key.hex() for key, chunk in chunks.items() if chunk.is_ready],
            tier=[key.hex() for key in tier.resident_keys],
            frames=self._frames,
        )


def main() -> None:
    """Start, say so, obey."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with os.fdopen(order.commands) as commands, os.fdopen(order.answers, "w", buffering=1) as answers:
        Life(start(order)).obey(commands, answers)


if __name__ == "__main__":
    main()
