# SPDX-License-Identifier: MIT
"""Which products or experts of a model a tuned file covers, and which of its lines applies to each.

TunableOp and hipBLASLt sit below PyTorch, so what they see is the plan of the model. AITER and vLLM's tiles are used by
a serving engine, which joins q, k, v and gate, up into one product each and cuts them over its GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdna.predict import find_gpu, gpu
from rocm_guide.common.base import GuideError
from rocm_guide.models.layer import Layer
from rocm_guide.models.quantized import reader
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.sources import config_fields
from rocm_guide.tune.tunableop.gemm import TYPES, Gemm
from rocm_guide.tune.tunableop.generation import padded_length
from rocm_guide.tune.tunableop.tuned_elsewhere import Row, TunedElsewhere

__all__ = ["Coverage", "covers"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One product or expert layer that a model asks for: in words, the row that applies, and a note about either."""

    what: str
    row: Row | None = None
    note: str = ""


@dataclass(slots=True)
class Coverage:
    """All that a model asks for, in order, and sentences about lines that this GPU or model never looks up."""

    asked: list[Asked] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def covered(self) -> int:
        """How many of the products have a line."""
        return sum(one.row is not None for one in self.asked)


def covers(
    file: TunedElsewhere,
    model: str,
    *,
    batch: int = 1,
    prompt: Sequence[int] = (128,),
    new_tokens: int = 128,
    pad: int = 1,
    dtype: str = "bfloat16",
    gpu_name: str = "MI300X",
    tensor_parallel: int = 1,
    **planned: Any,
) -> Coverage:
    """Compare a tuned file with what ``model`` asks for: prefill of ``batch`` prompts, and decoding.

    ``planned`` goes to :func:`rocm_guide.tune.tunableop.planner.plan` for TunableOp's and hipBLASLt's files; for
    AITER's and vLLM's the matrices of ``config.json`` count, on ``tensor_parallel`` GPUs.

    Raises:
        GuideError: the model or GPU is not known, or a size does not divide over the GPUs.
    """
    if file.kind in ("tunableop", "hipblaslt log", "hipblaslt file"):
        if tensor_parallel != 1:
            raise GuideError(f"tensor_parallel={tensor_parallel}: a plan of PyTorch's products is for one GPU; use 1")
        return _of_plan(file, model, batch, prompt, new_tokens, pad, dtype, planned)
    if min(batch, tensor_parallel, *prompt) < 1:
        raise GuideError(f"batch={batch}, prompt={list(prompt)}, tensor_parallel={tensor_parallel}: each is at least 1")
    lengths = [batch * padded_length(n, pad) for n in prompt]
    tokens = list(dict.fromkeys([*lengths, *([batch] if new_tokens > 1 else [])]))
    fields = config_fields(model)
    layers = [layer for layer, _ in sizes_of(fields).groups]
    if file.kind == "vllm experts":
        return _tiles(file, fields, layers, tokens, gpu_name, tensor_parallel)
    return _aiter(file, fields, layers, tokens, dtype, gpu_name, tensor_parallel)


# --- below PyTorch -------------------------------------------------------------------------------------------------


def hipblaslt_key(g: Gemm) -> tuple[Any, ...] | None:
    """Return what hipBLASLt compares of a product; None for a type that it does not name (complex numbers).

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> hipblaslt_key(parse_gemm("GemmTunableOp_BFloat16_TN,tn_4096_512_2048_ld_2048_2048_4096"))
    ('T', 'N', 1, 4096, 512, 2048, 'bf16_r', 'bf16_r', 'bf16_r', 'f32_r')
    """
    names = [TYPES[t][1] for t in (g.dtypes * 3)[:3]]
    if "" in names:
        return None
    compute = {"double": "f64_r", "tf32": "xf32_r"}.get(g.dtypes[0], "f32_r")
    letters = ("N" if t == "n" else "T" for t in (g.transa, g.transb))
    return (*letters, g.batch or 1, g.m, g.n, g.k, *names, compute)


def _of_plan(
    file: TunedElsewhere, model: str, batch: int, prompt: Sequence[int], new_tokens: int, pad: int, dtype: str, how: Any
) -> Coverage:
    from rocm_guide.tune.tunableop.planner import plan

    found = plan(model, batch=batch, prompt=prompt, new_tokens=new_tokens, pad=pad, dtype=dtype, **how)
    rows = {row.key: row for row in reversed(file.rows)}
    out, used = Coverage(said=list(found.assumed)), set()
    for entry in found.gemms.values():
        key = entry.gemm.key if file.kind == "tunableop" else hipblaslt_key(entry.gemm)
        row = rows.get(key) if key is not None else None
        used.add(row.line if row else 0)
        out.asked.append(Asked(f"{entry.gemm.op},{entry.gemm.params}  {entry.modules[0]}", row))
    out.said += [
        f"{count} calls of {name}: PyTorch's tuner does not see them" for name, count in found.untunable.items()
    ]
    if idle := [row.line for row in file.rows if row.line not in used]:
        out.said.append(f"{_lines(idle)}: this workload never asks for it")
    if file.kind != "tunableop":
        out.said.append("hipBLASLt does not compare leading dimensions, scales and biases: one line serves them all")
    return out


def _lines(numbers: Sequence[int]) -> str:
    some = ", ".join(map(str, numbers[:6])) + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")
    return f"line{'s' if len(numbers) > 1 else ''} {some}"


# --- in a serving engine -------------------------------------------------------------------------------------------

#: Matrices whose outputs, or inputs, an engine cuts over its GPUs; these two stay whole on every GPU.
_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "q_b_proj", "kv_b_proj")
_INPUTS = ("o_proj", "down_proj")
_WHOLE = ("q_a_proj", "kv_a_proj_with_mqa")
_JOINED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"}
_JOINED |= {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}


def _share(size: int, parts: int, name: str) -> int:
    if size % parts:
        raise GuideError(f"tensor_parallel={parts}: {size} of {name} do not divide over so many GPUs")
    return size // parts


def served_products(layer: Layer, kv_heads: int, parts: int = 1) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of the products of one layer on one of ``parts`` GPUs, q, k, v and gate, up joined.

    Where there are fewer key/value heads than GPUs each GPU has one of them.

    >>> sizes = {"a.q_proj": (64, 64), "a.k_proj": (64, 16), "a.v_proj": (64, 16), "a.o_proj": (64, 64)}
    >>> served_products(Layer(sizes, 0, 0, 64, 16, 16, 32, 0), kv_heads=1, parts=2)
    {'a.qkv_proj': (64, 64), 'a.o_proj': (32, 64)}
    """
    out: dict[str, tuple[int, int]] = {}
    for name, (inputs, outputs) in layer.matrices.items():
        front, _, leaf = name.rpartition(".")
        if parts > 1 and leaf not in (*_OUTPUTS, *_INPUTS, *_WHOLE):
            raise GuideError(f"{name}: how it is cut over {parts} GPUs is not known here; compare with one GPU")
        if leaf in _INPUTS:
            inputs = _share(inputs, parts, name)
        elif leaf in ("k_proj", "v_proj"):
            outputs = _share(outputs, min(parts, kv_heads), name)
        elif leaf in _OUTPUTS:
            outputs = _share(outputs, parts, name)
        joined = f"{front}.{_JOINED.get(leaf, leaf)}".lstrip(".")
        out[joined] = (inputs, outputs + out.get(joined, (0, 0))[1])
    return out


def padded_tokens(tokens: int, outputs: int) -> list[int]:
    """Return the rows under which AITER looks a GEMM up, in turn: as it is, padded finely, and to a power of two.

    Source: AITER, csrc/py_itfs_cu/gemm_common.cu, getPaddedM.

    >>> padded_tokens(300, 4096), padded_tokens(20000, 8192)
    ([300, 320, 512], [20000, 20096, 8192])
    """
    step = next((s for limit, s in ((256, 16), (1024, 32), (4096, 64)) if tokens <= limit), 128)
    fine = -(-tokens // step) * step
    coarse = 8192 if tokens > 8192 and outputs > 4096 else 1 << (tokens - 1).bit_length()
    return list(dict.fromkeys([tokens, fine, coarse]))


def padded_experts(tokens: int) -> int:
    """Return the number of tokens under which AITER looks experts up.

    >>> padded_experts(300), padded_experts(40_000)
    (512, 32768)
    """
    tiers = (32768, 131072)
    return 1 << (tokens - 1).bit_length() if tokens < tiers[0] else max(t for t in tiers if t <= tokens)


def _variant(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{n}={v}" for n, v in zip(names, row.key[len(row.key) - len(names) :], strict=True))


def _find(
    file: TunedElsewhere, rows: Iterable[Row], keys: Sequence[tuple[int, ...]], dtype: str
) -> tuple[Row | None, str]:
    """Return the row of the first key that has one, and what to say: other tokens, other variants."""
    names = file.about["variants"]
    at = names.index("dtype") if "dtype" in names else None
    for key in keys:
        same = [r for r in rows if r.key[: len(key)] == key]
        fits = [r for r in same if at is None or r.key[len(key) + at] in (f"torch.{dtype}", "")]
        if not fits:
            if same:
                return None, f"{_lines([r.line for r in same])}: of another type ({_variant(same[0], names)})"
            continue
        notes = [f"as {key[0]:,} tokens"] if key is not keys[0] else []
        notes += [_variant(fits[0], names)] if names else []
        if len(fits) > 1:
            notes.append(f"and {_lines([r.line for r in fits[1:]])}, of other variants")
        return fits[0], "; ".join(notes)
    return None, ""


def _aiter(
    file: TunedElsewhere,
    fields: Mapping[str, Any],
    layers: Sequence[Layer],
    tokens: Sequence[int],
    dtype: str,
    gpu_name: str,
    parts: int,
) -> Coverage:
    spec, out = gpu(gpu_name), Coverage()
    here = [row for row in file.rows if row.device == (spec.arch, spec.units)]
    others: dict[Any, list[int]] = {}
    for row in file.rows:
        if row not in here:
            others.setdefault(row.device, []).append(row.line)
    out.said += [
        f"{_lines(lines)}: for {arch} with {units} compute units; a {spec.name} is {spec.arch} with {spec.units}"
        for (arch, units), lines in others.items()
    ]
    asked: dict[str, None] = {}
    for layer in layers:
        if file.kind == "aiter experts":
            asked |= _experts_of(file, here, layer, tokens, dtype, parts, out)
        else:
            kv_heads = int(fields.get("num_key_value_heads") or fields.get("num_attention_heads") or 1)
            for name, (inputs, outputs) in served_products(layer, kv_heads, parts).items():
                for m in tokens:
                    what = f"M={m} N={outputs} K={inputs}  {name}"
                    if what not in asked:
                        keys = [(p, outputs, inputs) for p in padded_tokens(m, outputs)]
                        out.asked.append(Asked(what, *_find(file, here, keys, dtype)))
                        asked[what] = None
    if file.kind == "aiter experts" and not asked:
        raise GuideError("the model has no experts, and the file is about experts; give a file of GEMMs")
    return out


def _experts_of(
    file: TunedElsewhere,
    here: Sequence[Row],
    layer: Layer,
    tokens: Sequence[int],
    dtype: str,
    parts: int,
    out: Coverage,
) -> dict[str, None]:
    asked: dict[str, None] = {}
    if not layer.experts:
        return asked
    hidden = next(iter(layer.expert.values()))[0]
    inner = _share(layer.expert_inner, parts, "each expert's inner width")
    for m in tokens:
        sizes = (hidden, inner, layer.experts, layer.top_k)
        what = f"token={m} model_dim={hidden} inter_dim={inner} expert={layer.experts} topk={layer.top_k}"
        if what not in {a.what for a in out.asked}:
            keys = list(dict.fromkeys([(m, *sizes), (padded_experts(m), *sizes)]))
            row, note = _find(file, here, keys[-1:], dtype)  # AITER pads always, and looks nothing else up
            note = "; ".join(filter(None, [f"as {keys[-1][0]:,} tokens" if len(keys) > 1 and row else "", note]))
            out.asked.append(Asked(what, row, note))
        asked[what] = None
    return asked


def _vllm_dtype(fields: Mapping[str, Any]) -> tuple[str | None, list[int] | None] | None:
    """Return vLLM's word for how the experts are computed, and the blocks with a scale; None where it is not known."""
    label = reader(fields)[0]
    recipe = fields.get("quantization_config") or {}
    if label == "bf16":
        return None, None
    if recipe.get("quant_method") == "fp8":
        return "fp8_w8a8", recipe.get("weight_block_size")
    return ("int4_w4a16", None) if re.fullmatch(r"(gptq|awq), 4 bits", label) else None


def _tiles(
    file: TunedElsewhere,
    fields: Mapping[str, Any],
    layers: Sequence[Layer],
    tokens: Sequence[int],
    gpu_name: str,
    parts: int,
) -> Coverage:
    out, spec, about = Coverage(), gpu(gpu_name), file.about
    moe = [layer for layer in layers if layer.experts]
    if not moe:
        raise GuideError("the model has no experts, and vLLM's tiles are for experts; give a model with experts")
    known = _vllm_dtype(fields)
    dtype, block = known or (about["dtype"], about["block_shape"])
    if known is None:
        out.said.append(f"dtype={about['dtype']}: whether vLLM computes this checkpoint so is not known here")
    same_gpu = find_gpu(about["device_name"].replace("_", " ")) is spec
    device = about["device_name"] if same_gpu else f"AMD_Instinct_{spec.name}" if spec.arch.startswith("gfx") else "…"
    for experts, inner in dict.fromkeys((layer.experts, layer.expert_inner) for layer in moe):
        width = _share(inner, parts, "each expert's inner width")
        wanted = f"E={experts},N={width},device_name={device}" + (f",dtype={dtype}" if dtype else "")
        wanted += f",block_shape=[{block[0]},{block[1]}].json" if block else ".json"
        found = [about[name] for name in ("E", "N", "dtype", "block_shape")]
        fits = same_gpu and found == [experts, width, dtype, block]
        for m in tokens:
            row = min(file.rows, key=lambda r: abs(r.key[0] - m)) if fits else None
            note = f"the nearest, of {row.key[0]:,} tokens" if row and row.key[0] != m else ""
            note = note if fits else f"vLLM looks for {wanted}"
            out.asked.append(Asked(f"E={experts} N={width}, {m} tokens", row, note))
    return out
