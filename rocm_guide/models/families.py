# SPDX-License-Identifier: MIT
"""The sizes of each family of models as config.json spells them, and the tensors that its layers hold.

Sources: the configuration and model files of transformers 5 (``configuration_*.py`` for the defaults that a config.json
leaves out, ``modeling_*.py`` for the tensors). A test builds a small model of every family on the meta device and
compares the number of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocm_guide.models.layer import Layer, SizesError

__all__ = ["LIGER", "has_formula"]

#: What a family's config.json may leave out, because transformers has it as a default. None: as many as heads.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": None},
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "phi3": {"num_key_value_heads": None},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True, "sliding_window": 4096},
    "gemma3_text": {
        "num_key_value_heads": 4,
        "num_attention_heads": 8,
        "head_dim": 256,
        "vocab_size": 262208,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
    },
    "mixtral": {"num_key_value_heads": 8},
    "qwen3_moe": {"num_key_value_heads": 4},
    "deepseek_v3": {},
    "gpt2": {
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "tie_word_embeddings": True,
    },
    "opt": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
        "tie_word_embeddings": True,
    },
}
#: The same layers under another name: Kimi K2 is a DeepSeek-V3.
_SAME = {"kimi_k2": "deepseek_v3"}
FAMILIES = (*_DEFAULTS, *_SAME)
#: Families whose norms and MLPs Liger-Kernel replaces (liger_kernel.transformers.monkey_patch).
LIGER = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text", "mixtral", "qwen3_moe")


class _Fields:
    """A config.json with its family's defaults; a missing or impossible size is named."""

    def __init__(self, fields: Mapping[str, Any], family: str) -> None:
        self.fields, self.family = {**_DEFAULTS[family], **fields}, family

    def __call__(self, name: str, *others: str, default: int | None = None, least: int = 1) -> int:
        value = next((self.fields[n] for n in (name, *others) if self.fields.get(n) is not None), default)
        if value is None:
            raise SizesError(f"{self.family}: its configuration has no {name}; give all sizes of the model")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 32:
            raise SizesError(f"{self.family}: {name}={value!r} in its configuration is no size")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.fields.get(name)
        return default if value is None else bool(value)


def has_formula(fields: Mapping[str, Any]) -> bool:
    """Return whether the formulae below count such a configuration; not Gemma 3's halved windows."""
    return fields.get("model_type") in FAMILIES and not fields.get("use_bidirectional_attention")


def read(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any], list[Layer], dict[str, Any]]:
    """Return (family, sizes of the model, its layers, parameters outside them); see
    :class:`rocm_guide.models.sizes.Sizes`.

    Raises:
        SizesError: see :func:`rocm_guide.models.sizes.sizes_of`.
    """
    named = str(fields.get("model_type"))
    family = _SAME.get(named, named)
    get = _Fields(fields, family)
    tied = get.flag("tie_word_embeddings")
    reader = {"gpt2": _gpt2, "opt": _opt, "deepseek_v3": _deepseek}.get(family, _llama)
    sizes, layers, beside = reader(get)
    at = {"gpt2": "transformer.h", "opt": "model.decoder.layers"}.get(family, "model.layers")
    width = get("word_embed_proj_dim", default=sizes["hidden"]) if family == "opt" else sizes["hidden"]
    table = get("vocab_size") * width
    head: dict[str, Any] = {} if tied else {"lm_head": (width, get("vocab_size"))}
    outside: dict[str, Any] = {"embedding": table, "output": 0 if tied else table, "beside": beside, "matrices": head}
    return family, {**sizes, "vocab": get("vocab_size"), "layers_at": at}, layers, outside


def _llama(get: _Fields) -> tuple[dict[str, int], list[Layer], int]:
    """Read Llama and those that changed one thing: biases, norms of queries, fused matrices, windows, experts."""
    family, hidden, heads = get.family, get("hidden_size"), get("num_attention_heads")
    kv_heads = get("num_key_value_heads", default=heads)
    head = get("head_dim", default=max(1, hidden // heads))
    if heads % kv_heads or (hidden % heads and get.fields.get("head_dim") is None):
        raise SizesError(f"{family}: {heads} heads, {kv_heads} of them with keys, in {hidden} do not divide")
    q, kv = head * heads, head * kv_heads
    attention = {
        "self_attn.q_proj": (hidden, q),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (q, hidden),
    }
    if family == "phi3":
        attention = {"self_attn.qkv_proj": (hidden, q + 2 * kv), "self_attn.o_proj": (q, hidden)}
    bias = q + 2 * kv if family == "qwen2" or get.flag("attention_bias") else 0
    if bias and family != "qwen2":
        bias += hidden  # attention_bias covers the output projection too; Qwen2's biases do not
    qk_norms = q + kv if family in ("qwen3", "qwen3_moe", "gemma3_text") else 0
    norms = (4 if family in ("gemma2", "gemma3_text") else 2) * hidden + (2 * head if qk_norms else 0)
    bias += _mlp_bias(get, hidden)
    shared: dict[str, Any] = {"bias": bias, "norms": norms, "q": q, "k": kv, "v": kv}
    shared |= {"cached": 2 * kv, "qk_norms": qk_norms}
    layers = []
    for i in range(get("num_hidden_layers")):
        moe = _experts(get, i, hidden)
        inner = 0 if moe else get("intermediate_size")
        matrices = attention if moe else {**attention, **_mlp(family, hidden, inner)}
        layers.append(Layer(matrices, inner=inner, window=_window(get, i), **shared, **moe))
    return {"hidden": hidden, "heads": heads, "kv_heads": kv_heads}, layers, hidden


def _mlp(family: str, hidden: int, inner: int, prefix: str = "") -> dict[str, tuple[int, int]]:
    if family == "phi3":
        return {"mlp.gate_up_proj": (hidden, 2 * inner), "mlp.down_proj": (inner, hidden)}
    sizes = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}
    return {f"mlp.{prefix}{name}": size for name, size in sizes.items()}


def _mlp_bias(get: _Fields, hidden: int) -> int:
    return 2 * get("intermediate_size") + hidden if get.family == "llama" and get.flag("mlp_bias") else 0


def _experts(get: _Fields, layer: int, hidden: int) -> dict[str, Any]:
    """Return the routed experts of a layer; nothing for a layer with one MLP."""
    if get.family == "mixtral":
        inner, experts = get("intermediate_size"), get("num_local_experts", "num_experts", default=8)
        top_k = get("num_experts_per_tok", default=2)
    elif get.family == "qwen3_moe":
        step = get("decoder_sparse_step", default=1)
        if layer in (get.fields.get("mlp_only_layers") or ()) or (layer + 1) % step:
            return {}
        inner, experts = get("moe_intermediate_size"), get("num_experts", "num_local_experts", default=128)
        top_k = get("num_experts_per_tok", default=8)
    else:
        return {}
    if top_k > experts:
        raise SizesError(f"{get.family}: {top_k} of {experts} experts for a token; there are not so many")
    router = experts * hidden
    return {"experts": experts, "top_k": top_k, "router": router, **_expert(hidden, inner)}


def _expert(hidden: int, inner: int) -> dict[str, Any]:
    """Return one expert; transformers lays gate and up into one tensor."""
    return {"expert_inner": inner, "expert": {"gate_up_proj": (hidden, 2 * inner), "down_proj": (inner, hidden)}}


def _window(get: _Fields, layer: int) -> int:
    """Return the tokens that the layer's cache keeps, 0 for all."""
    window = get("sliding_window", default=0, least=0)
    kinds = get.fields.get("layer_types")
    if kinds:
        return window if str(kinds[layer % len(kinds)]).startswith("sliding") else 0
    if get.family == "gemma3_text":  # five layers with a window, then one without
        return 0 if (layer + 1) % get("sliding_window_pattern", "_sliding_window_pattern", default=6) == 0 else window
    if get.family == "gemma2":
        return window if layer % 2 == 0 else 0
    if get.family.startswith("qwen"):
        first = get("max_window_layers", default=28, least=0)
        return window if get.flag("use_sliding_window") and layer >= first else 0
    return window if get.family in ("mistral", "mixtral", "phi3") else 0


def _deepseek(get: _Fields) -> tuple[dict[str, int], list[Layer], int]:
    """Read multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one compressed vector a token is cached."""
    hidden, heads = get("hidden_size"), get("num_attention_heads")
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    latent, rope, nope, value = (get(name) for name in names)
    rank = get("q_lora_rank", default=0, least=0)
    q, v = heads * (rope + nope), heads * value
    queries = {"self_attn.q_a_proj": (hidden, rank), "self_attn.q_b_proj": (rank, q)}
    attention = {
        **(queries if rank else {"self_attn.q_proj": (hidden, q)}),
        "self_attn.kv_a_proj_with_mqa": (hidden, latent + rope),
        "self_attn.kv_b_proj": (latent, heads * (nope + value)),
        "self_attn.o_proj": (v, hidden),
    }
    bias = (rank + latent + rope + hidden) if get.flag("attention_bias") else 0
    experts, top_k = get("n_routed_experts", "num_local_experts"), get("num_experts_per_tok")
    width, dense = get("moe_intermediate_size"), get("first_k_dense_replace", default=0, least=0)
    moe = {"experts": experts, "top_k": top_k, "router": experts * hidden, **_expert(hidden, width)}
    norms = 2 * hidden + rank + latent
    shared: dict[str, Any] = {"bias": bias, "norms": norms, "q": q, "k": q, "v": v, "cached": latent + rope}
    layers = []
    for i in range(get("num_hidden_layers")):
        inner = get("intermediate_size") if i < dense else width * get("n_shared_experts", default=0, least=0)
        mlp = _mlp(get.family, hidden, inner, "" if i < dense else "shared_experts.")
        layers.append(Layer({**attention, **mlp}, inner=inner, **shared, **({} if i < dense else moe)))
    return {"hidden": hidden, "heads": heads, "kv_heads": 1}, layers, hidden


def _gpt2(get: _Fields) -> tuple[dict[str, int], list[Layer], int]:
    hidden, heads = get("n_embd", "hidden_size"), get("n_head", "num_attention_heads")
    inner = get("n_inner", default=4 * hidden)
    matrices = {
        "attn.c_attn": (hidden, 3 * hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (hidden, inner),
        "mlp.c_proj": (inner, hidden),
    }
    layer = Layer(matrices, 5 * hidden + inner, 4 * hidden, hidden, hidden, hidden, 2 * hidden, inner)
    positions = get("n_positions", "max_position_embeddings")
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": heads, "positions": positions}
    return sizes, [layer] * get("n_layer", "num_hidden_layers"), positions * hidden + 2 * hidden


def _opt(get: _Fields) -> tuple[dict[str, int], list[Layer], int]:
    hidden, heads, inner = get("hidden_size"), get("num_attention_heads"), get("ffn_dim")
    square = dict.fromkeys((f"self_attn.{x}_proj" for x in ("q", "k", "v", "out")), (hidden, hidden))
    matrices = {**square, "fc1": (hidden, inner), "fc2": (inner, hidden)}
    bias = 5 * hidden + inner if get.flag("enable_bias", True) else 0
    norms = 4 * hidden if get.flag("layer_norm_elementwise_affine", True) else 0
    layer = Layer(matrices, bias, norms, hidden, hidden, hidden, 2 * hidden, inner)
    table = get("word_embed_proj_dim", default=hidden)
    ends = norms and get.flag("do_layer_norm_before", True) and not get.flag("_remove_final_layer_norm")
    last = 2 * hidden if ends else 0
    projections = 2 * table * hidden if table != hidden else 0
    positions = get("max_position_embeddings")
    beside = (positions + 2) * hidden + last + projections
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": heads, "positions": positions}
    return sizes, [layer] * get("num_hidden_layers"), beside
