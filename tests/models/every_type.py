# SPDX-License-Identifier: MIT
"""Small configurations of every causal type of transformers, and what a real run of one leaves in its cache.

`python -m tests.models.every_type [TYPE ...]` prints a table of what `fit` and `tunable plan` say of them.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rocm_guide.common.base import GuideError
from rocm_guide.models.described import describe
from rocm_guide.models.sizes import sizes_of
from rocm_guide.tune.tunableop.planner import plan

#: What a model's own code ends with where a configuration does not suit it.
FAILURES = (
    StrictDataclassError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
KINDS = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
#: Fewer layers and narrower ones, where a configuration has such a field and takes the value.
_SMALL = {
    "num_hidden_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "num_layers": 4,
    "decoder_layers": 3,
    "encoder_layers": 3,
    "num_decoder_layers": 3,
    "vocab_size": 512,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "encoder_ffn_dim": 96,
}
_HEADS = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
#: What transformers' own defaults leave out, so that no model can be built of them.
NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_group": 1, "n_group": 1},
    "hunyuan_v1_dense": {"head_dim": 32},
    "hunyuan_v1_moe": {"head_dim": 32},
    "ministral": {"head_dim": 32},
    "nemotron": {"num_key_value_heads": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "blenderbot": {"encoder_layers": 2, "decoder_layers": 2},
    "reformer": {"is_decoder": True},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "jamba": {"num_hidden_layers": 8},
    "kimi_linear": {"num_hidden_layers": 27},
    "bailing_hybrid": {"num_hidden_layers": 42},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2},
}


def configuration(kind: str) -> tuple[Any, bool]:
    """Return (configuration, whether it is small enough for real weights) of this type."""
    own = NEEDED.get(kind, {})
    default = CONFIG_MAPPING[kind](**own).get_text_config(decoder=True)
    fixed = any(hasattr(default, name) for name in ("qk_rope_head_dim", "rotary_dim", "index_n_heads"))
    few = {k: v for k, v in _SMALL.items() if not (hasattr(default, "n_group") and "expert" in k)}
    for change in (few if fixed else few | _HEADS, few, {k: v for k, v in _SMALL.items() if "layer" in k}, {}):
        try:
            default = CONFIG_MAPPING[kind](**own)
            inner = default.get_text_config(decoder=True)
            fields = {k: v for k, v in change.items() if isinstance(getattr(inner, k, None), int)} | own
            # Of an encoder with a decoder, the text part is a copy of the whole.
            name = next((n for n in default.sub_configs if getattr(default, n, None) is inner), None)
            if name is None:
                config = CONFIG_MAPPING[kind](**fields)
            else:
                config = CONFIG_MAPPING[kind](**{name: type(inner)(**fields).to_dict()})
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        except FAILURES:  # the next choice changes less; a test names those without one
            continue
        return config, sum(p.numel() for p in model.parameters()) < 60_000_000
    return CONFIG_MAPPING[kind](**own), False


def parameters(config: Any) -> int:
    """Return the parameters of the model that transformers builds of it."""
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def _bytes_in(value: Any, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.nbytes if value.is_floating_point() else 0
    if isinstance(value, list | tuple):
        return sum(_bytes_in(v, seen) for v in value)
    if isinstance(value, dict):
        return sum(_bytes_in(v, seen) for v in value.values())
    ours = type(value).__module__.startswith("transformers") and hasattr(value, "__dict__")
    return _bytes_in(vars(value), seen) if ours else 0


def cache_bytes(config: Any, tokens: int) -> int:
    """Return the bytes of the cache after a real pass over so many tokens on the CPU, in bfloat16."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    ids = torch.arange(5, 5 + tokens)[None]
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True)
    names = ("past_key_values", "cache_params", "state")
    return _bytes_in([getattr(out, name, None) for name in names], set())


def verdict(kind: str, planned: bool = True) -> tuple[str, str]:
    """Return what `fit` and `tunable plan` say of this type: "right", "refused: …" or "wrong: …"."""
    try:
        config, real = configuration(kind)
        fields = config.to_dict() | {"model_type": kind, "architectures": None}
    except FAILURES as e:
        return (f"refused: transformers makes no configuration ({type(e).__name__})",) * 2
    try:
        sizes = sizes_of(fields)
        said = "right" if sizes.parameters == parameters(config) else f"wrong: {sizes.parameters} parameters"
        described = describe(fields)
        if sum(layer.parameters for layer in described[2]) + sizes.outside != sizes.parameters:
            said = "wrong: the description differs from the formula"
        if real and said == "right":
            told = sizes.kv_cache_bytes(7)
            try:
                taken = cache_bytes(config, 7)
            except RuntimeError:  # a few cannot run in bfloat16 on a CPU
                return "right (parameters alone)", verdict_of_plan(config) if planned else ""
            said = "right" if told == taken else f"wrong: {told} bytes of cache, not {taken}"
        elif said == "right":
            said = "right (parameters alone)"
    except GuideError as e:
        said = f"refused: {e}"
    return said, verdict_of_plan(config) if planned else ""


def verdict_of_plan(config: Any) -> str:
    """Return what `tunable plan` says of a configuration."""
    try:
        return "right" if plan(config, prompt=3, new_tokens=3).gemms else "wrong: no product"
    except GuideError as e:
        return f"refused: {e}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    for one in sys.argv[1:] or KINDS:
        try:
            fit_says, plan_says = verdict(one)
        except FAILURES as e:
            fit_says, plan_says = f"traceback: {type(e).__name__}: {e}"[:200], ""
        print(f"{one:26} | {fit_says} | {plan_says}", flush=True)
