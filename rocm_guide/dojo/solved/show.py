# SPDX-License-Identifier: MIT
"""A solution by the name of its puzzle, and its code to look at."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable
from typing import Any

from cdna.grade.puzzle import GradeError
from cdna.grade.ways import missing_gluon
from rocm_guide.dojo.catalogue import PUZZLES
from rocm_guide.dojo.gluon import GLUON_IMPORTS
from rocm_guide.dojo.solved.attention import (
    causal_attention,
    causal_kernel,
    decode,
    merge_kernel,
    paged_decode,
    paged_kernel,
    part_kernel,
)
from rocm_guide.dojo.solved.models import (
    block_scaled_kernel,
    block_scaled_matmul,
    grouped_kernel,
    grouped_matmul,
    linear_cross_entropy,
    losses_kernel,
    rope_cache,
    rope_kernel,
    scores_kernel,
)
from rocm_guide.dojo.solved.products import (
    gemv_kernel,
    lean_matmul,
    naive_kernel,
    naive_matmul,
    pair_sums,
    pairs_kernel,
    product_kernel,
    skinny_gemv,
)
from rocm_guide.dojo.solved.rows import rms_grad_kernel, rms_kernel, rms_norm, rms_norm_backward

__all__ = ["SOLVED", "Shown", "show_solution"]

#: The functions by the names of their puzzles, and the kernels that each launches.
_KERNELS: dict[Callable[..., Any], tuple[Any, ...]] = {
    rms_norm: (rms_kernel,),
    rms_norm_backward: (rms_grad_kernel,),
    naive_matmul: (naive_kernel,),
    skinny_gemv: (gemv_kernel,),
    pair_sums: (pairs_kernel,),
    lean_matmul: (product_kernel,),
    causal_attention: (causal_kernel,),
    decode: (part_kernel, merge_kernel),
    paged_decode: (paged_kernel, merge_kernel),
    rope_cache: (rope_kernel,),
    block_scaled_matmul: (block_scaled_kernel,),
    grouped_matmul: (grouped_kernel,),
    linear_cross_entropy: (scores_kernel, losses_kernel),
}
if not missing_gluon():
    from rocm_guide.dojo.solved.gluon import gluon_linear, linear_kernel

    _KERNELS[gluon_linear] = (linear_kernel,)
SOLVED: dict[str, Callable[..., Any]] = {call.__name__: call for call in _KERNELS}


class Shown:
    """The code of a solution: printed whole, and folded away in a notebook."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        code = html.escape(self.text)
        return f"<details><summary>{html.escape(self.name)}: a solution</summary><pre>{code}</pre></details>"


def show_solution(name: str) -> Shown:
    """Return the kernels and the wrapper that solve a puzzle, as one would write them in a cell.

    Raises:
        GradeError: none is kept here; notebook 38 solves the other puzzles in its cells.

    >>> print(show_solution("pair_sums").text.splitlines()[1])
    def pairs_kernel(x, y, m, BLOCK: tl.constexpr):
    """
    if name not in SOLVED:
        raise GradeError(f"no solution of {name!r} is kept here: there are {', '.join(SOLVED)}")
    call = SOLVED[name]
    parts = [[GLUON_IMPORTS]] if PUZZLES[name].gluon else []
    parts += [kernel.raw_src for kernel in _KERNELS[call]] + [inspect.getsource(call)]
    text = "\n\n".join("".join(part) for part in parts)
    for annotation in (": Any", ": int", ": float", " -> Any"):
        text = text.replace(annotation, "")
    return Shown(name, text)
