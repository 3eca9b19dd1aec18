# SPDX-License-Identifier: MIT
"""Checks of notebook 24: barriers that a kernel can do without, and two puzzles of the dojo about its machine code."""

from __future__ import annotations

from typing import Any

import torch

from cdna.compile import compile_kernel
from cdna.interpret import interpret
from cdna.ir.program import parse_ir
from cdna.isa.kernel import Kernel
from rocm_guide.common.base import GuideError
from rocm_guide.exercises.common import no, yes
from rocm_guide.exercises.kernel_dojo import judge_of

__all__ = ["check_barriers", "check_pair_sums", "check_transpose"]


def check_barriers(kernel: Any) -> bool:
    """Check exercise 1: the scores of ``planar`` with at most seven barriers; its packing and its arguments stay.

    ``kernel`` takes what :func:`cdna.examples.int4_scores.int4_scores_planar` takes. It is interpreted for
    100 tokens and for one, against float64, and compiled for gfx942 with four waves: keys that stay in registers,
    matrix instructions, no spills, and then the barriers are counted.

    >>> from cdna.examples.int4_scores import int4_scores_planar
    >>> check_barriers(int4_scores_planar)  # doctest: +ELLIPSIS
    [HINT] right, with 15 barriers; 7 are possible. Each of the eight tiles of queries is written to LDS, ...
    False
    """
    if not hasattr(kernel, "arg_names"):
        return no(f"{kernel!r:.40}: give the kernel itself, a function with @triton.jit")
    try:
        wrong = _wrong_score(kernel)
        trips, found = _code_of(kernel)
    except (GuideError, TypeError) as e:
        return no(str(e))
    if wrong:
        return no(wrong)
    barriers, mix = found.barriers, found.mix()
    if not mix.get("mfma"):
        return no("right, and no matrix instruction is left: the product belongs to tl.dot")
    if trips or found.resources.vgpr_spills:
        what = f"the keys pass through LDS {trips} times" if trips else f"{found.resources.vgpr_spills} registers spill"
        return no(f"right, and {what}: join whole planes, and let the words of a plane stay in their order")
    if barriers > 7:
        hint = (
            "Each of the eight tiles of queries is written to LDS, all meet, it is read, and all meet again before the "
            "next: 2 x 8 - 1. Which operation makes one tile of keys of two planes?"
        )
        return no(f"right, with {barriers} barriers; 7 are possible. {hint}")
    exchanges = mix.get("permute", 0)
    return yes(f"{barriers} barriers instead of 15; the keys stay in their waves ({exchanges} lane exchanges)")


_SHAPE = {"M": 16, "BLOCK": 64, "D": 128}


def _wrong_score(kernel: Any) -> str:
    """Return the first wrong score for 100 tokens or for one, in a line; empty if all are right."""
    random, calls, wanted = torch.Generator().manual_seed(0), [], []
    for tokens in (100, 1):
        q = torch.randn(16, 128, generator=random).half()
        nibbles = torch.randint(0, 16, (tokens, 8, 16), generator=random)
        words = (nibbles.long() << (torch.arange(8) * 4)[:, None]).sum(1)
        words = torch.where(words >= 1 << 31, words - (1 << 32), words).int()
        scale = (torch.rand(tokens, generator=random) * 0.1 + 0.05).half()
        shift = torch.randn(tokens, generator=random).half()
        pair = (scale.view(torch.int16).int() & 0xFFFF) | (shift.view(torch.int16).int() << 16)
        keys = nibbles.view(tokens, 128).half() * scale[:, None] + shift[:, None]
        wanted.append(q.double() @ keys.double().T)
        out = torch.full((16, tokens), float("nan"))
        calls.append((kernel, (-(-tokens // 64),), (q, words, pair, out, tokens), _SHAPE))
    interpret(calls)
    for (*_, arguments, _), right in zip(calls, wanted, strict=True):
        out = arguments[3].double()
        if not torch.allclose(out, right, atol=1e-3):
            row, token = (int(i) for i in (~((out - right).abs() <= 1e-3)).nonzero()[0])
            return (
                f"score [{row}, {token}] of {right.shape[1]} tokens is {float(out[row, token]):.4g}, and "
                f"{float(right[row, token]):.4g} is right: row r of a tile of keys and column r of its queries belong "
                "to one dimension"
            )
    return ""


def _code_of(kernel: Any) -> tuple[int, Kernel]:
    """Return the trips of the keys through LDS on their way to the first product, and the code for gfx942."""

    def meta(*shape: int, dtype: Any = torch.int32) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    tensors = [meta(16, 128, dtype=torch.float16), meta(4096, 16), meta(4096), meta(16, 4096, dtype=torch.float32)]
    compiled = compile_kernel(kernel, [*tensors, 4096], _SHAPE, num_warps=4)
    program = parse_ir(compiled.ttgir)[0]
    dots = [op for op in program.operations if op.name == "tt.dot"]
    # The keys are the largest tile of int32 that is loaded.
    loads = [
        g.value for g in program.global_accesses if g.access == "load" and g.value and g.value.type.element == "i32"
    ]
    if not dots or not loads:
        return 0, compiled.parsed
    keys = max(loads, key=lambda v: v.type.bytes)
    moves = [step.move for step in program.path(keys.name, dots[0].results[0])]
    return sum("-> LDS" in move for move in moves), compiled.parsed


check_pair_sums = judge_of("pair_sums")
check_transpose = judge_of("transpose")
