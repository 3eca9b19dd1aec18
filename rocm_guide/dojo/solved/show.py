# SPDX-License-Identifier: MIT
"""A solution by the name of its puzzle, and its code to look at."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable
from typing import Any

from rocm_guide.dojo.puzzle import DojoError
from rocm_guide.dojo.solved import attention, products, rows

__all__ = ["SOLVED", "Shown", "show_solution"]

#: The functions by the names of their puzzles, and the kernels that each launches.
_KERNELS: dict[Callable[..., Any], tuple[Any, ...]] = {
    rows.rms_norm: (rows.rms_kernel,),
    rows.rms_norm_backward: (rows.rms_grad_kernel,),
    products.naive_matmul: (products.naive_kernel,),
    products.skinny_gemv: (products.gemv_kernel,),
    products.pair_sums: (products.pairs_kernel,),
    products.lean_matmul: (products.product_kernel,),
    attention.causal_attention: (attention.causal_kernel,),
    attention.decode: (attention.part_kernel, attention.merge_kernel),
    attention.paged_decode: (attention.paged_kernel, attention.merge_kernel),
}
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
    """The kernels and the wrapper that solve a puzzle, as one would write them in a cell.

    Raises:
        DojoError: none is kept here; notebook 26 solves the other puzzles in its cells.

    >>> print(show_solution("pair_sums").text.splitlines()[1])
    def pairs_kernel(x, y, m, BLOCK: tl.constexpr):
    """
    if name not in SOLVED:
        raise DojoError(f"no solution of {name!r} is kept here: there are {', '.join(SOLVED)}")
    call = SOLVED[name]
    parts = [kernel.raw_src for kernel in _KERNELS[call]] + [inspect.getsource(call)]
    text = "\n\n".join("".join(part) for part in parts)
    for annotation in (": Any", ": int", ": float", " -> Any", "  # fmt: skip"):
        text = text.replace(annotation, "")
    return Shown(name, text)
