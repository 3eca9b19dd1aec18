# SPDX-License-Identifier: MIT
"""How attention's kernels for NVIDIA's Hopper are launched: which problems they serve, and with what.

Used by :mod:`rocm_guide.kernels.attention.forward_launch` and :mod:`rocm_guide.kernels.attention.backward`, which go on
to the general kernels where this Triton has no Gluon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from rocm_guide.kernels.arguments import is_small_work, unit_count
from rocm_guide.kernels.attention.configs import fits_tma
from rocm_guide.kernels.attention.hopper.backward_q import backward_q_hopper_kernel
from rocm_guide.kernels.attention.hopper.forward import attention_hopper_kernel
from rocm_guide.kernels.attention.problem import AttentionProblem
from rocm_guide.kernels.launch import Launch, describer, maker

if TYPE_CHECKING:
    import torch

__all__ = []

#: Queries of a tile, of which each warpgroup takes half, and keys of a tile.
QUERIES, KEYS = 128, 128
#: Tiles of K (and of V) that shared memory holds; heads whose tiles are walked together where the mask is causal, so
#: that their keys stay in the L2 (measured on an NVIDIA H100 80GB: 8 is best of 1, 8, 16 and 32).
STAGES, HEADS_TOGETHER = 2, 8
#: Registers of a thread that computes, and of the warp that fetches.
REGISTERS = (240, 24)
#: The same for the queries' part of the backward pass.
BACKWARD_KEYS, K_STAGES, V_STAGES = 64, 3, 2


def fits_hopper(problem: AttentionProblem, *others: torch.Tensor) -> bool:
    """Whether this kernel serves: 16 bits, heads of 40 to 128, no bias, ALiBi, dropout or packed sequences, and rows
    that TMA can fetch and store, those of ``others`` too. Where the mask is causal, the diagonal must go through
    corners of tiles."""
    q, k, v = problem.q, problem.k, problem.v
    _, _, _, len_q, len_k = problem.sizes
    plain = problem.bias is None and problem.slopes is None and problem.cu is None and problem.drop is None
    apart = len_k - len_q
    return (
        plain
        and q.element_size() == 2
        and q.is_floating_point()
        and 32 < problem.d <= 128
        and problem.d % 8 == 0
        and min(len_q, len_k) >= KEYS
        and (not problem.causal or (apart >= 0 and apart % KEYS == 0))
        and all(fits_tma(x) and _can_describe(x) for x in (q, k, v, *others))
    )


def _can_describe(x: torch.Tensor) -> bool:
    return all(stride > 0 or size == 1 for size, stride in zip(x.shape, x.stride(), strict=True))


def descriptor_of(x: Any, shape: Sequence[int], strides: Sequence[int], rows: int, columns: int) -> Callable[..., Any]:
    """What makes the TMA descriptor of a (batch, heads, rows, D) view of a tensor like ``x``: tiles of ``rows``."""
    # Where there is one head, or one batch, its stride may be anything: the TMA wants a multiple of 16 bytes.
    strides = [stride if size > 1 else 8 * -(-shape[3] // 8) for size, stride in zip(shape, strides, strict=True)]
    layout = gl.NVMMASharedLayout(128, 16, rank=4)
    return describer(TensorDescriptor(x, list(shape), [*strides[:3], 1], [1, 1, rows, columns], layout))


def plan_hopper_forward(problem: AttentionProblem) -> Callable[..., tuple[torch.Tensor, torch.Tensor]] | None:
    """What computes attention like this on ((q, k, v), whether the log-sum-exp is wanted); None where this kernel does
    not fit, or where a smaller one is sooner done."""
    import torch

    sequences, heads, group, len_q, len_k = problem.sizes
    if not fits_hopper(problem) or is_small_work(problem.operations):
        return None
    q, d, columns = problem.q, problem.d, problem.columns
    tiles, rows = -(-len_q // QUERIES), (sequences, heads, len_q)
    shape, strides = problem.output(len_q, heads)
    new_out, new_lse = maker(q, shape, q.dtype), maker(q, rows, torch.float32)
    # All of a plan's tensors have these shapes and strides; a descriptor asks its tensor for the address only.
    as_q, as_k, as_v = (
        descriptor_of(x, x.shape, x.stride(), n, columns)
        for x, n in ((q, QUERIES // 2), (problem.k, KEYS), (problem.v, KEYS))
    )
    as_out = descriptor_of(q, (sequences, heads, len_q, d), strides, QUERIES // 2, columns)
    constants = {
        "CAUSAL": problem.causal,
        "TOGETHER": HEADS_TOGETHER if problem.causal else 1,
        "STAGES": STAGES,
        "REGISTERS": REGISTERS,
    }
    launch = Launch(
        attention_hopper_kernel,
        (min(unit_count(q), tiles * sequences * heads),),
        (heads, group, tiles, sequences * heads, len_q, len_k, problem.scale * math.log2(math.e)),
        constants,
        {"num_warps": 4, "maxnreg": 168},
    )
    device, causal = q.device, problem.causal  # and nothing else of the problem, which holds tensors

    def run(qkv: Sequence[torch.Tensor], lse_wanted: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = new_out(), new_lse()
        counter = torch.zeros(1, dtype=torch.int32, device=device) if causal else lse
        q, k, v = qkv

        def arguments() -> tuple[Any, ...]:
            return (as_q(q), as_k(k), as_v(v), as_out(out), lse, counter, *launch.fixed, *launch.last)

        launch.described((q, k, v, out, lse, counter), arguments)
        return out, lse

    return run


def plan_hopper_q(problem: AttentionProblem, do: torch.Tensor, padded: int) -> Callable[..., None]:
    """What writes dQ of problems like this one, on (q, k, v, do, top, delta, dq). ``top`` and ``delta`` (batch, heads,
    ``padded`` rows): log2 of the sums of exponentials and the rows' delta in fp32, filled up with infinity and 0."""
    import torch

    sequences, heads, group, len_q, len_k = problem.sizes
    q, causal, columns, scale = problem.q, problem.causal, problem.columns, problem.scale
    tiles = -(-len_q // QUERIES)
    as_q, as_do, as_k, as_v = (
        descriptor_of(x, x.shape, x.stride(), rows, columns)
        for x, rows in ((q, QUERIES // 2), (do, QUERIES // 2), (problem.k, BACKWARD_KEYS), (problem.v, BACKWARD_KEYS))
    )
    shape, strides = (sequences, heads, len_q, problem.d), problem.output(len_q, heads)[1]
    as_dq = descriptor_of(q, shape, strides, QUERIES // 2, columns)
    constants = {
        "CAUSAL": causal,
        "MASKS": QUERIES // BACKWARD_KEYS if causal else int(len_k % BACKWARD_KEYS > 0),
        "TOGETHER": HEADS_TOGETHER if causal else 1,
        "K_STAGES": K_STAGES,
        "V_STAGES": V_STAGES,
        "REGISTERS": REGISTERS,
    }
    sizes = (heads, group, tiles, sequences * heads, len_q, len_k, padded, scale * math.log2(math.e), scale)
    programs, device = min(unit_count(q), tiles * sequences * heads), q.device
    launch = Launch(backward_q_hopper_kernel, (programs,), sizes, constants, {"num_warps": 4, "maxnreg": 168})

    def run(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        do: torch.Tensor,
        top: torch.Tensor,
        delta: torch.Tensor,
        dq: torch.Tensor,
    ) -> None:
        counter = torch.zeros(1, dtype=torch.int32, device=device) if causal else top

        def arguments() -> tuple[Any, ...]:
            first = (as_q(q), as_do(do), as_k(k), as_v(v), as_dq(dq), top, delta, counter)
            return (*first, *launch.fixed, *launch.last)

        launch.described((q, do, k, v, dq, top, delta, counter), arguments)

    return run
