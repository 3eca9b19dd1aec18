# SPDX-License-Identifier: MIT
"""Which probabilities an attention kernel used, although it never stores them: its output for V = identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError
from rocm_guide.kernels.anywhere import call_all
from rocm_guide.kernels.attention import attention_forward, reference_attention

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

__all__ = ["draw_probabilities", "show_probabilities"]


@dataclass(frozen=True)
class Shown:
    """What one call used.

    Attributes:
        matrix: (batch, heads, queries, keys) probabilities, fp32 on the CPU; after dropout if there was any.
        roundings: largest deviation from float64, in units of the type's rounding (2^-11 for fp16) of the largest.
    """

    matrix: torch.Tensor
    roundings: float


def show_probabilities(q: torch.Tensor, k: torch.Tensor, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Shown]:
    """Let ``attention_forward`` show its probabilities for several options, and compare each with float64.

    Args:
        q, k: (batch, heads, rows, D) with as many keys as features, so that V can be the identity.
        cases: name -> options of attention_forward; ``queries`` takes only the first so many queries.

    Raises:
        GuideError: the number of keys is not D, or attention_forward refuses the options.

    >>> import torch
    >>> q = torch.zeros(1, 1, 16, 16).half()
    >>> shown = show_probabilities(q, q, {"causal": {"causal": True}})["causal"]
    >>> shown.matrix[0, 0, 1, :3].tolist(), shown.roundings < 2
    ([0.5, 0.5, 0.0], True)
    """
    import torch

    if k.shape[2] != q.shape[3]:
        raise GuideError(f"{k.shape[2]} keys, {q.shape[3]} features: V is the identity only if both are the same")
    identity = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand_as(k)
    options = {name: {n: o for n, o in case.items() if n != "queries"} for name, case in cases.items()}
    queries = {name: q[:, :, : case.get("queries")] for name, case in cases.items()}
    results = call_all([(attention_forward, (queries[name], k, identity), options[name]) for name in cases])
    shown = {}
    for name, (out, _) in zip(cases, results, strict=True):
        plain = {n: o.cpu() if isinstance(o, torch.Tensor) else o for n, o in options[name].items() if n != "tile"}
        exact, _ = reference_attention(*(x.cpu().double() for x in (queries[name], k, identity)), **plain)
        unit = torch.finfo(q.dtype).eps / 2 * exact.max()
        shown[name] = Shown(out.float().cpu(), float((out.cpu().double() - exact).abs().max() / unit))
    return shown


def draw_probabilities(shown: Mapping[str, Shown], *, title: str, columns: int = 3, largest: float = 0.2) -> Figure:
    """Draw head 0 of sequence 0 of every entry; white is 0, dark is ``largest`` or more.

    >>> import torch
    >>> figure = draw_probabilities({"uniform": Shown(torch.full((1, 1, 4, 4), 0.25), 0.0)}, title="one matrix")
    >>> [ax.get_title() for ax in figure.axes]
    ['uniform']
    """
    import matplotlib.pyplot as plt

    columns = min(columns, len(shown))
    lines = -(-len(shown) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(2.5 * columns, 2.5 * lines), squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (name, s) in zip(axes.flat, shown.items(), strict=False):
        ax.set_axis_on()
        ax.imshow(s.matrix[0, 0], vmin=0, vmax=largest, cmap="Blues")
        ax.set_title(name, fontsize=9.5)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.grid(False)
    figure.supxlabel("key", fontsize=9)
    figure.supylabel("query", fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure
