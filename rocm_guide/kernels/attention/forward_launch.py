# SPDX-License-Identifier: MIT
"""How the attention forward kernel is launched: what is chosen once for a kind of arguments, and the rest.

The arguments are checked before (:mod:`rocm_guide.kernels.attention.problem`). Used by the wrappers of the forward
kernel, for 16 and 32 bits and for 8.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import KernelError, architecture, is_small_work, unit_count
from rocm_guide.kernels.attention.configs import (
    FORWARD_CONFIGS,
    check_tile,
    descriptor_room,
    fits_tma,
    pick_config,
    triton_type,
    unit_of,
)
from rocm_guide.kernels.attention.forward import attention_forward_kernel
from rocm_guide.kernels.attention.problem import (
    AttentionProblem,
    attention_problem,
    contiguous_strides,
    is_packed,
    kind_of,
)
from rocm_guide.kernels.launch import Launch, maker, planned, unread

if TYPE_CHECKING:
    import torch

__all__ = []

#: Options that are about the launch and not about the problem.
LAUNCH = ("schedule", "config")


def plan_forward(
    problem: AttentionProblem,
    out_dtype: torch.dtype,
    *,
    scaled: bool = False,
    p_bits: float = 0.0,
    math: torch.dtype | None = None,
    schedule: str = "grid",
    config: dict[str, Any] | None = None,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Choose the launch for checked arguments.

    ``math`` is the type of the second product, ``2 ** p_bits`` the factor on p, ``scaled``: q, k and v have scales.
    What is returned takes the tensors of such a problem: (q, k, v), (bias, slopes, cu), scales, and the dropout state.
    """
    import torch

    if schedule not in ("grid", "fixed", "dynamic"):
        raise KernelError(f"schedule={schedule!r}: give 'grid', 'fixed' or 'dynamic'")
    q, k, v, d, sizes = problem.q, problem.k, problem.v, problem.d, problem.sizes
    sequences, heads, _, max_q, _ = sizes
    arch, device, packed = architecture(q), q.device, problem.layout == "thd"
    persistent = schedule != "grid" or scaled
    tile = check_tile(config) if config else pick_config(FORWARD_CONFIGS, problem, arch, persistent=persistent)
    tiles = -(-max_q // tile.m) * sequences * heads
    aligned = fits_tma(k) and fits_tma(v)
    tma = tile.tma and aligned and (config is not None or not is_small_work(problem.operations))
    rows = q.shape[0], heads, q.shape[2]
    programs = tiles if schedule == "grid" else min(tiles, unit_count(q) * tile.per_unit)
    constants = {
        "D": d, "COLUMNS": problem.columns, "BLOCK_M": tile.m, "BLOCK_N": tile.n, "CAUSAL": problem.causal,
        "P_BITS": p_bits, "MATH": triton_type(math or v.dtype), "TMA": tma,
        "UNIT": unit_of(d, q, aligned and fits_tma(q)), "HEADS_FIRST": tile.heads_first, "STAGES": tile.stages,
        "SCHEDULE": schedule,
    }  # fmt: skip
    shape, strides_out = problem.output(q.shape[2], heads)
    strides = (q.stride(), k.stride(), v.stride(), strides_out, contiguous_strides(rows), problem.extras[3])
    launch = Launch(
        attention_forward_kernel,
        (programs,),
        (strides, problem.launch_sizes, problem.scale),
        constants,
        tile.options(arch),
        lambda q, k, v, out, lse, bias, slopes, *scales: ((q, k, v, out, lse), (bias, slopes, None), scales or None),
        descriptor_room(device) if tma else None,
    )
    new_out, new_lse, nowhere = maker(q, shape, out_dtype), maker(q, rows, torch.float32), unread(q, numbers.prod(rows))
    some = tiles and d
    plain = some and schedule != "dynamic"

    def run(qkv: Any, extras: Any, scales: Any, drop: Any, lse_wanted: bool = True) -> tuple[torch.Tensor, Any]:
        out, lse = new_out(), new_lse() if lse_wanted else nowhere()
        bias, slopes, cu = extras
        if plain and drop is None and cu is None:
            launch(*qkv, out, lse, bias, slopes, *(scales or ()), floats=(None, None))
        elif some:
            counter = torch.zeros(1, dtype=torch.int32, device=device) if schedule == "dynamic" else None
            arguments = ((*qkv, out, lse), extras, scales, *launch.fixed, drop, counter, *launch.last)
            tensors = (*qkv, out, lse, bias, slopes, counter, *(cu or ()), *(scales or ()))
            launch.with_arguments(tensors, arguments, drop is None)
        return out, lse[0] if packed and lse_wanted else lse

    return run


def run_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    options: dict[str, Any],
    lse_wanted: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``attention_forward`` does unless it is traced; where no log-sum-exp is wanted it is left undefined."""
    if is_packed(options):
        options = options.copy()
        launch = {name: options.pop(name) for name in LAUNCH if name in options}
        problem = attention_problem(q, k, v, bias=bias, **options)
        run = plan_forward(problem, q.dtype, **launch)
        return run((problem.q, problem.k, problem.v), problem.extras[:3], None, problem.drop)
    slopes, (kind, drop) = None, kind_of(options)
    if "alibi_slopes" in kind:
        kind = dict(kind)
        slopes = kind.pop("alibi_slopes")
    plan = planned(_plan, (q, k, v, bias, slopes), tuple(kind), *kind.values())
    return plan(q, k, v, bias, slopes, drop, lse_wanted)


def _plan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    slopes: torch.Tensor | None,
    names: tuple[str, ...],
    *values: Any,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    options = dict(zip(names, values, strict=True))
    ways = {name: options.pop(name) for name in LAUNCH if name in options}
    problem = attention_problem(q, k, v, bias=bias, alibi_slopes=slopes, **options)
    launch, rows = plan_forward(problem, q.dtype, **ways), problem.sizes[:2]

    def run(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
        slopes: torch.Tensor | None,
        drop: Any,
        lse_wanted: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The kernel takes addresses and the strides of the plan: views of the tensors are not needed.
        slopes = None if slopes is None else slopes.expand(rows).contiguous()
        return launch((q, k, v), (bias, slopes, None), None, drop, lse_wanted)

    return run
