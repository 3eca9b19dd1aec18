# SPDX-License-Identifier: MIT
"""Launch configurations of the row kernels, by architecture: data, so that tuning touches no kernel.

gfx942: chosen by compiling (at most 64 VGPRs in forward kernels up to 16,384 columns of 16 bits, 128 in backward ones,
so that 8 or 4 waves fit on a SIMD; 8 to 16 elements per lane; ``rocm-guide kernels table`` shows the outcome). sm_90:
the fastest on an NVIDIA H100 80GB, torch 2.11, triton 3.6 (benchmarks/sweeps/rows.py; ``prefetch``:
benchmarks/sweeps/layer_norm.py; ``last_first``: benchmarks/kernels/row_kernels.py).
"""

from __future__ import annotations

from rocm_guide.kernels.rows.tile import RowTile

__all__ = []

Tiles = dict[str, tuple[RowTile, ...]]

_GFX942_FORWARD = (
    RowTile(128, 16, 4),
    RowTile(512, 8, 4),
    RowTile(1024, 4, 4),
    RowTile(2048, 2, 4),
    RowTile(4096, 1, 4),
    RowTile(8192, 1, 8),
    RowTile(32768, 1, 16),
    RowTile(8192, 1, 16, blocked=True),
)
_SM90_SHORT = (RowTile(128, 16, 4), RowTile(512, 4, 4), RowTile(1024, 2, 4))
_SM90_LONG = (RowTile(32768, 1, 32), RowTile(16384, 1, 32, blocked=True))

SOFTMAX_FORWARD: Tiles = {
    "gfx942": _GFX942_FORWARD,
    "sm_90": (*_SM90_SHORT, RowTile(2048, 1, 4), RowTile(16384, 1, 8), *_SM90_LONG),
}
SOFTMAX_BACKWARD: Tiles = {
    "gfx942": _GFX942_FORWARD,
    "sm_90": (
        *_SM90_SHORT,
        RowTile(2048, 1, 4),
        RowTile(4096, 1, 8),
        RowTile(16384, 1, 16, max_rows=64),
        RowTile(16384, 1, 8, max_rows=512, aligned=True, registers=128),
        RowTile(16384, 1, 16, last_first=True),
        *_SM90_LONG,
    ),
}
RMS_NORM_FORWARD: Tiles = {
    "gfx942": _GFX942_FORWARD,
    "sm_90": (
        *_SM90_SHORT,
        RowTile(2048, 1, 4, max_rows=256),
        RowTile(2048, 2, 4),
        RowTile(4096, 1, 8),
        RowTile(16384, 1, 16),
        *_SM90_LONG,
    ),
}
LAYER_NORM_FORWARD: Tiles = {
    "gfx942": (
        RowTile(128, 16, 4),
        RowTile(512, 4, 4),
        RowTile(1024, 2, 4),
        RowTile(2048, 1, 4),
        RowTile(4096, 1, 4, defer_weight=True),
        RowTile(8192, 1, 8, defer_weight=True),
        RowTile(32768, 1, 16, defer_weight=True),
        RowTile(8192, 1, 16, blocked=True),
    ),
    "sm_90": (
        *_SM90_SHORT,
        RowTile(2048, 1, 4, max_rows=256),
        RowTile(2048, 2, 4),
        RowTile(4096, 1, 16, max_rows=16),
        RowTile(4096, 1, 8),
        RowTile(8192, 1, 16, max_rows=256),
        RowTile(8192, 1, 16, defer_weight=True),
        RowTile(16384, 1, 8, max_rows=128),
        RowTile(16384, 1, 16, max_rows=512, defer_weight=True, registers=64),
        RowTile(16384, 1, 8, defer_weight=True, registers=128, prefetch=2),
        *_SM90_LONG,
    ),
}
_GFX942_BACKWARD = (
    RowTile(128, 16, 4, per_unit=4),
    RowTile(512, 4, 4, per_unit=4),
    RowTile(1024, 2, 4, per_unit=4),
    RowTile(2048, 1, 4, per_unit=4),
    RowTile(4096, 1, 8, per_unit=2),
    RowTile(8192, 1, 8, per_unit=2, aligned=True),
    RowTile(8192, 1, 16),
)
_SM90_BACKWARD_SHORT = (
    RowTile(128, 16, 4, per_unit=4),
    RowTile(512, 8, 4, per_unit=4),
    RowTile(1024, 4, 4, per_unit=4),
    RowTile(2048, 1, 8, max_rows=132),
    RowTile(2048, 4, 8, stages=3),
    RowTile(4096, 1, 8, max_rows=132),
    RowTile(4096, 2, 8, stages=3),
)
RMS_NORM_BACKWARD: Tiles = {
    "gfx942": (
        *_GFX942_BACKWARD,
        RowTile(16384, 1, 16, aligned=True),
        RowTile(8192, 1, 16, blocked=True),
    ),
    "sm_90": (
        *_SM90_BACKWARD_SHORT,
        RowTile(8192, 1, 16, max_rows=132),
        RowTile(8192, 1, 8, stages=3),
        RowTile(16384, 1, 32, max_rows=1),
        RowTile(16384, 1, 16, max_rows=64, split=True),
        RowTile(16384, 1, 16),
        RowTile(16384, 1, 32, blocked=True),
    ),
}
LAYER_NORM_BACKWARD: Tiles = {
    "gfx942": (
        *_GFX942_BACKWARD,
        RowTile(16384, 1, 16, reload=True, aligned=True),
        RowTile(8192, 1, 16, blocked=True),
    ),
    "sm_90": (
        *_SM90_BACKWARD_SHORT,
        RowTile(8192, 1, 32, max_rows=132),
        RowTile(8192, 1, 8, stages=3),
        RowTile(16384, 1, 32, max_rows=1),
        RowTile(16384, 1, 16, max_rows=64, split=True),
        RowTile(16384, 1, 16, max_rows=512, reload=True),
        RowTile(16384, 1, 16, reload=True, only_16_bit=True, prefetch=1),
        RowTile(16384, 1, 8, reload=True, prefetch=1),
        RowTile(16384, 1, 32, blocked=True),
    ),
}
