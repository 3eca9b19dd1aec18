# SPDX-License-Identifier: MIT
"""The BLAS call that PyTorch makes of a matrix product: letters, M/N/K, leading dimensions, batch.

BLAS stores matrices column by column, PyTorch row by row. A row-major matrix read column by column is its transpose, so
PyTorch asks BLAS for ``C^T = B^T A^T``: the operands change places, and M and N with them. Everything here follows from
sizes and strides alone, so it works on the meta device.
Source: PyTorch, aten/src/ATen/native/cuda/Blas.cpp and cuBlasCommonArgs.h (https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop.gemm import TYPES, Gemm

__all__ = ["CUDA_RULES", "BlasRules"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Sizes, strides (in elements) and element type of a tensor: all that decides how BLAS is called.

    >>> Matrix((4, 8), (8, 1), "Half").contiguous, Matrix((4, 8), (1, 4), "Half").contiguous
    (True, False)
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; the stride of a dimension of size 1 does not matter."""
        expected = 1
        for size, stride in zip(reversed(self.size), reversed(self.stride), strict=True):
            if size != 1:
                if stride != expected:
                    return False
                expected *= size
        return True

    @property
    def dense(self) -> bool:
        """A permutation of a row-major matrix: no gaps and no overlap."""
        order = sorted(range(len(self.size)), key=self.stride.__getitem__, reverse=True)
        size, stride = (tuple(x[i] for i in order) for x in (self.size, self.stride))
        return Matrix(size, stride, self.dtype).contiguous

    def cloned(self) -> Matrix:
        """Return the contiguous copy that PyTorch makes when BLAS cannot read the tensor as it lies."""
        strides, step = [], 1
        for size in reversed(self.size):
            strides.append(step)
            step *= max(size, 1)
        return Matrix(self.size, tuple(reversed(strides)), self.dtype)


@dataclass(frozen=True, slots=True)
class BlasRules:
    """Points on which platforms and PyTorch releases differ; the defaults are ROCm's, :data:`CUDA_RULES` are NVIDIA's.

    ``fused_bias``: a bias goes into the GEMM (hipBLASLt, cuBLASLt), for the types ``fused_bias_types``.
    ``fused_row_bias``: so does a bias of shape [1, n].
    ``fused_bias_needs_rows``: only when the first operand has more than one row and column. torch 2.11 on an H100
    has no such condition, sources from late 2025 do: compare one recorded line with the plan and set it accordingly.
    ``tf32``: ``torch.backends.cuda.matmul.allow_tf32`` is on, so float32 products are called tf32.
    ``scaled``: 8-bit products with scales are tunable.
    ``cudnn_attention``: cuDNN is one of the fused attention kernels.
    """

    fused_bias: bool = True
    fused_bias_types: tuple[str, ...] = ("float", "tf32", "Half", "BFloat16")
    fused_row_bias: bool = False
    fused_bias_needs_rows: bool = False
    tf32: bool = False
    scaled: bool = True
    cudnn_attention: bool = False


ROCM_RULES = BlasRules()
#: What an NVIDIA H100 with torch 2.11 was seen to do (benchmarks/results, tunableop_recorder).
CUDA_RULES = BlasRules(
    fused_bias_types=("float", "tf32", "double", "Half", "BFloat16"),
    fused_row_bias=True,
    scaled=False,
    cudnn_attention=True,
)

_NAMES = {row[0]: name for name, row in TYPES.items() if name not in ("tf32", "Float8_e8m0fnu", "Float4_e2m1fn_x2")}


def torch_type_name(dtype: torch.dtype | str, *, tf32: bool = False) -> str:
    """Return the name TunableOp gives an element type: ``torch.float16`` is ``Half``.

    Raises:
        GuideError: BLAS has no product for the type (an integer, a boolean).

    >>> torch_type_name("float16"), torch_type_name("float32", tf32=True)
    ('Half', 'tf32')
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise GuideError(f"dtype={name}: TunableOp tunes {', '.join(_NAMES)}")
    return "tf32" if tf32 and name == "float32" else _NAMES[name]


def matrix_of(tensor: torch.Tensor, rules: BlasRules = ROCM_RULES) -> Matrix:
    """Return sizes, strides and element type of a torch tensor, on any device including meta."""
    return Matrix(tuple(tensor.shape), tuple(tensor.stride()), torch_type_name(tensor.dtype, tf32=rules.tf32))


def _prepare(x: Matrix) -> tuple[Matrix, bool]:
    """Return the operand that BLAS gets, and whether it is row-major (True) or column-major (False)."""
    if x.dense:
        return x, x.contiguous
    (rows, cols), (down, right) = x.size, x.stride
    if down == 1 and right >= max(1, rows):
        return x, False
    if right == 1 and down >= max(1, cols):
        return x, True
    return x.cloned(), True


def mm_gemm(a: Matrix, b: Matrix, *, kind: str = "Gemm") -> Gemm | None:
    """Return the BLAS call behind ``torch.mm(a, b)`` for a [m, k] and b [k, n]; None when there is nothing to compute.

    >>> row = Matrix((512, 2048), (2048, 1), "float"), Matrix((2048, 1024), (1024, 1), "float")
    >>> mm_gemm(*row).line()
    'GemmTunableOp_float_NN,nn_1024_512_2048_ld_1024_2048_1024'
    >>> weight = Matrix((2048, 1024), (1, 2048), "float")  # what nn.Linear passes: W transposed, W is [1024, 2048]
    >>> mm_gemm(row[0], weight).params
    'tn_1024_512_2048_ld_2048_2048_1024'
    """
    if 0 in (*a.size, *b.size):
        return None
    # The result is new and row-major, so BLAS computes its transpose with the operands exchanged.
    first, first_rows = _prepare(b)
    second, second_rows = _prepare(a)
    lda = first.stride[0 if first_rows else 1]
    ldb = second.stride[0 if second_rows else 1]
    letters = ("n" if first_rows else "t", "n" if second_rows else "t")
    # The result's leading dimension is the row length of a new [rows, cols] tensor.
    ld = (lda, ldb, b.size[1])
    return Gemm(kind, (a.dtype,), *letters, b.size[1], a.size[0], b.size[0], ld=ld)


def addmm_gemm(
    bias: Matrix, a: Matrix, b: Matrix, rules: BlasRules = ROCM_RULES, *, beta: float = 1.0, in_place: bool = False
) -> Gemm | None:
    """Return the BLAS call behind ``torch.addmm(bias, a, b)``, which is what nn.Linear with a bias runs.

    >>> x, w = Matrix((4, 8), (8, 1), "Half"), Matrix((8, 16), (1, 8), "Half")
    >>> addmm_gemm(Matrix((16,), (1,), "Half"), x, w).line()
    'GemmAndBiasTunableOp_Half_TN,tn_16_4_8_ld_8_8_16'
    """
    fused = (
        rules.fused_bias
        and beta == 1.0
        and not in_place
        and (len(bias.size) == 1 or (rules.fused_row_bias and bias.size == (1, b.size[1])))
        and bias.contiguous
        and bias.size[-1] == b.size[1]
        and a.dtype in rules.fused_bias_types
        and min(b.size) > 1
        and (min(a.size) > 1 or not rules.fused_bias_needs_rows)
    )
    return mm_gemm(a, b, kind="GemmAndBias" if fused else "Gemm")


def _prepare_batch(x: Matrix, swapped: bool, rows: int, cols: int) -> tuple[bool, int]:
    """Return whether BLAS must transpose the batched operand, and its leading dimension."""
    fast, lead = (2, 1) if swapped else (1, 2)
    if x.stride[fast] == 1 and x.stride[lead] >= max(1, rows):
        return False, x.stride[lead]
    if x.stride[lead] == 1 and x.stride[fast] >= max(1, cols):
        return True, x.stride[fast]
    usable = x.contiguous and x.stride[1] != 0 and x.stride[2] != 0
    return not swapped, (x if usable else x.cloned()).stride[1]


def bmm_gemm(a: Matrix, b: Matrix) -> Gemm | None:
    """Return the BLAS call behind ``torch.bmm(a, b)`` for a [batch, m, k] and b [batch, k, n].

    >>> q, k = Matrix((4, 32, 64), (2048, 64, 1), "float"), Matrix((4, 64, 16), (1024, 16, 1), "float")
    >>> bmm_gemm(q, k).line()
    'GemmStridedBatchedTunableOp_float_NN,nn_16_32_64_B_4_ld_16_64_16'
    """
    if 0 in (*a.size, *b.size):
        return None
    batch, rows, inner = a.size
    cols = b.size[2]
    # The new result is row-major. BLAS can also read a single column as column-major, and PyTorch tests that first.
    swapped = cols != 1
    m, n, first, second = (cols, rows, b, a) if swapped else (rows, cols, a, b)
    transa, lda = _prepare_batch(first, swapped, m, inner)
    transb, ldb = _prepare_batch(second, swapped, inner, n)
    kind, many = ("Gemm", None) if batch == 1 else ("GemmStridedBatched", batch)
    letters = ("t" if transa else "n", "t" if transb else "n")
    return Gemm(kind, (a.dtype,), *letters, m, n, inner, batch=many, ld=(lda, ldb, cols))


def mv_gemm(a: Matrix, x: Matrix) -> Gemm | None:
    """Return the BLAS call behind ``torch.mv(a, x)``: a GEMM with one row in 16 bits, else a GEMV, which is not tuned.

    >>> mv_gemm(Matrix((56, 272), (272, 1), "Half"), Matrix((272,), (1,), "Half")).params
    'nn_1_56_272_ld_1_272_1'
    >>> mv_gemm(Matrix((56, 272), (272, 1), "float"), Matrix((272,), (1,), "float")) is None
    True
    """
    if a.dtype not in ("Half", "BFloat16") or 0 in a.size:
        return None
    (rows, cols), (down, right) = a.size, a.stride
    if down == 1 and right >= max(1, rows):
        transb, ldb = "t", right
    else:
        transb, ldb = "n", down if right == 1 and down >= max(1, cols) else cols
    return Gemm("Gemm", (a.dtype,), "n", transb, 1, rows, cols, ld=(max(x.stride[0], 1), ldb, 1))


def scaled_mm_gemm(
    a: Matrix,
    b: Matrix,
    out_dtype: str,
    rules: BlasRules = ROCM_RULES,
    *,
    rowwise: bool = False,
    bias: str | None = None,
) -> Gemm | None:
    """Return the BLAS call behind ``torch._scaled_mm(a, b)`` for 8-bit a [m, k] row-major and b [k, n] column-major.

    >>> a, b = Matrix((32, 64), (64, 1), "Float8_e4m3fnuz"), Matrix((64, 48), (1, 64), "Float8_e4m3fnuz")
    >>> scaled_mm_gemm(a, b, "BFloat16").line()
    'ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,tn_48_32_64_ld_64_64_48_rw_0_bias_None'
    """
    if not rules.scaled:
        return None
    plain = mm_gemm(a, b, kind="ScaledGemm")
    # The operands have changed places, and their types with them.
    return plain and replace(plain, dtypes=(b.dtype, a.dtype, out_dtype), rowwise=rowwise, bias=bias or "None")
