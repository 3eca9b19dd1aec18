# SPDX-License-Identifier: MIT
"""Multiply-reduce: a GEMM for tiny blocks, without the matrix unit: multiply element by element, then sum.

``tl.dot`` works on blocks of 16 x 16 and more. For one to eight rows most of such a block is padding, and a GEMM of so
few rows is limited by reading B, not by arithmetic: ordinary vector units can keep up. So the tile is written out,
acc[i, j, k] += a[i, k] * b[k, j], and summed over k once at the end. (The published kernel of this kind was correct and
slower than its ``tl.dot`` twin; notebook 32 shows where each wins.)
Source of the idea: ``multreduce_matmul_kernel.py`` of ROCm's Triton perf-kernels,
https://github.com/ROCm/triton/tree/main_perf/python/perf-kernels.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["gemm_multiply_reduce", "reference_multiply_reduce"]


@triton.jit(do_not_specialize=["M"])
def gemm_multiply_reduce_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr, INT: tl.constexpr,
) -> None:  # fmt: skip
    """Compute columns from ``program_id(0) * BN`` on, of rows from ``program_id(1) * BM`` on."""
    col, row = tl.program_id(0) * BN, tl.program_id(1) * BM
    rn, rk = tl.arange(0, BN), tl.arange(0, BK)
    in_n = col + rn < N
    kind: tl.constexpr = tl.int32 if INT else tl.float32
    a_ptr += row.to(tl.int64) * stride_am
    b_ptr += col.to(tl.int64) * stride_bn
    rows = tl.arange(0, BM)
    # (columns, k, rows): k is summed at the end, so that the loop has no communication between lanes in it.
    acc = tl.zeros((BN, BK, BM), dtype=kind)
    for k in range(0, K, BK):
        in_k = k + rk < K
        at_b, at_a = (
            rn[:, None] * stride_bn + rk[None, :] * stride_bk,
            rk[:, None] * stride_ak + rows[None, :] * stride_am,
        )
        b = tl.load(b_ptr + at_b, mask=in_n[:, None] if EVEN_K else in_n[:, None] & in_k[None, :], other=0.0)
        in_m = (row + rows < M)[None, :]
        a = tl.load(a_ptr + at_a, mask=in_m if EVEN_K else in_m & in_k[:, None], other=0.0)
        acc += b.to(kind)[:, :, None] * a.to(kind)[None, :, :]
        a_ptr += BK * stride_ak
        b_ptr += BK * stride_bk
    total = tl.sum(acc, 1)
    if not INT:
        total *= alpha
    inside = in_n[:, None] & (row + rows < M)[None, :]
    at_c = (row + rows).to(tl.int64)[None, :] * N + col + rn[:, None]
    tl.store(c_ptr + at_c, total.to(c_ptr.dtype.element_ty), mask=inside)


class MultiplyReduceTile(NamedTuple):
    """A launch: ``bn`` columns per workgroup, ``bk`` of K per step, at most ``rows`` rows of A at once."""

    bn: int
    bk: int
    rows: int
    warps: int


#: By architecture; then by what is contiguous in B ("k": the rows of a weight; "n") and the bits of its elements.
#: A lane loads 128 bits of B at a time: ``bk`` (or ``bn``) follows from that and the lanes of a wave. Other GPUs take
#: gfx942's.
CONFIGS = {
    "gfx942": {
        ("k", 32): MultiplyReduceTile(2, 256, 4, 1),
        ("k", 16): MultiplyReduceTile(2, 512, 4, 1),
        ("k", 8): MultiplyReduceTile(2, 1024, 2, 1),
        ("n", 32): MultiplyReduceTile(64, 32, 4, 2),
        ("n", 16): MultiplyReduceTile(64, 32, 4, 2),
        ("n", 8): MultiplyReduceTile(128, 32, 4, 4),
    },
    "sm_90": {
        ("k", 32): MultiplyReduceTile(4, 256, 4, 2),
        ("k", 16): MultiplyReduceTile(4, 512, 4, 2),
        ("k", 8): MultiplyReduceTile(2, 1024, 2, 2),
        ("n", 32): MultiplyReduceTile(64, 32, 4, 4),
        ("n", 16): MultiplyReduceTile(64, 32, 4, 4),
        ("n", 8): MultiplyReduceTile(128, 32, 4, 8),
    },
    "interpreter": {(side, bits): MultiplyReduceTile(16, 32, 4, 1) for side in "kn" for bits in (32, 16, 8)},
}


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for: ``gfx942``, ``sm_90``, ``interpreter``.

    Raises:
        ValueError: on the CPU without Triton's interpreter, or on another GPU than the current one.
    """
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def unit_count(x: torch.Tensor) -> int:
    """Return the compute units of the GPU that ``x`` is on; 2 in the interpreter."""
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count) if x.device.type == "cuda" else 2


def eight_bit_floats(arch: str) -> tuple[torch.dtype, ...]:
    """Return the fp8 types that the matrix units of ``arch`` multiply: FNUZ on gfx942, none on gfx90a, else OCP."""
    ocp, fnuz = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    return {"gfx942": fnuz, "interpreter": ocp + fnuz, "gfx90a": (), "sm_80": ()}.get(arch, ocp)


def check(name: str, x: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int | None], like: torch.Tensor) -> None:
    """Check that ``x`` is a tensor of one of these types and of this shape (None: any size), where ``like`` is.

    Raises:
        ValueError: it is not; the message names it.
    """
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is {x!r:.40}: give a tensor")
    if x.dtype not in dtypes:
        raise ValueError(f"{name} is {x.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if x.ndim != len(shape) or any(s not in (None, have) for s, have in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} has shape {tuple(x.shape)}: give ({wanted})")
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, what came before on {like.device}: put them on one device")


def check_operands(a: Any, b: Any, bias: Any = None) -> str:
    """Check types, shapes and devices of a GEMM's inputs; return what is compiled for.

    Raises:
        ValueError: they do not fit together, or the architecture cannot multiply the type.
    """
    if not isinstance(a, torch.Tensor):
        raise ValueError(f"a is {a!r:.40}: give a tensor")
    arch = architecture(a)
    eights = eight_bit_floats(arch)
    check("a", a, (torch.float16, torch.bfloat16, torch.float32, torch.int8, *eights), (None, None), a)
    check("b", b, eights if a.dtype in eights else (a.dtype,), (a.shape[1], None), a)
    if a.dtype == torch.bfloat16 and arch == "interpreter":
        raise ValueError("a is bfloat16, which Triton's interpreter multiplies wrongly: give float16 or float32 here")
    if bias is not None:
        check("bias", bias, (torch.float16, torch.bfloat16, torch.float32), (b.shape[1],), a)
        if bias.stride(0) != 1:
            raise ValueError(f"bias has stride {bias.stride(0)}: call .contiguous()")
    return arch


def check_out(dtype: Any, allowed: Sequence[torch.dtype]) -> None:
    """Check that a result of type ``dtype`` can be written.

    Raises:
        ValueError: it is not among ``allowed``.
    """
    if dtype not in allowed:
        raise ValueError(f"out is {dtype}: give {' or '.join(map(str, allowed))}".replace("torch.", ""))


def check_number(name: str, value: float) -> float:
    """Check that ``value`` is a number that fp32 holds; return it as a float, for Triton compiles ints anew.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 3.4028234663852886e38:
        raise ValueError(f"{name}={value!r}: give a finite number")
    return 1.0 * value


def gemm_multiply_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
    tile: MultiplyReduceTile | None = None,
) -> torch.Tensor:
    """Return ``alpha * a @ b``, (M, N), without the matrix unit; meant for 1 to 8 rows, correct for any number.

    Args:
        a: (M, K) in float16, bfloat16, float32, int8 or fp8 (the FNUZ forms on gfx942, the OCP forms elsewhere).
        b: (K, N), the same type. Any strides; a transposed (N, K) weight is read along K.
        alpha: a factor (1 for int8).
        out_dtype: the type of the result; by default a's, bfloat16 for fp8, int32 for int8.
        tile: a launch configuration of your own.

    Raises:
        ValueError: shapes, types or devices that do not fit, or alpha not finite.
    """
    alpha, arch = check_number("alpha", alpha), check_operands(a, b)
    integer = a.dtype == torch.int8
    if integer and alpha != 1.0:
        raise ValueError(f"alpha={alpha}: int8 sums stay whole numbers, so alpha must be 1")
    if out_dtype is None:
        out_dtype = torch.int32 if integer else a.dtype if a.element_size() > 1 else torch.bfloat16
    check_out(out_dtype, (torch.int32,) if integer else (torch.float16, torch.bfloat16, torch.float32))
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=out_dtype, device=a.device)
    if m == 0 or n == 0:
        return c
    side = "k" if b.stride(0) == 1 or n == 1 else "n"
    t = tile or CONFIGS.get(arch, CONFIGS["gfx942"])[side, 8 * b.element_size()]
    rows = min(triton.next_power_of_2(m), t.rows)
    flags = {"BM": rows, "BN": t.bn, "BK": t.bk, "EVEN_K": k % t.bk == 0, "INT": integer}
    grid, sizes = (triton.cdiv(n, t.bn), triton.cdiv(m, rows)), (m, n, k, *a.stride(), *b.stride())
    gemm_multiply_reduce_kernel[grid](a, b, c, *sizes, alpha, **flags, num_warps=t.warps, num_stages=2)
    return c


def reference_multiply_reduce(a: torch.Tensor, b: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """Return the same in float64, written as it is computed: broadcast, multiply, sum.

    >>> reference_multiply_reduce(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return alpha * (a.double()[:, :, None] * b.double()[None, :, :]).sum(1)
