# SPDX-License-Identifier: MIT
"""General matrix multiplication, C = act(alpha * A @ B + bias), for every type that the matrix units take.

Each workgroup computes one tile of C: it walks along K, multiplies a (BM, BK) piece of A with a (BK, BN) piece of B on
the matrix units, and adds into fp32 (int32 for int8). Any strides are accepted, so a transposed operand costs no copy.
Source of the tile order: Triton's matrix multiplication tutorial,
https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html; of the XCD order: "ROCm workload
optimization guide", https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_number,
    check_same_device,
    check_shape,
    is_small_work,
    unit_count,
)
from rocm_guide.kernels.gemm.configs import GemmTile, is_aligned, pick_gemm_tile, promotion_interval, units_of
from rocm_guide.kernels.gemm.tiles import activate, hint_multiple, tile_dot, tile_order
from rocm_guide.kernels.launch import Launch, describer, maker, planned
from rocm_guide.kernels.tracing import traced

if TYPE_CHECKING:
    import torch

__all__ = ["gemm", "reference_gemm"]

#: The epilogues.
ACTIVATIONS = ("none", "relu", "silu", "gelu")


@triton.jit
def gemm_kernel(
    a, b, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, XCDS: tl.constexpr,
    A_DESC: tl.constexpr, B_DESC: tl.constexpr, EVEN_K: tl.constexpr, INT: tl.constexpr,
    PRECISION: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr, ACT: tl.constexpr,
    UNITS: tl.constexpr, EXACT: tl.constexpr = 0,
) -> None:  # fmt: skip
    """One tile of C = act(alpha * A @ B + bias) per program. C has contiguous rows, ``stride_cm`` apart.

    ``UNITS``: see ``tile_dot``; the one of N is of ``stride_cm`` too.
    """
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile_m, tile_n = tile_order(tl.program_id(0), tiles_m, tiles_n, GROUP, XCDS)
    row, col = tile_m * BM, tile_n * BN
    acc = tile_dot(
        a, b, row, col, 0, K, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BM, BN, BK, A_DESC, B_DESC, EVEN_K, INT, PRECISION, UNITS, EXACT,
    )  # fmt: skip
    N, stride_cm = hint_multiple(N, UNITS[1]), hint_multiple(stride_cm, UNITS[1])
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    in_n = col + rn < N
    if EPILOGUE:
        acc = acc.to(tl.float32) * alpha
        if BIAS:
            acc += tl.load(bias_ptr + col + rn, mask=in_n, other=0.0).to(tl.float32)[None, :]
        acc = activate(acc, ACT)
    c_ptr += row.to(tl.int64) * stride_cm + col
    inside = (row + rm < M)[:, None] & in_n[None, :]
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=inside)


def operand_maker(x: torch.Tensor, block: tuple[int, int], wanted: bool) -> tuple[Callable[[torch.Tensor], Any], int]:
    """What turns a matrix like ``x`` into the kernel's argument: itself (0), a descriptor (1) or one of x.T (2)."""
    if wanted and x.data_ptr() % 16 == 0 and min(x.shape) > 0:
        from triton.tools.tensor_descriptor import TensorDescriptor

        for kind, view, size in ((1, x, list(block)), (2, x.T, list(reversed(block)))):
            if view.stride(1) == 1 and view.stride(0) * x.element_size() % 16 == 0 and view.stride(0) >= view.shape[1]:
                # A descriptor asks its tensor for the address and the type only, so x stands for x.T too.
                return describer(TensorDescriptor(view, list(view.shape), list(view.stride()), size)), kind
    return lambda tensor: tensor, 0


def eight_bit_floats(arch: str) -> tuple[torch.dtype, ...]:
    """The fp8 types that the matrix units of ``arch`` multiply: FNUZ on gfx942, none on gfx90a, else OCP."""
    import torch

    ocp, fnuz = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    return {"gfx942": fnuz, "interpreter": ocp + fnuz, "gfx90a": (), "sm_80": ()}.get(arch, ocp)


def check_operands(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, arch: str) -> None:
    """Types, shapes and devices of a GEMM's inputs.

    Raises:
        KernelError: they do not fit together, or ``arch`` cannot multiply the type.
    """
    import torch

    eights = eight_bit_floats(arch)
    check_dtype("a", a, (torch.float16, torch.bfloat16, torch.float32, torch.int8, *eights))
    check_dtype("b", b, (a.dtype,) if a.dtype not in eights else eights)
    check_shape("a", a, (None, None))
    check_shape("b", b, (a.shape[1], None))
    check_same_device(a=a, b=b, bias=bias)
    if a.dtype == torch.bfloat16 and arch == "interpreter":
        raise KernelError("a is bfloat16, which Triton's interpreter multiplies wrongly: give float16 or float32 here")
    if bias is not None:
        check_dtype("bias", bias, (torch.float16, torch.bfloat16, torch.float32))
        check_shape("bias", bias, (b.shape[1],))
        if bias.stride(0) != 1:
            raise KernelError(f"bias has stride {bias.stride(0)}: call .contiguous()")


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tf32: bool = False,
    tile: GemmTile | None = None,
) -> torch.Tensor:
    """``act(alpha * a @ b + bias)``, without autograd: for training see :mod:`rocm_guide.kernels.gemm.linear`.

    Args:
        a: (M, K) in float16, bfloat16, float32, int8 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type (the two fp8 types mix). Any strides for both: pass ``weight.T`` as it is.
        bias: (N,), floating point, added before the activation.
        activation: ``none``, ``relu``, ``silu`` or ``gelu``.
        alpha: a factor, for example the product of two fp8 scales.
        out_dtype: the type of C; by default a's, bfloat16 for fp8, int32 for int8.
        tf32: let float32 operands lose mantissa bits (10 remain) for speed, where the hardware has that.
        tile: a launch configuration of your own; by default the one of the table that is expected to be fastest.

    Returns:
        C, (M, N), contiguous.

    Raises:
        KernelError: shapes, types or devices that do not fit, an unknown activation, alpha not finite.
    """
    alpha = check_number("alpha", alpha)
    if traced():
        import torch

        return torch.ops.rocm_guide.gemm(a, b, bias, activation, alpha, out_dtype, tf32)
    return planned(plan_gemm, (a, b, bias), activation, alpha == 1.0, out_dtype, tf32, tile)(a, b, bias, alpha)


def usual_type(a: torch.Tensor, plain: bool) -> torch.dtype:
    """The type of C: that of A, for fp8 bfloat16, for int8 int32 if there is no epilogue (``plain``)."""
    import torch

    whole = a.dtype == torch.int8 and plain
    return a.dtype if a.element_size() > 1 else torch.int32 if whole else torch.bfloat16


def plan_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    no_factor: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,
    tile: GemmTile | None,
    shape: Sequence[int] = (),
) -> Callable[..., torch.Tensor]:
    import torch

    arch = architecture(a)
    check_operands(a, b, bias, arch)
    if activation not in ACTIVATIONS:
        raise KernelError(f"activation={activation!r}: give one of {', '.join(ACTIVATIONS)}")
    (m, k), n, integer, device = a.shape, b.shape[1], a.dtype == torch.int8, a.device
    plain = activation == "none" and bias is None and no_factor
    if out_dtype is None:
        out_dtype = usual_type(a, plain)
    allowed = torch.float16, torch.bfloat16, torch.float32, *((torch.int32,) if integer and plain else ())
    check_dtype("out", torch.empty(0, dtype=out_dtype, device=device), allowed)
    new_c = maker(a, shape or (m, n), out_dtype)
    if m == 0 or n == 0:
        return lambda *_: new_c()
    bits, aligned, weight = 8 * a.element_size(), is_aligned(a, b), b.stride(0) == 1
    kind: dict[str, Any] = {"aligned": aligned, "weight": weight, "activation": activation}
    t = tile or pick_gemm_tile(m, n, bits, arch, unit_count(a), **kind)
    described = t.descriptors and (tile is not None or not is_small_work(2 * m * n * k))
    (as_a, a_kind), (as_b, b_kind) = (
        operand_maker(x, block, described) for x, block in ((a, (t.bm, t.bk)), (b, (t.bk, t.bn)))
    )
    constants = {
        "BM": t.bm, "BN": t.bn, "BK": t.bk, "GROUP": t.group, "XCDS": 8 if arch == "gfx942" else 1,
        "A_DESC": a_kind, "B_DESC": b_kind, "EVEN_K": k % t.bk == 0, "INT": integer,
        "PRECISION": "tf32" if tf32 else "ieee", "EPILOGUE": not plain, "BIAS": bias is not None, "ACT": activation,
        "EXACT": promotion_interval(a, arch, t), "UNITS": units_of(m, n, k, *a.stride(), *b.stride()),
    }  # fmt: skip
    grid, sizes = (triton.cdiv(m, t.bm) * triton.cdiv(n, t.bn),), (m, n, k, *a.stride(), *b.stride(), n)
    launch = Launch(gemm_kernel, grid, sizes, constants, t.options(arch))

    def run(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, alpha: float) -> torch.Tensor:
        c = new_c()
        rest = c if bias is None else bias
        if not (a_kind or b_kind):
            launch(a, b, c, rest, floats=(alpha,))
            return c
        launch.described(
            (a, b, c, rest), lambda: (as_a(a), as_b(b), c, rest, *launch.fixed, alpha, *launch.last), alpha
        )
        return c

    return run


def reference_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    alpha: float = 1.0,
) -> torch.Tensor:
    """The same in float64, as torch expressions: what the kernel is judged against.

    >>> import torch
    >>> reference_gemm(torch.tensor([[1.0, -2.0]]), torch.eye(2), activation="relu").tolist()
    [[1.0, 0.0]]
    """
    import torch

    acts: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "none": lambda x: x,
        "relu": torch.relu,
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
    }
    c = alpha * (a.double() @ b.double())
    return acts[activation](c if bias is None else c + bias.double())
