# SPDX-License-Identifier: MIT
"""What some kernels say in PTX on NVIDIA's Hopper (sm_90): fetching into the L2, overlapping launches, and more.

On every other GPU these functions are never compiled: a constexpr of the launch configuration asks for them.
Source: PTX ISA, "cp.async.bulk.prefetch", "discard" and "griddepcontrol",
https://docs.nvidia.com/cuda/parallel-thread-execution/.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["fetch_span", "let_next_kernel_start", "to_float32"]


@triton.jit
def fetch_span(ptr, nbytes):
    """One thread asks for ``nbytes`` from ``ptr`` on to be fetched into the L2; both multiples of 16."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
        "@p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r",
        [ptr.to(tl.int64), tl.cast(nbytes, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def drop_lines(lines):
    """Forget the 128 bytes at each of these addresses: what the L2 holds of them need not go to memory any more."""
    tl.inline_asm_elementwise(
        "discard.global.L2 [$1], 128; mov.u32 $0, 0;",
        "=r,l",
        [lines.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def to_float32(x, PTX: tl.constexpr):
    """``x`` in fp32. With PTX two bf16 take two instructions, where the compiler (Triton 3.6) makes three."""
    if PTX and x.dtype == tl.bfloat16:
        x = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], dtype=tl.float32, is_pure=True, pack=2
        )
    return x.to(tl.float32)


@triton.jit
def wait_for_kernel_before():
    """Wait until the kernel before this one has ended; from here on, everything that it wrote may be read.

    For a kernel launched with ``launch_pdl``, which starts while the one before it is still finishing: what it does
    before this line must not depend on that one.
    """
    tl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def let_next_kernel_start(left):
    """The next kernel may start once every workgroup of this one has come here with ``left`` = 0, or has ended."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.eq.s32 p, $1, 0; @p griddepcontrol.launch_dependents; mov.u32 $0, 0; }",
        "=r,r",
        [left],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
