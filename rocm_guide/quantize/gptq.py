# SPDX-License-Identifier: MIT
"""GPTQ: round one column of weights at a time and let the columns still to come make up for the error.

Rounding column i changes the layer's output by an amount that depends on the inputs. With the Hessian of the squared
output error, H = 2/N X^T X, the best correction of the remaining columns is known in closed form; the Cholesky factor
of the inverse of H holds it for all columns at once.
Source: Frantar et al., "GPTQ", https://arxiv.org/abs/2210.17323, sections 3 and 4 and algorithm 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rocm_guide.quantize.grid import QuantizationError, Quantized, check_grid, fit_grid, quantize_block

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["gptq", "hessian"]


def hessian(inputs: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return (in, in) float32: 2/N times the sum of x x^T over all N token vectors x that the layer sees.

    Args:
        inputs: tensors of shape (…, in), for example one for each calibration sample.

    Raises:
        QuantizationError: there is no token.

    >>> hessian([torch.tensor([[1.0, 0.0], [1.0, 2.0]])]).tolist()
    [[2.0, 2.0], [2.0, 4.0]]
    """
    total, count = None, 0
    for x in inputs:
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        product = rows.T @ rows
        total = product if total is None else total.add_(product)
        count += len(rows)
    if total is None or not count:
        raise QuantizationError("the calibration set is empty; give at least one sample")
    return total.mul_(2.0 / count)


def inverse_factor(matrix: torch.Tensor, damping: float = 0.01) -> torch.Tensor:
    """Return the upper Cholesky factor U of the inverse of a Hessian: U^T U = (H + d I)^-1, d = damping x mean diag.

    Inputs that never vary independently make H singular; a small d on the diagonal makes it invertible.

    Raises:
        QuantizationError: the matrix is not positive definite even so.

    >>> u = inverse_factor(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), damping=0.0)
    >>> torch.allclose(torch.linalg.inv(u.T @ u), torch.tensor([[2.0, 1.0], [1.0, 2.0]]), atol=1e-5)
    True
    """
    damped = matrix.clone()
    # A copy of the diagonal is summed in another order than a view of it. The last bit of the mean decides ties between
    # two codes, and with it we and GPTQModel agree on every one of them.
    damped.diagonal().add_(damping * matrix.diagonal().clone().mean())
    lower, failed = torch.linalg.cholesky_ex(damped)
    if int(failed):
        raise QuantizationError(
            f"damping={damping}: the Hessian is not positive definite; try {max(0.01, 10 * damping):g}"
        )
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)


def gptq(
    weight: torch.Tensor,
    h: torch.Tensor,
    bits: int = 4,
    group: int = 128,
    *,
    symmetric: bool = False,
    act_order: bool = True,
    damping: float = 0.01,
    block: int = 128,
) -> Quantized:
    """Quantise a matrix with knowledge of its inputs.

    Args:
        weight: (out, in).
        h: (in, in), from :func:`hessian`.
        symmetric: keep 0 in the middle of the grid.
        act_order: round the columns with the largest inputs first, while all others can still make up for the error.
        block: columns that are finished before the rest of the matrix is corrected in one matrix product.

    Raises:
        QuantizationError: settings that do not fit, a Hessian of another layer, or one that cannot be inverted.

    >>> from rocm_guide.quantize.grid import output_error, round_to_nearest
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(500, 64) @ torch.randn(64, 64)  # inputs that depend on each other
    >>> w = torch.randn(32, 64)
    >>> ours, plain = gptq(w, hessian([x]), 3, 32), round_to_nearest(w, 3, 32)
    >>> output_error(w, ours.dequantize(), x) < 0.6 * output_error(w, plain.dequantize(), x)
    True
    """
    columns = weight.shape[1]
    width = columns // check_grid(columns, bits, group)
    if h.shape != (columns, columns):
        raise QuantizationError(f"h is {tuple(h.shape)}; a layer of {columns} columns needs ({columns}, {columns})")
    w, h = weight.detach().float().clone(), h.clone()
    # A column whose input is always 0 can take any value: 0, and a 1 on the diagonal keeps H invertible.
    dead = h.diagonal() == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    order = torch.argsort(h.diagonal(), descending=True) if act_order else torch.arange(columns, device=w.device)
    w, h = w[:, order], h[order][:, order]
    factor = inverse_factor(h, damping)
    codes = torch.zeros_like(w)
    scales, zeros = [], []
    for first in range(0, columns, block):
        last = min(first + block, columns)
        part, local = w[:, first:last].clone(), factor[first:last, first:last]
        errors = torch.zeros_like(part)
        for i in range(last - first):
            if (first + i) % width == 0:
                # The grid of a group is fitted when its first column is reached. Errors made inside this block have
                # not reached w yet, only part; the authors' code and GPTQModel fit on w, and so do we.
                scale, zero = fit_grid(w[:, first + i : first + i + width], bits, symmetric)
                scales.append(scale)
                zeros.append(zero)
            codes[:, first + i] = code = quantize_block(part[:, i], scale[:, 0], zero[:, 0], bits)
            error = (part[:, i] - scale[:, 0] * (code - zero[:, 0])) / local[i, i]
            part[:, i:] -= error.unsqueeze(1) * local[i, i:]
            errors[:, i] = error
        w[:, last:] -= errors.matmul(factor[first:last, last:])
    back = torch.argsort(order)
    groups = (torch.arange(columns, device=w.device) // width)[back]
    return Quantized(codes[:, back].to(torch.uint8), torch.cat(scales, 1), torch.cat(zeros, 1), groups, bits)
