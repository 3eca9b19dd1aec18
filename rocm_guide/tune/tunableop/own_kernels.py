# SPDX-License-Identifier: MIT
"""What the layers of a quantised checkpoint ask the BLAS for: nothing, where kernels of their own multiply packed
weights, or a product with scales (ScaledGemm) where PyTorch multiplies in FP8.

Sources: transformers, ``integrations/`` and ``quantizers/``; torchao, ``quantization/quant_api.py``; PyTorch,
aten/src/ATen/native/cuda/ScaledBlas.cpp (which types and scales ROCm takes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.models.quantized import METHODS, reader, torchao_recipe

__all__ = ["with_own_kernels"]

#: How transformers runs a layer of each method. "own": a kernel unpacks and multiplies. "first": unpacked to 16 bits on
#: the first pass, an ordinary product from then on. "rows": a kernel for one row, unpacked to 16 bits for several.
#: "scaled": inputs are rounded to FP8, and PyTorch multiplies with scales.
_RUNS = dict.fromkeys(METHODS, "own") | {"compressed-tensors": "first", "quark": "first"}
_WHY = {
    "own": "kernels of their own multiply the packed weights and ask the BLAS for nothing",
    "first": "transformers unpacks them to 16 bits, and they ask as planned; vLLM runs kernels of its own",
    "rows": "one row goes to a kernel of its own; for several rows they are unpacked to 16 bits and ask as planned",
    "scaled": "PyTorch multiplies in FP8 with scales, and TunableOp tunes that as ScaledGemm",
}
#: PyTorch's FP8 products take sizes that are multiples of this.
_STEP = 16


class _Packed(torch.nn.Module):
    """Stands for a linear layer whose weights are packed."""

    def __init__(self, linear: Any, rows: bool) -> None:
        super().__init__()
        self.rows = rows
        self.weight, self.bias = linear.weight, linear.bias
        self.outputs = linear.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a result of the right size; of several rows by the product itself where that is asked for."""
        if self.rows and x.numel() > x.shape[-1]:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        return x.new_empty(*x.shape[:-1], self.outputs)


class _PackedExperts(torch.nn.Module):
    def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return torch.empty_like(x)


@dataclass(frozen=True, slots=True)
class _Fp8:
    """How PyTorch multiplies the layers: the type of both factors, and one scale for each row or for the tensor."""

    element: torch.dtype
    rowwise: bool


class _Scaled(torch.nn.Module):
    """Stands for a linear layer in FP8."""

    def __init__(self, linear: Any, how: _Fp8) -> None:
        super().__init__()
        self.how, self.bias = how, linear.bias
        self.weight = torch.nn.Parameter(torch.empty_like(linear.weight, dtype=how.element), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product of the rounded inputs [rows, in] with the weight [out, in], in the inputs' type."""
        rows, columns = x.numel() // x.shape[-1], len(self.weight)
        sizes: tuple[tuple[int, ...], ...] = ((rows, 1), (1, columns)) if self.how.rowwise else ((), ())
        scales = [x.new_empty(size, dtype=torch.float32) for size in sizes]
        codes = x.new_empty((rows, x.shape[-1]), dtype=self.how.element)
        y = torch._scaled_mm(codes, self.weight.t(), *scales, bias=self.bias, out_dtype=x.dtype)
        return y.reshape(*x.shape[:-1], columns)


def _torch_type(value: Any, key: str) -> torch.dtype:
    name = str(value.get("_data") if isinstance(value, Mapping) else value).removeprefix("torch.")
    if name not in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
        raise GuideError(f"{key}={name!r:.60} in a quantization_config: known are float8_e4m3fn and float8_e4m3fnuz")
    kind: torch.dtype = getattr(torch, name)
    return kind


def _multiplied_in_fp8(recipe: Mapping[str, Any], method: str) -> _Fp8 | None:
    """Return how PyTorch multiplies the layers of this checkpoint in FP8; None where it does not.

    transformers does so with compressed-tensors' FP8 where ``use_optimized_inference`` is on, with one scale a row
    always, and torchao with its float8_dynamic_activation_float8_weight.
    """
    if method == "compressed-tensors":
        weights = [g.get("weights") for g in (recipe.get("config_groups") or {}).values() if g.get("weights")]
        fp8 = all(w.get("type") == "float" and w.get("num_bits") == 8 for w in weights)
        on = recipe.get("use_optimized_inference") and not recipe.get("dequantize")
        return _Fp8(torch.float8_e4m3fn, rowwise=True) if on and weights and fp8 else None
    if method != "torchao" or torchao_recipe(recipe)[0] != "float8dynamicactivationfloat8weight":
        return None
    options = torchao_recipe(recipe)[1]
    given = options.get("granularity")
    every = {g.get("_type") if isinstance(g, Mapping) else g for g in (given if isinstance(given, list) else [given])}
    if not every <= {None, "PerTensor", "PerRow"} or len(every) > 1:
        raise GuideError(f"granularity={given!r:.80} of torchao: known are PerTensor and PerRow, for both factors")
    elements = {
        key: _torch_type(options.get(key) or "float8_e4m3fn", key) for key in ("activation_dtype", "weight_dtype")
    }
    if len(set(elements.values())) > 1:
        raise GuideError(f"{elements} of torchao: both factors have one type here; give the same twice")
    return _Fp8(elements["weight_dtype"], rowwise=every == {"PerRow"})


def _check_fp8(how: _Fp8, model: torch.nn.Module) -> str:
    """Return what to say about the GPUs that take this product; refuse a model of another type than its result."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    if how.rowwise and kinds != {torch.bfloat16}:
        names = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
        raise GuideError(f"dtype={names}: on ROCm, FP8 products with a scale for each row give bfloat16; plan that")
    fnuz = "fnuz" in str(how.element)
    takes, refuses = ("gfx942 (MI300X)", "gfx950 (MI355X)") if fnuz else ("gfx950 (MI355X)", "gfx942 (MI300X)")
    name = str(how.element).removeprefix("torch.float8_")
    return f"{name} numbers are those of {takes}; PyTorch refuses them on {refuses}"


def with_own_kernels(model: torch.nn.Module, config: Any) -> list[str]:
    """Put stand-ins in the place of the layers of ``model`` that the checkpoint stores packed.

    Returns:
        What to say about them; nothing for a checkpoint that is not quantised.

    Raises:
        SizesError: a method or key that is not known.
        GuideError: an FP8 product that PyTorch has not.
    """
    recipe: Any = getattr(config, "quantization_config", None) or getattr(config, "compression_config", None)
    label, of, _ = reader({"quantization_config": recipe})
    if not recipe:
        return []
    recipe = recipe.to_dict() if hasattr(recipe, "to_dict") else recipe
    method = label.split(",")[0]
    runs = _RUNS[method] if label != "bitsandbytes, 4 bits" else "rows"
    fp8 = _multiplied_in_fp8(recipe, method)
    runs = "scaled" if fp8 else runs
    packed, left, more = [], [], [_check_fp8(fp8, model)] if fp8 else []
    for name, module in list(model.named_modules()):
        parent, _, leaf = name.rpartition(".")
        experts = type(module).__name__.endswith("Experts") and of(f"{name}.0.gate_proj") is not None
        if experts and runs not in ("rows", "scaled"):
            packed.append(name)
            if runs == "own":
                setattr(model.get_submodule(parent), leaf, _PackedExperts())
        elif experts and runs == "scaled":
            left.append(leaf)
        elif isinstance(module, torch.nn.Linear):
            odd = fp8 is not None and any(n % _STEP for n in module.weight.shape)
            if of(name) is None or (odd and method == "torchao"):  # torchao leaves what PyTorch cannot multiply
                left.append(leaf)
                continue
            if odd:
                size = list(module.weight.shape)
                raise GuideError(f"{name} {size}: PyTorch's FP8 products take multiples of {_STEP}; ignore the layer")
            packed.append(name)
            if fp8:
                setattr(model.get_submodule(parent), leaf, _Scaled(module, fp8))
            elif runs != "first":
                setattr(model.get_submodule(parent), leaf, _Packed(module, runs == "rows"))
    names = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in packed))
    said = [f"{label}: {len(packed)} quantised layers ({names}): {'; '.join([_WHY[runs], *more])}"] if packed else []
    return [*said, f"{label}: in 16 bits as before: {', '.join(dict.fromkeys(left)) or 'none'}"]
