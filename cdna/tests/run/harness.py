# SPDX-License-Identifier: MIT
"""Run a few instructions on registers that a test fills in."""

import numpy as np

from cdna.run import prepare
from cdna.run.state import ALL_LANES, bits_of

__all__ = ["SPECIAL32", "bits", "lanes", "text_of"]

SPECIAL32 = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3.4e38, 65504, 65520, 1e-8, 240, 248, -0.5],
    np.float32,
)


def text_of(code, lds=0, threads=64, extra=""):
    """A kernel without arguments; every register may be named."""
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type test,@function
test:
{code}
  s_endpgm
.amdhsa_kernel test
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size 64
  .amdhsa_next_free_vgpr 512
  .amdhsa_accum_offset 256
  .amdhsa_float_denorm_mode_32 3
  .amdhsa_float_denorm_mode_16_64 3
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
{extra}
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .max_flat_workgroup_size: {threads}
    .name:           test
.end_amdgpu_metadata
"""


def bits(x):
    """64 lanes of any type as rows of uint32."""
    x = np.ascontiguousarray(np.broadcast_to(x, (64, *np.shape(x)[1:])) if np.ndim(x) < 2 else x)
    if x.dtype.itemsize < 4:
        x = x.view(f"u{x.dtype.itemsize}").astype(np.uint32)
    return x.view(np.uint32).reshape(64, -1).T


def lanes(code, v=None, s=None, mask=None, lds=0, extra="", **options):
    """Execute ``code`` on one wave: ``v`` and ``s`` give registers, ``mask`` the lanes (booleans). Returns the wave.

    ``options`` are those of ``prepare``.
    """
    machine = prepare(text_of(code, lds, extra=extra), 1, [], **options).machine
    w = machine.start_group().waves[0]
    for first, value in (v or {}).items():
        for j, row in enumerate(bits(value)):
            if w.V[first + j] is not None:
                w.V[first + j][:] = row
                w.valid[first + j] = ALL_LANES
    for n, value in (s or {}).items():
        w.s[n] = value
    if mask is not None:
        w.set_exec(bits_of(mask))
    with np.errstate(all="ignore"):
        while w.status == "ready":
            machine.step(w)
    return w
