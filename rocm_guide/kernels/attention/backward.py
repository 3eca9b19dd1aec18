# SPDX-License-Identifier: MIT
r"""Attention, backward: dQ, dK, dV and the gradient of a matrix bias from the output and its log-sum-exp.

Three launches: :math:`\Delta_i = \sum_d do_{id}\, o_{id}` (which is what softmax's Jacobian needs of a whole row), then
the keys' part and the queries' part, each in a file of its own. Dropout asks the same random bits again.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_same_device,
    check_shape,
    is_small_work,
)
from rocm_guide.kernels.attention.backward_kv import attention_backward_kv_kernel
from rocm_guide.kernels.attention.backward_q import attention_backward_q_kernel
from rocm_guide.kernels.attention.configs import BACKWARD_CONFIGS, check_tile, descriptor_room, fits_tma, pick_config
from rocm_guide.kernels.attention.problem import AttentionProblem, attention_problem, heads_second
from rocm_guide.kernels.attention.tile import head_start
from rocm_guide.kernels.direct import memory_from

if TYPE_CHECKING:
    import torch

__all__ = []

#: Rows of a program of :func:`attention_delta_kernel`.
DELTA_ROWS = 64


@triton.jit
def attention_delta_kernel(
    out,
    do,
    delta,
    lse,
    top,
    strides,
    heads,
    rows,
    padded,
    D: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """delta = (out * do) summed over the head, in fp32, for BLOCK rows of one head.

    With ``top``, the heads of ``delta`` are ``padded`` rows apart, a multiple of BLOCK, and ``top`` gets the same with
    log2 of the sum of exponentials; a row beyond the end is like one that saw no key.
    """
    apart = rows if top is None else padded
    tiles = tl.cdiv(apart, BLOCK)  # one axis: the second one of a grid ends at 65,535
    bh = (tl.program_id(0) // tiles).to(tl.int64)
    batch, head = bh // heads, bh % heads
    i = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, COLUMNS)
    inside = (i[:, None] < rows) & (columns[None, :] < D)
    out_base = head_start(out, strides[0], batch, head, 0) + i[:, None].to(tl.int64) * strides[0][2]
    do_base = head_start(do, strides[1], batch, head, 0) + i[:, None].to(tl.int64) * strides[1][2]
    product = tl.load(out_base + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    product *= tl.load(do_base + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + bh * apart + i, tl.sum(product, 1), mask=i < apart)
    if top is not None:
        high = tl.load(lse + bh * rows + i, mask=i < rows, other=float("inf")) * 1.4426950408889634
        tl.store(top + bh * padded + i, tl.where(high == float("-inf"), float("inf"), high))


def hopper_queries(problem: AttentionProblem, do: torch.Tensor) -> tuple[int, Callable[..., None]] | None:
    """How many rows a tile of Hopper's own kernel of the queries' part has, and what launches it; None where it does
    not fit, where a smaller one is sooner launched, and where this Triton does not have its language."""
    if is_small_work(problem.operations):
        return None
    try:
        from rocm_guide.kernels.attention.hopper.launch import QUERIES, fits_hopper, launch_hopper_q
    except (ImportError, AttributeError):
        return None
    return (QUERIES, launch_hopper_q) if fits_hopper(problem, do) else None


def launch_backward(
    problem: AttentionProblem,
    out: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    *,
    bias_gradient: bool = False,
    config: dict[str, dict[str, Any]] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Launch on checked arguments; ``out`` and ``do`` are (batch, heads, queries, D), ``lse`` lacks the D."""
    import torch

    q, k, v, d, sizes = problem.q, problem.k, problem.v, problem.d, problem.sizes
    sequences, heads, group, max_q, max_k = sizes
    (given_dq, dq), (given_dk, dk), (given_dv, dv) = (problem.new(x.shape[2], x.shape[1], x.dtype) for x in (q, k, v))
    d_bias = None
    if bias_gradient:
        # Zeros: the kernel does not visit what causal hides.
        d_bias = torch.zeros((sequences, heads, max_q, max_k), dtype=torch.float32, device=q.device)
    if not q.numel() or not k.numel():
        return given_dq.zero_(), given_dk.zero_(), given_dv.zero_(), d_bias
    arch = architecture(q)
    hopper = arch == "sm_90"
    tiles = {
        part: check_tile(config[part]) if config else pick_config(BACKWARD_CONFIGS, problem, arch, part)
        for part in ("kv", "q")
    }
    rows, padded, top = q.shape[2], None, None
    special = hopper_queries(problem, do) if hopper and config is None and not bias_gradient else None
    if hopper and problem.cu is None:
        # Two numbers of each row are loaded in the inner loop. If a head may start at any of them, the loads take so
        # many registers that tiles are spilled: 1.8 times as long for 3,001 rows as for 3,072 (NVIDIA H200).
        step = max(DELTA_ROWS, tiles["kv"].m, special[0] if special else 0)
        padded = -(-rows // step) * step
        top = torch.empty(*q.shape[:2], padded, dtype=torch.float32, device=q.device)
    delta = torch.empty_like(lse if top is None else top)
    attention_delta_kernel[(-(-(padded or rows) // DELTA_ROWS) * q.shape[0] * heads,)](
        out,
        do,
        delta,
        None if top is None else lse,
        top,
        (out.stride(), do.stride()),
        heads,
        rows,
        padded,
        D=d,
        COLUMNS=problem.columns,
        BLOCK=DELTA_ROWS,
    )
    lse = lse if top is None else top
    tensors = (q, k, v, do, lse, delta)
    strides = (q.stride(), k.stride(), v.stride(), do.stride(), lse.stride())
    for part, kernel in (("kv", attention_backward_kv_kernel), ("q", attention_backward_q_kernel)):
        if part == "q" and special is not None:
            special[1](problem, do, top, delta, dq)
            break
        c, loaded = tiles[part], (q, do) if part == "kv" else (k, v)
        constants = {
            "D": d,
            "COLUMNS": problem.columns,
            "BLOCK_M": c.m,
            "BLOCK_N": c.n,
            "CAUSAL": problem.causal,
            "TMA": c.tma and all(fits_tma(x) for x in loaded),
            "PADDED": top is not None,
            "HEADS_FIRST": arch.startswith("gfx9"),
            "STAGES": c.stages,
            **c.options(arch),
        }
        with memory_from(descriptor_room(q.device)) if constants["TMA"] else nullcontext():
            if part == "kv":
                constants["ONE_LOOP"] = hopper
                grid = (-(-max_k // c.n) * sequences * (heads // group),)
                kernel[grid](
                    tensors,
                    (dk, dv),
                    problem.extras,
                    (*strides, dk.stride(), dv.stride()),
                    problem.launch_sizes,
                    problem.scale,
                    problem.drop,
                    **constants,
                )
            else:
                grid = (-(-max_q // c.m) * sequences * heads,)
                kernel[grid](
                    tensors,
                    dq,
                    d_bias,
                    problem.extras,
                    (*strides, dq.stride()),
                    problem.launch_sizes,
                    problem.scale,
                    problem.drop,
                    **constants,
                )
    return given_dq, given_dk, given_dv, d_bias


def attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    bias_gradient: bool = False,
    config: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients of q, k and v, and with ``bias_gradient`` of the bias: (batch, heads, queries, keys) in fp32, or None.

    Args:
        do: gradient of the output, in its layout and type.
        q, k, v, options: as they were given to ``attention_forward``, ``dropout`` and ``seed`` included.
        out, lse: what it returned.
        config: another entry of BACKWARD_CONFIGS.

    Raises:
        KernelError: arguments that do not fit together; nothing is launched.
    """
    import torch

    problem = attention_problem(q, k, v, **options)
    check_same_device(q=q, do=do, out=out, lse=lse)
    check_shape("out", out, tuple(q.shape))
    check_dtype("out", out, (q.dtype,))
    check_dtype("lse", lse, (torch.float32,))
    check_dtype("do", do, (torch.float16, torch.bfloat16, torch.float32, torch.float64))
    check_shape("do", do, tuple(q.shape))
    if bias_gradient and problem.bias is None:
        raise KernelError("bias_gradient without a bias: pass the bias too")
    lse = (lse.unsqueeze(0) if problem.layout == "thd" else lse).contiguous()
    check_shape("lse", lse, tuple(problem.q.shape[:3]))
    do = do.to(q.dtype)
    out, do = (heads_second(x if x.stride(-1) == 1 else x.contiguous(), problem.layout) for x in (out, do))
    return launch_backward(problem, out, lse, do, bias_gradient=bias_gradient, config=config)
