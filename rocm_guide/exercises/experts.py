# SPDX-License-Identifier: MIT
"""Checks of notebook 35: a router of the reader as gfx942 machine code, and two products as puzzles of the dojo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.compiler.errors import CompilationError

from cdna.run import RunError
from cdna.run.launches import executed_on_gfx942
from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_block_scaled", "check_grouped", "check_route"]


def check_route(route: Callable[..., Any]) -> bool:
    """Check exercise 1: ``route(logits, k)`` of fp32 (T, E) gives weights, fp32, and experts, int32 or int64, (T, k).

    The experts are those of the k largest logits of each row, the largest first; the weights are their softmax. The
    kernel is compiled for gfx942 and its machine code executed.

    >>> check_route(lambda logits, k: logits.softmax(-1).topk(k))
    [HINT] 5 tokens, 8 experts, 2 chosen: no Triton kernel was launched: kernel[grid](…)
    False
    """
    g = torch.Generator().manual_seed(35)
    cases = [
        ("5 tokens, 8 experts, 2 chosen", torch.randn(5, 8, generator=g), 2, "the k largest of each row"),
        ("128 experts, 8 chosen", torch.randn(3, 128, generator=g), 8, "the k largest of each row"),
        (
            "60 experts, all logits negative",
            torch.randn(3, 60, generator=g) - 9,
            4,
            "lanes without an expert win: -inf",
        ),
        (
            "logits up to 300",
            torch.randn(3, 16, generator=g) * 100,
            3,
            "exp overflows: subtract the largest logit first",
        ),
        ("equal logits", torch.ones(2, 16), 4, "strike out one place, not every equal value"),
        ("one expert, one chosen", torch.randn(2, 1, generator=g), 1, "a single weight is 1"),
        ("rows that lie apart", torch.randn(3, 40, generator=g)[:, :20], 2, "use the stride of the rows"),
    ]
    for name, logits, k, hint in cases:
        with torch.no_grad():
            try:
                with executed_on_gfx942(units=4, count=False) as done:
                    weights, index = route(logits, k)
            except CompilationError as e:
                return no(f"{name}: does not compile: {str(e).strip().splitlines()[-1]}")
            except (*FAULTS, RunError) as e:
                return no(f"{name}: {type(e).__name__}: {first_line(e)}")
            if not done.launches:
                return no(f"{name}: no Triton kernel was launched: kernel[grid](…)")
            shape = (len(logits), k)
            if tuple(weights.shape) != shape or tuple(index.shape) != shape:
                return no(f"{name}: give weights and experts of shape {shape}")
            if weights.dtype != torch.float32 or index.dtype not in (torch.int32, torch.int64):
                return no(f"{name}: weights are {weights.dtype}, experts {index.dtype}; float32 and int32 or int64")
            top, at = logits.topk(k).values, index.long()
            if bool((at < 0).any()) or bool((at >= logits.shape[1]).any()):
                return no(f"{name}: {at.flatten().tolist()[:8]} are not all experts: {hint}")
            if any(len(set(row)) < k for row in at.tolist()):
                return no(f"{name}: a token has the same expert twice: {hint}")
            if not torch.equal(logits.gather(1, at), top):
                return no(f"{name}: other experts than those of the largest logits, largest first: {hint}")
            wanted = top.double().softmax(-1)
            if not bool(weights.isfinite().all()):
                return no(f"{name}: a weight is {weights[~weights.isfinite()][0].item()}: {hint}")
            if not torch.allclose(weights.double(), wanted, atol=1e-5):
                total = weights.sum(-1)[0].item()
                more = "" if abs(total - 1) < 1e-4 else f"; those of a token add up to {total:.3f}: renormalise"
                return no(f"{name}: weight {weights[0, 0].item():.4f}, {wanted[0, 0].item():.4f} is right{more}")
    return yes(f"{len(cases)} routers as gfx942 machine code: the largest logits, and weights that add up to 1")


check_grouped = judge_of("grouped_matmul")
check_block_scaled = judge_of("block_scaled_matmul")
