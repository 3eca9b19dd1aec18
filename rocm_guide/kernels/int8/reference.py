# SPDX-License-Identifier: MIT
"""The INT8 operators as torch expressions: the exact product, the scaling, and the two ways to get back to 8 bits.

They run on any device and in any number of dimensions. The kernels are judged against them, and models on a CPU
compute with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["exact_product", "reference_operator", "reference_scaled", "to_int8"]


def exact_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` of int8 tensors without any rounding, as whole numbers in a floating type.

    A sum of K products of 8-bit numbers is at most K * 2^14, and float32 holds every whole number up to 2^24, float64
    up to 2^53. So the ordinary matrix product of a CPU or GPU is exact here, which ``torch.bmm`` on int8 is not: it
    returns int8, and keeps the lowest 8 bits of each sum.

    Args:
        a, b: (…, M, K) and (…, K, N), int8.

    >>> import torch
    >>> a, b = torch.full((1, 2, 64), 100, dtype=torch.int8), torch.full((1, 64, 2), 100, dtype=torch.int8)
    >>> exact_product(a, b)[0].tolist(), torch.bmm(a, b)[0].tolist()
    ([[640000.0, 640000.0], [640000.0, 640000.0]], [[0, 0], [0, 0]])
    """
    import torch

    kind = torch.float32 if a.shape[-1] <= 1024 else torch.float64
    return a.to(kind) @ b.to(kind)


def to_int8(x: torch.Tensor, *, truncate: bool = False) -> torch.Tensor:
    """Codes of numbers that have been divided by their scale: to the nearest whole number, limited to -128 … 127.

    Args:
        x: any floating type.
        truncate: cut the fraction off, as a C++ cast does, and with it Composable Kernel's ``type_convert`` to int8.
            Every code then lies nearer to zero than it should, by half a step on average.

    >>> import torch
    >>> x = torch.tensor([1.7, -1.7, 2.5, 300.0])
    >>> to_int8(x).tolist(), to_int8(x, truncate=True).tolist()
    ([2, -2, 2, 127], [1, -1, 2, 127])
    """
    import torch

    return (x.trunc() if truncate else x.round()).clamp(-128, 127).to(torch.int8)


def reference_operator(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    relu: bool = False,
    int8_out: bool = True,
) -> torch.Tensor:
    """E = act(alpha * A @ B + beta * D) in float64: int8 codes, or the float64 numbers themselves.

    Args:
        a, b: (…, M, K) and (…, K, N), int8.
        d: (N,) or (…, M, N), any type; None for no D.
        alpha, beta: factors.
        relu: whether negative results become 0.
        int8_out: round to nearest and limit to -128 … 127.

    >>> import torch
    >>> a, b = torch.tensor([[1, -2]], dtype=torch.int8), torch.tensor([[10, 3], [4, 9]], dtype=torch.int8)
    >>> reference_operator(a, b, torch.tensor([1, 0], dtype=torch.int8), 0.5, 2.0).tolist()
    [[3, -8]]
    """
    import torch

    e = alpha * exact_product(a, b).double()
    if d is not None:
        e = e + beta * d.double()
    e = torch.relu(e) if relu else e
    return to_int8(e) if int8_out else e


def reference_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor,
    column_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """row_scale * column_scale * (A @ B) + bias in float64: a linear layer with scales of tokens and channels.

    Args:
        a, b: (M, K) and (K, N), int8.
        row_scale: (M,), or (1,) for one scale of all rows.
        column_scale: (N,), or (1,) for one scale of all columns.
        bias: (N,), or None.

    >>> import torch
    >>> a, b = torch.tensor([[3, 1]], dtype=torch.int8), torch.tensor([[2], [4]], dtype=torch.int8)
    >>> reference_scaled(a, b, torch.tensor([0.5]), torch.tensor([0.1])).round(decimals=6).tolist()
    [[0.5]]
    """
    e = row_scale.double()[:, None] * column_scale.double()[None, :] * exact_product(a, b).double()
    return e if bias is None else e + bias.double()
