# SPDX-License-Identifier: MIT
"""A solution by the name of its puzzle, and its code to look at."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable
from typing import Any

from triton.runtime.jit import JITFunction

from cdna.grade.puzzle import GradeError
from cdna.grade.ways import missing_gluon
from rocm_guide.dojo.catalogue import PUZZLES
from rocm_guide.dojo.gluon import GLUON_IMPORTS
from rocm_guide.dojo.solved.attention import causal_attention, decode, paged_decode
from rocm_guide.dojo.solved.models import block_scaled_matmul, grouped_matmul, linear_cross_entropy, rope_cache
from rocm_guide.dojo.solved.products import lean_matmul, naive_matmul, pair_sums, skinny_gemv
from rocm_guide.dojo.solved.rows import rms_norm, rms_norm_backward

__all__ = ["SOLVED", "Shown", "show_solution"]

_CALLS: list[Callable[..., Any]] = [
    *(rms_norm, rms_norm_backward, naive_matmul, skinny_gemv, pair_sums, lean_matmul),
    *(causal_attention, decode, paged_decode, rope_cache, block_scaled_matmul, grouped_matmul, linear_cross_entropy),
]
if not missing_gluon():
    from rocm_guide.dojo.solved.gluon import gluon_linear

    _CALLS.append(gluon_linear)
#: The functions by the names of their puzzles.
SOLVED = {call.__name__: call for call in _CALLS}


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
    used = [call.__globals__.get(word) for word in call.__code__.co_names]
    parts += [kernel.raw_src for kernel in used if isinstance(kernel, JITFunction)] + [inspect.getsource(call)]
    text = "\n\n".join("".join(part) for part in parts)
    for annotation in (": Any", ": int", ": float", " -> Any"):
        text = text.replace(annotation, "")
    return Shown(name, text)
