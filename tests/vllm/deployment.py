"""What outlives an engine: its model, its ledger, its tiers' folders, its endpoints; changes with what is deployed.

A life (`serve.py`, `forked.py`) runs one engine over it, until it is killed.
"""

import json
import socket
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from tests.vllm.models import TOKENS_PER_BLOCK, VOCABULARY, Model, write_hybrid, write_llama

OWNER = "nvme0"


def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens at just now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@dataclass(frozen=True)
class Deployment:
    """One configuration over one folder. The sizes are in chunks and in blocks."""

    folder: Path
    tiers: tuple[str, ...] = ("fs", "evicting")
    blocks_per_chunk: int = 1
    integer_hashes: bool = True
    gpu_blocks: int = 40
    hybrid: bool = False
    ledger: dict[str, Any] = field(default_factory=dict)
    #: Of the publisher, and of its replays.
    ports: tuple[int, int] = field(default_factory=free_ports)

    @cached_property
    def model(self) -> Model:
        """The model's folder, with a tokenizer: a word a token."""
        model = (write_hybrid if self.hybrid else write_llama)(self.folder / "model")
        words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {word(token): token for token in range(3, VOCABULARY)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(model.folder / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>"}
        (model.folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return model

    @property
    def cpu_chunks(self) -> int:
        """Room in the CPU pool: for what the running requests need, and little more."""
        return (4 + 20 // self.blocks_per_chunk) * (1 + self.hybrid)

    @property
    def tier_chunks(self) -> int:
        """Room in the tier that evicts."""
        return (4 + 44 // self.blocks_per_chunk) * (1 + self.hybrid)

    @property
    def store(self) -> Path:
        """The ledger's file."""
        return self.folder / "ledger.db"

    @property
    def max_model_len(self) -> int:
        """Tokens that one request may have: half of the engine's pool."""
        return (self.gpu_blocks // 2 - 1) * TOKENS_PER_BLOCK

    @property
    def endpoints(self) -> tuple[str, str]:
        """Where consumers connect to."""
        return f"tcp://127.0.0.1:{self.ports[0]}", f"tcp://127.0.0.1:{self.ports[1]}"

    def events_config(self) -> dict[str, Any]:
        """`--kv-events-config`."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.ports[0]}",
            "replay_endpoint": f"tcp://*:{self.ports[1]}",
            "buffer_steps": 1_000_000,
        }

    def transfer_config(self, engine_id: str) -> dict[str, Any]:
        """`--kv-transfer-config`."""
        return {
            "kv_connector": "KvledgerConnector",
            "kv_role": "kv_both",
            "engine_id": engine_id,
            "kv_connector_extra_config": {
                "spec_name": "TorchTieringOffloadingSpec",
                "spec_module_path": "tracker.vllm.cpu_spec",
                "cpu_bytes_to_use": self.cpu_chunks * self.blocks_per_chunk * self.model.bytes_per_block,
                "blocks_per_chunk": self.blocks_per_chunk,
                "secondary_tiers": [self._tier(name) for name in self.tiers],
                "kvledger": {"store": str(self.store)} | self.ledger,
            },
        }

    def files(self, tier: str) -> dict[bytes, Path]:
        """The chunk files of a tier, by key."""
        found = {}
        for path in (self.folder / tier).rglob("*.bin"):
            group = int(path.parent.name.partition("_g")[2])
            found[bytes.fromhex(path.stem) + group.to_bytes(4, "big")] = path
        return found

    def _tier(self, name: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "fs"}
        if name == "evicting":
            entry = {"type": "EvictingFileTier", "module_path": "tracker.vllm.evicting_tier"}
            entry |= {"max_chunks": self.tier_chunks, "owner": OWNER}
        threads = {"n_read_threads": 2, "n_write_threads": 2}
        return entry | threads | {"root_dir": str(self.folder / name), "enable_kv_events": True, "locality": "LOCAL"}


def word(token: int) -> str:
    """A token as text."""
    return f"t{token}"
