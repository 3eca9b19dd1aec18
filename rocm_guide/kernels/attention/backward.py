# SPDX-License-Identifier: MIT
r"""Attention, backward: dQ, dK, dV and the gradient of a matrix bias from the output and its log-sum-exp.

Three launches: :math:`\Delta_i = \sum_d do_{id}\, o_{id}` (which is what softmax's Jacobian needs of a whole row), then
the keys' part and the queries' part, each in a file of its own. Dropout asks the same random bits again.

Source: T. Dao, "FlashAttention-2", https://arxiv.org/abs/2307.08691, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_dtype,
    check_same_device,
    check_shape,
)
from rocm_guide.kernels.attention.backward_kv import attention_backward_kv_kernel
from rocm_guide.kernels.attention.backward_q import attention_backward_q_kernel
from rocm_guide.kernels.attention.configs import (
    BACKWARD_CONFIGS,
    check_tile,
    descriptor_room,
    fits_tma,
    pick_config,
    unit_of,
)
from rocm_guide.kernels.attention.problem import (
    AttentionProblem,
    attention_problem,
    contiguous_strides,
    heads_second,
    is_packed,
    kind_of,
)
from rocm_guide.kernels.attention.tile import head_start
from rocm_guide.kernels.gemm import hint_multiple
from rocm_guide.kernels.launch import Launch, maker, planned

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
    UNIT: tl.constexpr,
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
    out_step, do_step = hint_multiple(strides[0][2], UNIT), hint_multiple(strides[1][2], UNIT)
    out_base = head_start(out, strides[0], batch, head, 0, UNIT) + i[:, None].to(tl.int64) * out_step
    do_base = head_start(do, strides[1], batch, head, 0, UNIT) + i[:, None].to(tl.int64) * do_step
    product = tl.load(out_base + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    product *= tl.load(do_base + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + bh * apart + i, tl.sum(product, 1), mask=i < apart)
    if top is not None:
        high = tl.load(lse + bh * rows + i, mask=i < rows, other=float("inf")) * 1.4426950408889634
        tl.store(top + bh * padded + i, tl.where(high == float("-inf"), float("inf"), high))


def plan_backward(
    problem: AttentionProblem,
    out: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    *,
    bias_gradient: bool = False,
    config: dict[str, dict[str, Any]] | None = None,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Choose the launches for checked arguments.

    ``out`` and ``do`` are (batch, heads, queries, D), ``lse`` lacks the D. What is returned takes the tensors of such a
    problem: (q, k, v), out, lse, do, (bias, slopes, cu), and the dropout state.
    """
    import torch

    q, k, d, sizes = problem.q, problem.k, problem.d, problem.sizes
    sequences, heads, group, max_q, max_k = sizes
    of_q, of_k = (problem.output(x.shape[2], x.shape[1]) for x in (q, k))
    new_dq, new_dk = maker(q, of_q[0]), maker(q, of_k[0])
    bias_shape, device, empty = (sequences, heads, max_q, max_k), q.device, not (q.numel() and k.numel())
    arch, rows, padded = architecture(q), q.shape[2], None
    hopper = arch == "sm_90"
    tiles = {
        part: check_tile(config[part]) if config else pick_config(BACKWARD_CONFIGS, problem, arch, part)
        for part in ("kv", "q")
    }
    if hopper and problem.cu is None:
        # Two numbers of each row are loaded in the inner loop. If a head may start at any of them, the loads take so
        # many registers that tiles are spilled: 1.8 times as long for 3,001 rows as for 3,072 (NVIDIA H200).
        step = max(DELTA_ROWS, tiles["kv"].m)
        padded = -(-rows // step) * step
    # What each part loads in its loop: the keys' part queries, the queries' part keys.
    fit = {"kv": fits_tma(q) and fits_tma(do), "q": fits_tma(k) and fits_tma(problem.v)}
    unit = unit_of(d, q, fit["kv"] and fit["q"])
    apart = rows if padded is None else padded
    new_delta = maker(q, (*q.shape[:2], apart), torch.float32)
    delta_launch = Launch(
        attention_delta_kernel,
        (-(-apart // DELTA_ROWS) * q.shape[0] * heads,),
        ((out.stride(), do.stride()), heads, rows, padded),
        {"D": d, "COLUMNS": problem.columns, "BLOCK": DELTA_ROWS, "UNIT": unit_of(d, q, fit["kv"] and fits_tma(out))},
    )
    vectors = lse.stride() if padded is None else contiguous_strides((*q.shape[:2], padded))
    strides = (*(x.stride() for x in (q, k, problem.v, do)), vectors)
    bias_strides = problem.extras[3]

    def launch_of(
        part: str, kernel: Any, programs: int, arrange: Callable[..., Any], outputs: tuple[Any, ...]
    ) -> Launch:
        tile = tiles[part]
        constants = {
            "D": d,
            "COLUMNS": problem.columns,
            "BLOCK_M": tile.m,
            "BLOCK_N": tile.n,
            "CAUSAL": problem.causal,
            "TMA": tile.tma and fit[part],
            "PADDED": padded is not None,
            "HEADS_FIRST": arch.startswith("gfx9"),
            "UNIT": unit,
            "STAGES": tile.stages,
        } | ({"ONE_LOOP": hopper} if part == "kv" else {})
        fixed = ((*strides, *outputs), problem.launch_sizes, problem.scale)
        room = descriptor_room(device) if constants["TMA"] else None
        return Launch(kernel, (programs,), fixed, constants, tile.options(arch), arrange, room)

    kv_launch = launch_of(
        "kv",
        attention_backward_kv_kernel,
        -(-max_k // tiles["kv"].n) * sequences * (heads // group),
        lambda q, k, v, do, top, delta, dk, dv, *extras: ((q, k, v, do, top, delta), (dk, dv), (*extras, bias_strides)),
        (of_k[1], of_k[1]),
    )
    q_launch = launch_of(
        "q",
        attention_backward_q_kernel,
        -(-max_q // tiles["q"].m) * sequences * heads,
        lambda q, k, v, do, top, delta, dq, d_bias, *extras: (
            (q, k, v, do, top, delta),
            dq,
            d_bias,
            (*extras, bias_strides),
        ),
        (of_q[1],),
    )

    def launch(known: Launch, tensors: tuple[Any, ...], extras: Any, drop: Any) -> None:
        if drop is None and extras[2] is None:
            known(*tensors, *extras, floats=(None,))
        else:
            assert known.arrange is not None
            arguments = (*known.arrange(*tensors, *extras), *known.fixed, drop, *known.last)
            known.with_arguments((*tensors, *extras[:2], *(extras[2] or ())), arguments, drop is None)

    def run(
        qkv: Any, out: torch.Tensor, lse: torch.Tensor, do: torch.Tensor, extras: Any, drop: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        dq, dk, dv = new_dq(), new_dk(), new_dk()
        # Zeros: the kernel does not visit what causal hides.
        d_bias = torch.zeros(bias_shape, dtype=torch.float32, device=device) if bias_gradient else None
        if empty:
            return dq.zero_(), dk.zero_(), dv.zero_(), d_bias
        delta, top = new_delta(), None if padded is None else new_delta()
        delta_launch(out, do, delta, None if top is None else lse, top)
        tensors = (*qkv, do, lse if top is None else top, delta)
        launch(kv_launch, (*tensors, dk, dv), extras, drop)
        launch(q_launch, (*tensors, dq, d_bias), extras, drop)
        return dq, dk, dv, d_bias

    return run


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
    bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients of q, k and v, and with ``bias_gradient`` of the bias: (batch, heads, queries, keys) in fp32, or None.

    Args:
        do: gradient of the output, in its layout and type.
        q, k, v, bias, options: as they were given to ``attention_forward``, ``dropout`` and ``seed`` included.
        out, lse: what it returned.
        config: another entry of BACKWARD_CONFIGS.

    Raises:
        KernelError: arguments that do not fit together; nothing is launched.
    """
    if is_packed(options):
        problem = attention_problem(q, k, v, bias=bias, **options)
        out, lse, do = _in_form(problem, q, out, lse, do, bias_gradient)
        run = plan_backward(problem, out, lse, do, bias_gradient=bias_gradient, config=config)
        return run((problem.q, problem.k, problem.v), out, lse, do, problem.extras[:3], problem.drop)
    slopes = options.pop("alibi_slopes", None)
    tensors, (kind, drop) = (q, k, v, out, lse, do, bias, slopes), kind_of(options)
    return planned(_plan, tensors, bias_gradient, config, tuple(kind), *kind.values())(*tensors, drop)


def _in_form(
    problem: AttentionProblem,
    q: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    bias_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """out, lse and do, checked, as the kernels take them: out and do as views (batch, heads, queries, D)."""
    import torch

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
    return out, lse, do


def _plan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    bias: torch.Tensor | None,
    slopes: torch.Tensor | None,
    bias_gradient: bool,
    config: dict[str, dict[str, Any]] | None,
    names: tuple[str, ...],
    *values: Any,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    options = dict(zip(names, values, strict=True))
    problem = attention_problem(q, k, v, bias=bias, alibi_slopes=slopes, **options)
    formed = _in_form(problem, q, out, lse, do, bias_gradient)
    launch = plan_backward(problem, *formed, bias_gradient=bias_gradient, config=config)
    rows, dtype = problem.sizes[:2], q.dtype
    # The kernels take addresses and the strides of the plan: views of the tensors are not needed, copies are.
    as_given = do.dtype == dtype and lse.is_contiguous() and do.stride(-1) == out.stride(-1) == 1

    def run(*given: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        q, k, v, out, lse, do, bias, slopes, drop = given
        slopes = None if slopes is None else slopes.expand(rows).contiguous()
        if not as_given:
            do, lse = do.to(dtype), lse.contiguous()
            out, do = (x if x.stride(-1) == 1 else x.contiguous() for x in (out, do))
        return launch((q, k, v), out, lse, do, (bias, slopes, None), drop)

    return run
