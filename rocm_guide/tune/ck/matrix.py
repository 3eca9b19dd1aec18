# SPDX-License-Identifier: MIT
"""The matrix instruction that an instance becomes on gfx942: CK's choice by type and size.

Source: CK, include/ck/tensor_operation/gpu/warp/xdlops_gemm.hpp, MfmaSelector.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Mfma", "mfma_of"]


class Mfma(NamedTuple):
    """A matrix instruction of gfx942: its name, the rows, columns and depth of one, and the depth that a lane holds.

    ``blocks`` lie side by side in one instruction; for more than one the depth is not shared out among the lanes.
    """

    name: str
    m: int
    n: int
    k: int
    k_per_blk: int
    blocks: int = 1


_MFMA: dict[tuple[str, int, int], Mfma] = {
    ("F16", 32, 32): Mfma("v_mfma_f32_32x32x8_f16", 32, 32, 8, 4),
    ("F16", 16, 16): Mfma("v_mfma_f32_16x16x16_f16", 16, 16, 16, 4),
    ("F16", 64, 64): Mfma("v_mfma_f32_32x32x4_2b_f16", 32, 32, 4, 4, 2),
    ("F16", 32, 64): Mfma("v_mfma_f32_32x32x4_2b_f16", 32, 32, 4, 4, 2),
    ("F16", 16, 64): Mfma("v_mfma_f32_16x16x4_4b_f16", 16, 16, 4, 4, 4),
    ("F16", 8, 64): Mfma("v_mfma_f32_4x4x4_16b_f16", 4, 4, 4, 4, 16),
    ("F16", 4, 64): Mfma("v_mfma_f32_4x4x4_16b_f16", 4, 4, 4, 4, 16),
    ("BF16", 32, 32): Mfma("v_mfma_f32_32x32x8_bf16", 32, 32, 8, 4),
    ("BF16", 16, 16): Mfma("v_mfma_f32_16x16x16_bf16", 16, 16, 16, 4),
    ("F32", 32, 32): Mfma("v_mfma_f32_32x32x2_f32", 32, 32, 2, 1),
    ("F32", 16, 16): Mfma("v_mfma_f32_16x16x4_f32", 16, 16, 4, 1),
    ("F8", 32, 32): Mfma("v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16, 8),
    ("F8", 16, 16): Mfma("v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32, 8),
    ("I8", 32, 32): Mfma("v_mfma_i32_32x32x16_i8", 32, 32, 16, 8),
    ("I8", 16, 16): Mfma("v_mfma_i32_16x16x32_i8", 16, 16, 32, 8),
}


def mfma_of(dtype: str, rows: int, columns: int) -> Mfma | None:
    """Return the instruction that CK's ``MfmaSelector`` takes on gfx942, or None where it knows none.

    Source: CK, tensor_operation/gpu/warp/xdlops_gemm.hpp.

    >>> mfma_of("F16", 32, 32).name, mfma_of("I8", 16, 16).k, mfma_of("I8", 8, 64)
    ('v_mfma_f32_32x32x8_f16', 32, None)
    """
    return _MFMA.get((dtype, rows, columns))
