# SPDX-License-Identifier: MIT
"""LoRA by hand: a frozen linear layer plus a product of two thin matrices, and the tools to look at weight updates."""

from __future__ import annotations

import torch

from rocm_guide.common.base import GuideError

__all__ = ["LoRALinear", "add_lora", "low_rank", "rank_for_energy", "weight_updates"]


class LoRALinear(torch.nn.Module):
    """y = W x + (alpha / r) B A x, with W frozen, A of shape (r, in), B of shape (out, r).

    B starts at zero, so at first the layer computes exactly what it did before. A starts as PEFT's does (Kaiming
    uniform with a = sqrt 5). Source: Hu et al., "LoRA", arXiv:2106.09685, section 4.1.

    Args:
        layer: the linear layer to adapt; its weights are frozen.
        r: the rank, 1 or more.
        alpha: the scale of the update; alpha / r multiplies it.

    Raises:
        GuideError: the rank is not positive.

    >>> layer = LoRALinear(torch.nn.Linear(8, 6), r=2)
    >>> layer.A.shape, layer.B.shape, int(layer.B.abs().sum())
    (torch.Size([2, 8]), torch.Size([6, 2]), 0)
    """

    def __init__(self, layer: torch.nn.Linear, r: int = 8, alpha: float = 16) -> None:
        super().__init__()
        if r < 1:
            raise GuideError(f"r={r}: a LoRA rank is 1 or more, for example 8")
        self.layer = layer.requires_grad_(False)
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        self.A = torch.nn.Parameter(torch.empty(r, layer.in_features, **like))
        self.B = torch.nn.Parameter(torch.zeros(layer.out_features, r, **like))
        torch.nn.init.kaiming_uniform_(self.A, a=5**0.5)
        self.scale = alpha / r

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (…, in) to (…, out)."""
        return self.layer(x) + self.scale * (x @ self.A.T @ self.B.T)

    def merged(self) -> torch.nn.Linear:
        """Return one plain linear layer with W + (alpha / r) B A, which costs nothing extra at inference."""
        has_bias = self.layer.bias is not None
        plain = torch.nn.Linear(self.layer.in_features, self.layer.out_features, bias=has_bias)
        plain = plain.to(self.layer.weight)
        with torch.no_grad():
            plain.weight.copy_(self.layer.weight + self.scale * (self.B @ self.A))
            if has_bias:
                plain.bias.copy_(self.layer.bias)
        return plain


def add_lora(model: torch.nn.Module, targets: tuple[str, ...], r: int = 8, alpha: float = 16) -> list[str]:
    """Freeze ``model`` and replace every linear layer whose last name is in ``targets``; returns the full names.

    Raises:
        GuideError: no layer has such a name.

    >>> model = torch.nn.ModuleDict({"q_proj": torch.nn.Linear(4, 4), "norm": torch.nn.LayerNorm(4)})
    >>> add_lora(model, ("q_proj",), r=2)
    ['q_proj']
    """
    model.requires_grad_(False)
    found = [n for n, m in model.named_modules() if n.split(".")[-1] in targets and isinstance(m, torch.nn.Linear)]
    if not found:
        raise GuideError(f"targets={targets}: no linear layer has one of these names; see model.named_modules()")
    for name in found:
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], LoRALinear(model.get_submodule(name), r, alpha))
    return found


def weight_updates(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return W_after - W_before in float32 for every matrix that the two state dictionaries share.

    >>> w = {"w": torch.eye(2)}
    >>> weight_updates(w, {"w": 2 * torch.eye(2)})["w"].sum()
    tensor(2.)
    """
    both = [n for n, w in before.items() if n in after and w.ndim == 2]
    return {n: after[n].float().cpu() - before[n].float().cpu() for n in both}


def rank_for_energy(matrix: torch.Tensor, share: float = 0.9) -> int:
    """Return the smallest rank whose best approximation keeps ``share`` of the squared Frobenius norm of ``matrix``.

    By Eckart and Young (1936) that approximation is the truncated singular value decomposition, and the share it
    keeps is the sum of the first squared singular values over the sum of all.

    Raises:
        GuideError: share is not between 0 and 1.

    >>> rank_for_energy(torch.outer(torch.arange(1.0, 5), torch.ones(6)))
    1
    """
    if not 0 < share <= 1:
        raise GuideError(f"share={share}: give a number above 0 and at most 1")
    energy = torch.linalg.svdvals(matrix.double()).square()
    kept = energy.cumsum(0) / energy.sum()
    # The last sum can fall short of 1 by a rounding error.
    return min(int((kept < share).sum()) + 1, len(energy))


def low_rank(matrix: torch.Tensor, r: int) -> torch.Tensor:
    """Return the matrix of rank ``r`` nearest to ``matrix`` (Frobenius norm): its ``r`` largest singular components.

    Raises:
        GuideError: r is negative.

    >>> matrix = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    >>> low_rank(matrix, 2).diag().round()
    tensor([3., 2., 0.])
    """
    if r < 0:
        raise GuideError(f"r={r}: a rank is 0 or more")
    u, s, v = torch.linalg.svd(matrix.float(), full_matrices=False)
    return (u[:, :r] * s[:r]) @ v[:r]
