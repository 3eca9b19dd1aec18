# SPDX-License-Identifier: MIT
"""The formats that need no calibration, side by side: what each does to the output of every layer. Notebook 12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocm_guide.quantize.grid import output_error, round_to_nearest
from rocm_guide.quantize.int8 import int8_linear
from rocm_guide.quantize.nf4 import code_book, dequantize_blocks, quantize_blocks

if TYPE_CHECKING:
    import torch

__all__ = ["format_errors"]


def format_errors(
    weights: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor], block: int = 64
) -> dict[str, list[float]]:
    """Return the relative squared output error of every layer, for FP4, an even 4-bit grid, NF4, and LLM.int8().

    Args:
        weights: layer -> (out, in).
        inputs: layer -> (tokens, in), what the layer sees; the order of the results is this one's.
        block: weights that share a scale; in int8 a row of weights, and a token of inputs, has one.

    Returns:
        format -> errors, one for each layer.

    Raises:
        QuantizationError: a block that does not divide a row.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> errors = format_errors({"a": torch.randn(32, 128)}, {"a": torch.randn(50, 128)})
    >>> sorted(errors, key=lambda name: errors[name][0])
    ['int8 weights and inputs', 'NF4', 'even, 4 bits', 'FP4']
    """
    errors: dict[str, list[float]] = {"FP4": [], "even, 4 bits": [], "NF4": [], "int8 weights and inputs": []}
    for name, x in inputs.items():
        w, x = weights[name].detach().float(), x.float()
        for label in ("nf4", "fp4"):
            restored = dequantize_blocks(quantize_blocks(w, code_book(label).to(w.device), block))
            errors[label.upper()].append(output_error(w, restored, x))
        errors["even, 4 bits"].append(output_error(w, round_to_nearest(w, 4, block, symmetric=True).dequantize(), x))
        exact = x @ w.T
        wrong = (int8_linear(x, w) - exact).square().sum() / exact.square().sum()
        errors["int8 weights and inputs"].append(wrong.item())
    return errors
