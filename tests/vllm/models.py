"""Model folders that vLLM can serve: tiny, random, and with answers that hang on what attention reads.

vLLM's own dummy weights are so small that the tokens are the same whatever lies in the KV cache.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TOKENS_PER_BLOCK = 32
VOCABULARY = 1000
SLIDING_WINDOW = 64

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Two KV-cache groups: group 0 of the layer with the sliding window, group 1 of the one with full attention.
_GEMMA3 = _LLAMA | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": SLIDING_WINDOW,
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
}


@dataclass(frozen=True)
class Model:
    """A model folder, and what one of its KV blocks takes over all layers, in bytes."""

    folder: Path
    bytes_per_block: int


def write_llama(folder: Path) -> Model:
    """Write a model with one KV-cache group."""
    return _write(folder, _LLAMA, block_layers=2)


def write_hybrid(folder: Path) -> Model:
    """Write a model with two KV-cache groups of one layer each, whose blocks come from one pool."""
    return _write(folder, _GEMMA3, block_layers=1)


def write_lora(folder: Path) -> Path:
    """Write an adapter for the model of `write_llama` that changes what it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    rank, outputs = 8, {"q_proj": 128, "v_proj": 64}
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(outputs), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    draw = torch.Generator().manual_seed(2)
    weights = {}
    for layer in range(_LLAMA["num_hidden_layers"]):
        for name, size in outputs.items():
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{at}.lora_A.weight"] = torch.randn(rank, _LLAMA["hidden_size"], generator=draw)
            weights[f"{at}.lora_B.weight"] = torch.randn(size, rank, generator=draw)
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def _write(folder: Path, config: dict[str, Any], block_layers: int) -> Model:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    draw = torch.Generator().manual_seed(1)
    weights = {}
    for name, shape in _shapes(config):
        if len(shape) == 1:
            weights[name] = torch.full(shape, _norm_weight(config, name))
        else:
            # Twice what keeps the size of the activations, so that attention picks and tokens differ.
            weights[name] = torch.randn(shape, generator=draw) * 2 * shape[1] ** -0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    keys_and_values = 2 * config["num_key_value_heads"] * config["head_dim"] * 4
    return Model(folder, TOKENS_PER_BLOCK * keys_and_values * block_layers)


def _norm_weight(config: dict[str, Any], name: str) -> float:
    if config is not _GEMMA3:
        return 1.0
    # Gemma adds one. Attention must pick few tokens, or it reads much the same average everywhere, and what it adds
    # must outweigh the last token.
    return 2.0 if "q_norm" in name or "k_norm" in name or "post_" in name else 0.0


def _shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, pairs = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config is _GEMMA3:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for norm in norms:
            yield f"{at}.{norm}.weight", (hidden,)
        if config is _GEMMA3:
            yield f"{at}.self_attn.q_norm.weight", (head,)
            yield f"{at}.self_attn.k_norm.weight", (head,)
        yield f"{at}.self_attn.q_proj.weight", (queries, hidden)
        yield f"{at}.self_attn.k_proj.weight", (pairs, hidden)
        yield f"{at}.self_attn.v_proj.weight", (pairs, hidden)
        yield f"{at}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{at}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{at}.mlp.up_proj.weight", (inner, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, inner)
