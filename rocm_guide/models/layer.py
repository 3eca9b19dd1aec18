# SPDX-License-Identifier: MIT
"""One decoder layer as the sizes of its matrices, norms and cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocm_guide.common.base import GuideError

__all__ = ["Layer", "SizesError", "reason_of"]


class SizesError(GuideError):
    """A configuration whose sizes cannot be read."""


def reason_of(error: BaseException) -> str:
    """Return the kind of an error and the first line that it says; with the next where that one ends in a colon.

    >>> reason_of(KeyError("head_dim")), reason_of(ValueError("not valid:\\n hidden size 3"))
    ("KeyError: 'head_dim'", 'ValueError: not valid: hidden size 3')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].endswith(":"):
        lines[0] = " ".join(lines[:2])
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@dataclass(frozen=True)
class Layer:
    """One decoder layer; all sizes in numbers (parameters, or widths of one token).

    Attributes:
        matrices: (inputs, outputs) of its linear layers by their name in the layer; experts are not among them.
        bias, norms: elements of all biases, and of all norms' weights.
        q, k, v: widths of queries, keys and values of all heads, as the attention kernel gets them.
        cached: numbers of one token in the KV cache.
        state: bytes that one text takes besides, whatever its length (state-space layers, convolutions).
        window: tokens that the cache keeps at most; 0 for all of them.
        inner: width of the MLP that every token passes; 0 where there are experts only.
        experts, top_k, expert_inner: number of routed experts, how many of them a token passes, and their inner width.
        expert: (inputs, outputs) of the matrices of one expert; ``expert_rest`` its other elements, ``experts_at`` the
            name of all of them in the layer.
        rest: elements of every other kind (convolutions, decays, sinks).
        qk_norms: widths of the norms over queries and keys; 0 without.
    """

    matrices: Mapping[str, tuple[int, int]]
    bias: int
    norms: int
    q: int
    k: int
    v: int
    cached: int
    inner: int
    window: int = 0
    experts: int = 0
    top_k: int = 0
    expert_inner: int = 0
    expert: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    expert_rest: int = 0
    experts_at: str = "mlp.experts"
    router: int = 0
    qk_norms: int = 0
    state: int = 0
    rest: int = 0

    @property
    def linear(self) -> int:
        """Elements of the linear layers, experts left out."""
        return sum(a * b for a, b in self.matrices.values())

    @property
    def expert_linear(self) -> int:
        return sum(a * b for a, b in self.expert.values())

    @property
    def parameters(self) -> int:
        one = self.expert_linear + self.expert_rest
        return self.linear + self.bias + self.norms + self.router + self.rest + self.experts * one

    @property
    def active(self) -> int:
        """Parameters that one token meets: of the experts only ``top_k``."""
        return self.parameters - (self.experts - self.top_k) * (self.expert_linear + self.expert_rest)
