# SPDX-License-Identifier: MIT
"""The layers of a quantised checkpoint that ask the BLAS for nothing: kernels of their own multiply packed weights."""

from __future__ import annotations

from typing import Any

import torch

from rocm_guide.models.quantized import METHODS, reader

__all__ = ["with_own_kernels"]

#: How transformers runs a layer of each method. "own": a kernel unpacks and multiplies. "first": unpacked to 16 bits on
#: the first pass, an ordinary product from then on. "rows": a kernel for one row, unpacked to 16 bits for several.
_RUNS = dict.fromkeys(METHODS, "own") | {"compressed-tensors": "first", "quark": "first", "hqq": "first"}
_WHY = {
    "own": "kernels of their own multiply the packed weights and ask the BLAS for nothing",
    "first": "transformers unpacks them to 16 bits, and they ask as planned; vLLM runs kernels of its own",
    "rows": "one row goes to a kernel of its own; for several rows they are unpacked to 16 bits and ask as planned",
}


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


def with_own_kernels(model: torch.nn.Module, config: Any) -> list[str]:
    """Put stand-ins in the place of the layers of ``model`` that the checkpoint stores packed.

    Returns:
        What to say about them; nothing for a checkpoint that is not quantised.

    Raises:
        SizesError: a method or key that is not known.
    """
    recipe: Any = getattr(config, "quantization_config", None) or getattr(config, "compression_config", None)
    label, of, _ = reader({"quantization_config": recipe})
    if not recipe:
        return []
    runs = _RUNS[label.split(",")[0]] if label != "bitsandbytes, 4 bits" else "rows"
    packed, left = [], []
    for name, module in list(model.named_modules()):
        parent, _, leaf = name.rpartition(".")
        if runs != "rows" and type(module).__name__.endswith("Experts") and of(f"{name}.0.gate_proj") is not None:
            packed.append(name)
            if runs == "own":
                setattr(model.get_submodule(parent), leaf, _PackedExperts())
        elif isinstance(module, torch.nn.Linear):
            if of(name) is None:
                left.append(leaf)
                continue
            packed.append(name)
            if runs != "first":
                setattr(model.get_submodule(parent), leaf, _Packed(module, runs == "rows"))
    names = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in packed))
    said = [f"{label}: {len(packed)} quantised layers ({names}): {_WHY[runs]}"] if packed else []
    return [*said, f"{label}: in 16 bits as before: {', '.join(dict.fromkeys(left)) or 'none'}"]
