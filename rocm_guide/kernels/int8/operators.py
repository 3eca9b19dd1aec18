# SPDX-License-Identifier: MIT
"""The five INT8 operators of SmoothQuant models, E = act(alpha * A @ B + beta * D), each one kernel.

| operator | A, B | D | E |
|---|---|---|---|
| ``linear_abde_i8`` | int8, 2-D | int8 | int8 |
| ``linear_relu_abde_i8`` | int8, 2-D | int8 | int8, with ReLU |
| ``linear_ab_i8_de_f32`` | int8, 2-D | float32 | float32 |
| ``bmm_abe_i8`` | int8, 3-D | none | int8 |
| ``bmm_ab_i8_e_f32`` | int8, 3-D | none | float32 |

The sum over K is exact in int32. It is scaled in float32; on the way back to int8 it is rounded to nearest, halves to
even, and limited to -128 … 127. ``linear_scaled`` is the same kernel with a scale for each row of A (a token) and each
column of B (a channel), which is what a W8A8 checkpoint of today asks for.

Source: the ROCm LLM guide, "Develop fused INT8 kernels for SmoothQuant models"; Xiao et al., "SmoothQuant",
https://arxiv.org/abs/2211.10438.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    check_batch,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
)
from rocm_guide.kernels.gemm.configs import GemmTile
from rocm_guide.kernels.gemm.tiles import activate, tile_dot, tile_order
from rocm_guide.kernels.int8.plan import plan_product
from rocm_guide.kernels.launch import planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = [
    "bmm_ab_i8_e_f32",
    "bmm_abe_i8",
    "linear_ab_i8_de_f32",
    "linear_abde_i8",
    "linear_relu_abde_i8",
    "linear_scaled",
]

#: The longest K whose sums fit into 32 bits whatever the codes are: K * 128 * 128 must stay below 2^31.
LONGEST_K = (1 << 17) - 1


@triton.jit
def round_to_int8(x):
    """float32 to int8: limited to -128 … 127, to nearest, halves to even, in two additions on every architecture.

    Beyond 1.5 * 2^23 neighbouring float32 numbers are 1 apart, so the addition rounds to a whole number.
    """
    x = tl.minimum(tl.maximum(x, -128.0), 127.0)
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)


@triton.jit
def int8_operator_kernel(
    a, b, d_ptr, e_ptr, rows_ptr, columns_ptr, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_dm, stride_ez, stride_em,
    alpha, beta,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, XCDS: tl.constexpr,
    A_DESC: tl.constexpr, B_DESC: tl.constexpr, EVEN_K: tl.constexpr, UNITS: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, RELU: tl.constexpr,
) -> None:  # fmt: skip
    """One tile of E per program; the second axis of the grid is the batch.

    ``D`` is "none", "row" (one number for each column of E) or "matrix". ``ROWS`` and ``COLUMNS`` say whether the
    product has a scale for each row and each column beside ``alpha``.
    """
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col, batch = tile_m * BM, tile_n * BN, tl.program_id(1).to(tl.int64)
    if A_DESC == 0:
        a += batch * stride_az
    if B_DESC == 0:
        b += batch * stride_bz
    acc = tile_dot(
        a, b, row, col, 0, K, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BM, BN, BK, A_DESC, B_DESC, EVEN_K, True, "ieee", UNITS,
    )  # fmt: skip
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    in_m, in_n = row + rm < M, col + rn < N
    inside = in_m[:, None] & in_n[None, :]
    x = acc.to(tl.float32) * alpha
    if ROWS:
        x *= tl.load(rows_ptr + row + rm, mask=in_m, other=0.0)[:, None]
    if COLUMNS:
        x *= tl.load(columns_ptr + col + rn, mask=in_n, other=0.0)[None, :]
    if D == "row":
        x += beta * tl.load(d_ptr + col + rn, mask=in_n, other=0.0).to(tl.float32)[None, :]
    elif D == "matrix":
        d_ptr += row.to(tl.int64) * stride_dm + col
        x += beta * tl.load(d_ptr + rm[:, None] * stride_dm + rn[None, :], mask=inside, other=0.0).to(tl.float32)
    if RELU:
        x = activate(x, "relu")
    if e_ptr.dtype.element_ty == tl.int8:
        x = round_to_int8(x)
    e_ptr += batch * stride_ez + row.to(tl.int64) * stride_em + col
    tl.store(e_ptr + rm[:, None] * stride_em + rn[None, :], x.to(e_ptr.dtype.element_ty), mask=inside)


def _checked(a: torch.Tensor, b: torch.Tensor, dims: int, **others: torch.Tensor | None) -> tuple[int, int]:
    """M and N of a product of ``dims`` dimensions whose operands fit together.

    Raises:
        KernelError: they do not, or K is so long that a sum could leave 32 bits.
    """
    import torch

    check_dtype("a", a, (torch.int8,))
    check_dtype("b", b, (torch.int8,))
    check_shape("a", a, (None,) * dims)
    check_shape("b", b, (*a.shape[: dims - 2], a.shape[-1], None))
    check_same_device(a=a, b=b, **others)
    if a.shape[-1] > LONGEST_K:
        raise KernelError(f"K={a.shape[-1]}: sums of 8-bit products fit into 32 bits up to K={LONGEST_K}; split K")
    return a.shape[-2], b.shape[-1]


def linear_int8(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float, relu: bool, dtype: torch.dtype
) -> torch.Tensor:
    """E = alpha * A @ B + beta * D, through ReLU if wanted, in ``dtype``: what the operators on two dimensions are."""
    alpha, beta = check_number("alpha", alpha), check_number("beta", beta)
    if (product := operator("linear_int8")) is not None:
        return product(a, b, d, alpha, beta, relu, dtype)
    return planned(_plan_linear, (a, b, d), relu, dtype)(a, b, d, None, None, alpha, beta)


def _plan_linear(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, relu: bool, dtype: torch.dtype
) -> Callable[..., torch.Tensor]:
    m, n = _checked(a, b, 2, d=d)
    check_dtype("d", d, (dtype,))
    check_shape("d", d, (n,) if d.ndim == 1 else (m, n))
    check_last_contiguous("d", d)
    return plan_product(int8_operator_kernel, a[None], b[None], (m, n), dtype, d, relu=relu)


def linear_abde_i8(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0) -> torch.Tensor:
    """E = alpha * A @ B + beta * D, all of them int8: a linear layer whose output goes into another INT8 product.

    Args:
        a: (M, K), the codes of the activations; any strides.
        b: (K, N); pass ``weight.T``, which is contiguous along K.
        d: (N,), the codes of the bias, or (M, N).
        alpha: scale of A times scale of B, over the scale of E.
        beta: scale of D over the scale of E.

    Returns:
        E, (M, N) int8.

    Raises:
        KernelError: types, shapes or devices that do not fit, K above 131,071, alpha or beta not finite.
    """
    import torch

    return linear_int8(a, b, d, alpha, beta, False, torch.int8)


def linear_relu_abde_i8(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0
) -> torch.Tensor:
    """E = ReLU(alpha * A @ B + beta * D), all int8. Arguments and errors are those of :func:`linear_abde_i8`."""
    import torch

    return linear_int8(a, b, d, alpha, beta, True, torch.int8)


def linear_ab_i8_de_f32(
    a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, alpha: float, beta: float = 1.0
) -> torch.Tensor:
    """E = alpha * A @ B + beta * D with A and B in int8, D and E in float32: a linear layer before a residual.

    Arguments and errors are those of :func:`linear_abde_i8`; alpha is the scale of A times the scale of B.
    """
    import torch

    return linear_int8(a, b, d, alpha, beta, False, torch.float32)


def bmm_int8(a: torch.Tensor, b: torch.Tensor, alpha: float, dtype: torch.dtype) -> torch.Tensor:
    """E = alpha * A @ B of batches, in ``dtype``."""
    alpha = check_number("alpha", alpha)
    if (product := operator("bmm_int8")) is not None:
        return product(a, b, alpha, dtype)
    return planned(_plan_bmm, (a, b), dtype)(a, b, None, None, None, alpha, 1.0)


def _plan_bmm(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    m, n = _checked(a, b, 3)
    check_batch(a.shape[0])
    return plan_product(int8_operator_kernel, a, b, (a.shape[0], m, n), dtype)


def bmm_abe_i8(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    """E = alpha * A @ B, all of them int8 and 3-D: attention's second product, probabilities times values.

    Args:
        a, b: (batch, M, K) and (batch, K, N), any strides.
        alpha: scale of A times scale of B, over the scale of E.

    Returns:
        E, (batch, M, N) int8.

    Raises:
        KernelError: types, shapes or devices that do not fit, K above 131,071, a batch above 65,535, alpha not finite.
    """
    import torch

    return bmm_int8(a, b, alpha, torch.int8)


def bmm_ab_i8_e_f32(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    """E = alpha * A @ B with A and B in int8 and 3-D, E in float32: attention's scores, which softmax reads.

    Arguments and errors are those of :func:`bmm_abe_i8`; alpha is the scale of A times the scale of B.
    """
    import torch

    return bmm_int8(a, b, alpha, torch.float32)


def linear_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor,
    column_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """row_scale * column_scale * (A @ B) + bias: a W8A8 linear layer with its scales on the device.

    The scales are read by the kernel. Nothing waits for the GPU, which ``alpha = scale.item()`` would do at every call.

    Args:
        a, b: (M, K) and (K, N), int8, any strides.
        row_scale: (M,) float32, a scale for each token; or (1,), one for all of them.
        column_scale: (N,) float32, a scale for each channel of the output; or (1,).
        bias: (N,), floating point, contiguous.
        out_dtype: float32 (the default), bfloat16 or float16.
        tile: a launch configuration of your own.

    Returns:
        (M, N) in ``out_dtype``.

    Raises:
        KernelError: types, shapes or devices that do not fit, K above 131,071.
    """
    tensors = a, b, row_scale, column_scale, bias
    if (product := operator("linear_scaled")) is not None:
        return product(*tensors, out_dtype)
    return planned(_plan_scaled, tensors, out_dtype, tile)(*tensors)


def _plan_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor,
    column_scale: torch.Tensor,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    tile: GemmTile | None,
) -> Callable[..., torch.Tensor]:
    import torch

    floats = (torch.float32, torch.bfloat16, torch.float16)
    m, n = _checked(a, b, 2, row_scale=row_scale, column_scale=column_scale, bias=bias)
    for name, scale, size in (("row_scale", row_scale, m), ("column_scale", column_scale, n)):
        check_dtype(name, scale, (torch.float32,))
        check_shape(name, scale, (1,) if scale.shape == (1,) else (size,))
    if bias is not None:
        check_dtype("bias", bias, floats)
        check_shape("bias", bias, (n,))
        check_last_contiguous("bias", bias)
    out_dtype = out_dtype or torch.float32
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=a.device), floats)
    launch = plan_product(int8_operator_kernel, a[None], b[None], (m, n), out_dtype, bias, scaled=True, tile=tile)

    def run(a: Any, b: Any, row_scale: torch.Tensor, column_scale: torch.Tensor, bias: Any) -> torch.Tensor:
        # One scale for all of a side is spread over it: a few kilobytes, and one kernel instead of four.
        rows = row_scale if len(row_scale) == m else row_scale.expand(m)
        columns = column_scale if len(column_scale) == n else column_scale.expand(n)
        return launch(a, b, bias, rows.contiguous(), columns.contiguous(), 1.0, 1.0)

    return run
