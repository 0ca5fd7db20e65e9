"""A real vLLM engine on a CPU, small enough to start in seconds, with its offloading in the open."""

import gc
import os
import random
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from vllm import LLM, SamplingParams
from vllm.config import KVEventsConfig, KVTransferConfig, VllmConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from tests.vllm.inspection import SETTLE_S, InspectedScheduler, connector_of, manager_of
from tests.vllm.models import TOKENS_PER_BLOCK, VOCABULARY, Model


def make_prompts(seed: int, prefix_blocks: int, count: int, tail_tokens: int = 5) -> list[list[int]]:
    """Make `count` prompts of token ids that share their first `prefix_blocks` blocks and nothing after."""
    draw = random.Random(seed)
    prefix = [draw.randrange(3, VOCABULARY) for _ in range(prefix_blocks * TOKENS_PER_BLOCK)]
    return [prefix + [draw.randrange(3, VOCABULARY) for _ in range(tail_tokens)] for _ in range(count)]


@dataclass(frozen=True)
class Answer:
    """What one request gave: its tokens, the log probability of each, and how many of its tokens were cache hits."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cached_tokens: int


@dataclass(frozen=True)
class Truth:
    """Which keys each place holds ready: `cpu`, and by tier (its owner, or its type) those that it would serve."""

    cpu: frozenset[bytes]
    tiers: dict[str, frozenset[bytes]]


@dataclass
class Engine:
    """One engine over its whole life; a context manager. The sizes are in chunks and in blocks."""

    model: Model
    in_process: bool = True
    blocks_per_chunk: int = 1
    cpu_chunks: int = 64
    gpu_blocks: int = 40
    tiers: Sequence[dict[str, Any]] = ()
    events: bool = False
    extra_config: dict[str, Any] = field(default_factory=dict)
    connector: str = "OffloadingConnector"
    connector_module: str | None = None
    tokens_per_block: int = TOKENS_PER_BLOCK
    #: Other connectors that vLLM's MultiConnector puts before and after this one, as vLLM's configuration has them.
    connectors_before: Sequence[dict[str, Any]] = ()
    connectors_after: Sequence[dict[str, Any]] = ()
    #: Beside what is set here: fields of vLLM's KVEventsConfig, and arguments of LLM.
    events_config: dict[str, Any] = field(default_factory=dict)
    llm_arguments: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        # An engine that failed to start ends when it is collected, and takes the process's groups with it: not while
        # this one starts.
        gc.collect()
        self.engine_id = f"kvledger-{uuid.uuid4()}"
        # A socket's path has room for about 100 characters, which a test's own folder can exceed.
        self._sockets = Path(tempfile.mkdtemp(prefix="kvl"))
        with ExitStack() as on_failure:
            on_failure.callback(self._clean)
            with _environment(
                VLLM_ENABLE_V1_MULTIPROCESSING="0" if self.in_process else "1",
                VLLM_CPU_KVCACHE_SPACE="1",
                VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES="0",
                VLLM_LOGGING_LEVEL="WARNING",
            ):
                self._llm = LLM(**self._arguments())
            on_failure.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # Without a word vLLM gives its engine core 5 s to end, which a busy machine can exceed.
            self._client.shutdown(timeout=SETTLE_S)
        finally:
            self._clean()

    def generate(
        self, prompts: Sequence[Sequence[int]], tokens: int = 8, lora: LoRARequest | None = None
    ) -> list[Answer]:
        """Answer the prompts greedily, and wait until every transfer that this set off is over."""
        answers = self.answer(prompts, tokens, lora)
        self.settle()
        return answers

    def answer(
        self, prompts: Sequence[Sequence[int]], tokens: int = 8, lora: LoRARequest | None = None
    ) -> list[Answer]:
        """Answer the prompts greedily; their last transfers may be under way, or yet to start."""
        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts],
            _greedy(tokens),
            use_tqdm=False,
            lora_request=lora,
        )
        return [_answer(output) for output in outputs]

    def begin(self, prompt: Sequence[int], tokens: int = 8) -> str:
        """Hand a request in and return its id; `step` takes it further."""
        request_id = uuid.uuid4().hex
        self._llm.llm_engine.add_request(request_id, TokensPrompt(prompt_token_ids=list(prompt)), _greedy(tokens))
        return request_id

    def step(self) -> None:
        """Take one step, in this process."""
        self._llm.llm_engine.step()

    def abort(self, request_id: str) -> None:
        """Take a request back."""
        self._llm.llm_engine.abort_request([request_id])

    def forget_gpu(self) -> None:
        """Empty the engine's own block pool; what was offloaded stays."""
        assert self._llm.reset_prefix_cache()

    def forget_gpu_and_cpu(self) -> None:
        """Empty the engine's block pool and the CPU pool; what lies in a tier stays."""
        assert self._llm.reset_prefix_cache(reset_connector=True)

    def settle(self) -> None:
        """Wait until the engine has no step to take, so every transfer is done and told of."""
        self._ask("offloading_settled")

    def truth(self) -> Truth:
        """Return what the managers hold at this moment."""
        held = self._ask("offloading_truth")
        return Truth(_keys(held["cpu"]), {name: _keys(keys) for name, keys in held["tiers"].items()})

    def steps(self) -> int:
        """How many steps the scheduler has taken. Asking takes none."""
        found: int = self._ask("offloading_steps")
        return found

    def kill(self) -> None:
        """End the engine process with SIGKILL, whatever it is doing."""
        assert not self.in_process, "an engine in this process cannot be killed alone"
        for process in self._client.resources.engine_manager.processes:
            os.kill(process.pid, signal.SIGKILL)
            process.join(timeout=SETTLE_S)

    @property
    def live_connector(self) -> Any:
        """The scheduler's side of the connector itself, of an engine that runs in this process."""
        return connector_of(self._client.engine_core)

    @property
    def live_scheduler(self) -> InspectedScheduler:
        """The scheduler itself, of an engine that runs in this process."""
        scheduler = self._client.engine_core.scheduler
        assert isinstance(scheduler, InspectedScheduler)
        return scheduler

    @property
    def live_tiers(self) -> Sequence[SecondaryTierManager]:
        """The secondary tiers themselves, of an engine that runs in this process."""
        manager = manager_of(self._client.engine_core)
        assert isinstance(manager, TieringOffloadingManager)
        return manager.secondary_tiers

    @property
    def replay_endpoint(self) -> str:
        """Where vLLM's publisher answers with every batch that it has sent, from a sequence number on."""
        return f"ipc://{self._sockets}/replay"

    @property
    def publish_endpoint(self) -> str:
        """Where vLLM's publisher sends each batch once."""
        return f"ipc://{self._sockets}/publish"

    def vllm_config(self) -> VllmConfig:
        """What vLLM makes of these settings, without an engine that has them."""
        self.engine_id, self._sockets = f"kvledger-{uuid.uuid4()}", Path("unused")
        return EngineArgs(**self._arguments()).create_engine_config()

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": str(self.model.folder),
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "dtype": "float32",
            "block_size": self.tokens_per_block,
            "num_gpu_blocks_override": self.gpu_blocks,
            # One request must fit in the pool, with each of up to two groups holding all of its blocks.
            "max_model_len": (self.gpu_blocks // 2 - 1) * self.tokens_per_block,
            "max_num_seqs": 4,
            "seed": 0,
            "scheduler_cls": f"{InspectedScheduler.__module__}.{InspectedScheduler.__name__}",
            "kv_transfer_config": self._transfer_config(),
            "kv_events_config": self._events_config(),
        }
        return arguments | self.llm_arguments

    def _transfer_config(self) -> KVTransferConfig:
        spec = "TorchTieringOffloadingSpec" if self.tiers else "TorchCPUOffloadingSpec"
        block_bytes = self.model.bytes_per_block * self.tokens_per_block // TOKENS_PER_BLOCK
        chunk_bytes = block_bytes * self.blocks_per_chunk
        own: dict[str, Any] = {
            "kv_connector": self.connector,
            "kv_connector_module_path": self.connector_module,
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": spec,
                "spec_module_path": "tracker.vllm.cpu_spec",
                "cpu_bytes_to_use": self.cpu_chunks * chunk_bytes,
                "blocks_per_chunk": self.blocks_per_chunk,
            }
            | ({"secondary_tiers": [dict(tier) for tier in self.tiers]} if self.tiers else {})
            | self.extra_config,
        }
        if self.connectors_before or self.connectors_after:
            children = [*self.connectors_before, own, *self.connectors_after]
            own = {
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"connectors": children},
            }
        return KVTransferConfig(**own, engine_id=self.engine_id)

    def _events_config(self) -> KVEventsConfig | None:
        if not self.events:
            return None
        fields: dict[str, Any] = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.publish_endpoint,
            "replay_endpoint": self.replay_endpoint,
        }
        return KVEventsConfig(**fields | self.events_config)

    # What vLLM types as the client of any engine core is here one of two that have more than it says.
    @property
    def _client(self) -> Any:
        return self._llm.llm_engine.engine_core

    def _ask(self, question: str) -> Any:
        if self.in_process:
            return getattr(self._client.engine_core, question)()
        return self._client.call_utility(question)

    def _clean(self) -> None:
        if self.in_process:
            cleanup_dist_env_and_memory()
        # vLLM leaves the region of an engine that was killed.
        for region in Path("/dev/shm").glob(f"vllm_offload_{self.engine_id}*.mmap*"):
            region.unlink(missing_ok=True)
        shutil.rmtree(self._sockets, ignore_errors=True)


def _keys(hexes: Sequence[str]) -> frozenset[bytes]:
    return frozenset(map(bytes.fromhex, hexes))


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=0)


def _answer(output: Any) -> Answer:
    (completion,) = output.outputs
    drawn = zip(completion.token_ids, completion.logprobs, strict=True)
    return Answer(
        tuple(completion.token_ids),
        tuple(candidates[token].logprob for token, candidates in drawn),
        output.num_cached_tokens,
    )


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
