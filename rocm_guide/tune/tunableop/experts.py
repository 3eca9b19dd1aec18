# SPDX-License-Identifier: MIT
"""The products of a mixture of experts: one for each expert that gets tokens, with the tokens spread evenly.

transformers computes the experts of a layer as one grouped product. Where a fused kernel does that, TunableOp never
sees it. Where there is none, PyTorch's fallback (``aten::_grouped_mm`` without a kernel for the GPU) and transformers'
eager loop ask for one ordinary product an expert, and that is what is planned here. Which expert gets how many tokens
is known only with real weights; the plan takes the even spread that training with a balancing loss aims at (Shazeer et
al., arXiv:1701.06538, section 4; Fedus et al., arXiv:2101.03961, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocm_guide.tune.tunableop.blas_calls import mm_gemm
from rocm_guide.tune.tunableop.matrices import BlasRules

if TYPE_CHECKING:
    import torch

    from rocm_guide.tune.tunableop.gemm import Gemm

__all__ = []

#: The words that a plan with experts says about itself.
ASSUMED = (
    "experts: each token's top-k experts, all experts chosen equally often, one product for each expert that gets "
    "tokens; a fused grouped kernel is outside TunableOp"
)


def even_rows(rows: int, experts: int) -> list[int]:
    """Return how many of ``rows`` each expert gets that gets any, when they are spread as evenly as possible.

    >>> even_rows(10, 4), even_rows(2, 8)
    ([3, 3, 2, 2], [1, 1])
    """
    less, more = divmod(rows, experts)
    return [n for n in [less + 1] * more + [less] * (experts - more) if n]


def expert_products(
    rows: torch.Tensor, weights: torch.Tensor, rules: BlasRules, mat: Callable[[torch.Tensor], Any]
) -> list[Gemm] | None:
    """Return the products of ``rows`` [S, in] with the experts' ``weights`` [experts, in, out];
    None for other groupings.

    >>> import torch
    >>> from rocm_guide.tune.tunableop.matrices import matrix_of
    >>> rows, weights = (torch.empty(*s, device="meta", dtype=torch.bfloat16) for s in ((6, 64), (4, 128, 64)))
    >>> found = expert_products(rows, weights.transpose(1, 2), BlasRules(), lambda t: matrix_of(t, BlasRules()))
    >>> [g.params for g in found]
    ['tn_128_2_64_ld_64_64_128', 'tn_128_2_64_ld_64_64_128', 'tn_128_1_64_ld_64_64_128', 'tn_128_1_64_ld_64_64_128']
    """
    if rows.dim() != 2 or weights.dim() != 3:
        return None
    one = mat(weights[0])
    made = {n: mm_gemm(mat(rows[:n]), one, rules) for n in set(even_rows(len(rows), len(weights)))}
    return [gemm for n in even_rows(len(rows), len(weights)) if (gemm := made[n]) is not None]
