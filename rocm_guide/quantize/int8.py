# SPDX-License-Identifier: MIT
"""LLM.int8(): products of 8-bit integers for almost everything, 16 bits for the few columns with outliers.

Every row of X and every row of W is divided by its own largest magnitude and rounded to -127..127; the integer product
is exact and is multiplied by both scales afterwards. A single input column with huge values would ruin the scale of
every token, so such columns are multiplied in full precision.
Source: Dettmers et al., "LLM.int8()", https://arxiv.org/abs/2208.07339, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rocm_guide.quantize.grid import QuantizationError, output_error, round_to_nearest
from rocm_guide.quantize.nf4 import code_book, dequantize_blocks, quantize_blocks

__all__ = ["format_errors", "int8_linear", "outlier_columns", "quantize_rows"]


def quantize_rows(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (int8 codes, float32 scales): every row divided by its largest magnitude / 127 and rounded.

    >>> codes, scales = quantize_rows(torch.tensor([[1.27, -0.5], [0.0, 0.0]]))
    >>> codes.tolist(), [round(s, 4) for s in scales.tolist()]
    ([[127, -50], [0, 0]], [0.01, 0.0])
    """
    absmax = matrix.abs().amax(1).float()
    factor = 127.0 / absmax.masked_fill(absmax == 0, 127.0)
    return torch.round(matrix.float() * factor[:, None]).to(torch.int8), absmax / 127


def outlier_columns(inputs: torch.Tensor, threshold: float = 6.0) -> torch.Tensor:
    """Return the columns of ``inputs`` (tokens, in) that reach ``threshold`` anywhere; none for a threshold of 0.

    Raises:
        QuantizationError: a negative threshold.

    >>> outlier_columns(torch.tensor([[1.0, 7.0, -6.0], [0.0, 0.0, 1.0]])).tolist()
    [1, 2]
    """
    if threshold < 0:
        raise QuantizationError(f"threshold={threshold}: give a positive number (6.0 is usual), or 0 for no outliers")
    if threshold == 0:
        return torch.empty(0, dtype=torch.long, device=inputs.device)
    return torch.nonzero((inputs.abs() >= threshold).any(0)).flatten()


def int8_linear(inputs: torch.Tensor, weight: torch.Tensor, threshold: float = 6.0) -> torch.Tensor:
    """Return X W^T, with integers except for the outlier columns.

    Args:
        inputs: (tokens, in).
        weight: (out, in).
        threshold: columns that reach it are multiplied in the inputs' type. They come from the 8-bit weights too, as
            in bitsandbytes: the weights are stored once.

    Returns:
        (tokens, out) float32.

    >>> _ = torch.manual_seed(0)
    >>> x, w = torch.randn(4, 64), torch.randn(8, 64)
    >>> x[:, 3] = 60.0
    >>> wrong = lambda t: ((int8_linear(x, w, t) - x @ w.T).norm() / (x @ w.T).norm()).item()
    >>> wrong(6.0) < 0.01, wrong(0.0) > 2 * wrong(6.0)
    (True, True)
    """
    special = outlier_columns(inputs, threshold)
    codes, scales = quantize_rows(weight)
    regular = inputs.float().clone()
    regular[:, special] = 0
    x_codes, x_scales = quantize_rows(regular)
    # Products of 8-bit integers, summed in 32 bits. float64 holds such sums exactly, and every device multiplies it.
    product = (x_codes.double() @ codes.double().T).float()
    out = product * x_scales[:, None] * scales[None, :]
    if len(special):
        restored = codes[:, special].float() * scales[:, None]
        out = torch.addmm(out, inputs[:, special].float(), restored.T)
    return out


def smoothing_scales(inputs_absmax: torch.Tensor, weight_absmax: torch.Tensor, alpha: float = 0.5) -> torch.Tensor:
    """Return SmoothQuant's answer to the same outliers: factors (in,) to divide inputs and multiply weight columns by.

    s = max|X|^alpha / max|W|^(1 - alpha) moves a part of the difficulty from the inputs into the weights, and no
    column has to be treated apart.
    Source: Xiao et al., "SmoothQuant", https://arxiv.org/abs/2211.10438, equation 4.

    Args:
        inputs_absmax: (in,) largest magnitude of each input column over the calibration data.
        weight_absmax: (in,) largest magnitude of each column of the weights that read it.
        alpha: 0 leaves the inputs alone, 1 makes all of them equally large.

    Raises:
        QuantizationError: alpha outside 0 to 1.

    >>> smoothing_scales(torch.tensor([64.0, 1.0]), torch.tensor([1.0, 1.0])).tolist()
    [8.0, 1.0]
    """
    if not 0 <= alpha <= 1:
        raise QuantizationError(f"alpha={alpha}: give a number from 0 to 1")
    x, w = inputs_absmax.float().clamp(min=1e-5), weight_absmax.float().clamp(min=1e-5)
    return (x.pow(alpha) / w.pow(1 - alpha)).clamp(min=1e-5)


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
