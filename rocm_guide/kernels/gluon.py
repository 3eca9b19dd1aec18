# SPDX-License-Identifier: MIT
"""What the kernels written in Gluon share: names that differ between Triton's releases, and words that it lacks.

Gluon is Triton's language for what its compiler otherwise decides: layouts, shared memory, which warps do what. The
kernels for NVIDIA's Hopper use it (rocm_guide/kernels/gemm/hopper.py, rocm_guide/kernels/attention/hopper); no kernel
for AMD's GPUs does. Source: https://triton-lang.org/main/gluon/index.html.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

__all__ = []

#: Names of Triton 3.9 and of 3.6: a tile from or to global memory by TMA, and a barrier of the warps of a partition.
fetch_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global
barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.constexpr_function
def several(count, shape):
    """The shape of ``count`` tiles."""
    return [count, *shape]


@gluon.jit
def to_int32(x):
    """``x`` as a number of the kernel, not of the compiler: what a loop carries must be one."""
    return gl.to_tensor(x)


@gluon.jit
def to_int64(x):
    """``x`` in 64 bits."""
    return gl.to_tensor(x).to(gl.int64)


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers in shared memory, each of which ARRIVALS partitions (or one fetch) complete."""
    found = gl.allocate_shared_memory(gl.int64, [COUNT, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        hopper.mbarrier.init(found.index(i), count=ARRIVALS)
    return found
