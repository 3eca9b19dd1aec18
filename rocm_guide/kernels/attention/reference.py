# SPDX-License-Identifier: MIT
"""Attention in plain torch, the yardstick of the kernels: the whole matrix of scores, in the type of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["reference_attention"]


def philox_keep(seed: int, bh: int, rows: int, columns: int, threshold: int) -> torch.Tensor:
    """Which elements of a (rows, columns) matrix dropout keeps, by Philox 4x32 with seven rounds in int64 arithmetic.

    Args:
        bh: number of the (sequence, head) pair, the third counter; columns and rows are the first two.
        threshold: an element is kept when the top 24 of its 32 random bits reach it.

    Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    >>> philox_keep(7, 0, 1000, 10, 1 << 22).float().mean().item()  # a quarter is dropped
    0.7569000124931335
    """
    import torch

    mask = 0xFFFFFFFF
    c0 = torch.arange(columns)[None, :].expand(rows, columns)
    c1 = torch.arange(rows)[:, None].expand(rows, columns)
    c2, c3 = torch.full_like(c0, bh), torch.zeros_like(c0)
    k0, k1 = seed & mask, seed >> 32

    def product(a: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # 32 x 32 bits overflow int64's sign: the factor is split into halves of 16.
        low, high = (a & 0xFFFF) * x, (a >> 16) * x
        high = high + (low >> 16)
        return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)

    for _ in range(7):
        (h0, l0), (h1, l1) = product(0xD2511F53, c0), product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return (c0 >> 8) >= threshold


def reference_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (batch, heads, queries, D) and log-sum-exp (batch, heads, queries); differentiable.

    q, k, v are (batch, heads, rows, D) with fewer KV heads allowed; give float64 for a yardstick. A row whose keys are
    all masked gives 0 and -inf.

    >>> import torch
    >>> x = torch.eye(2, dtype=torch.float64)[None, None]
    >>> out, lse = reference_attention(x, x, x, causal=True)
    >>> out[0, 0, 0].tolist(), round(lse[0, 0, 0].item(), 4)  # the first query sees the first key only
    ([1.0, 0.0], 0.7071)
    """
    import torch

    batch, heads, len_q, d = q.shape
    len_k, group = k.shape[2], heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * (d**-0.5 if scale is None else scale)
    i, j = torch.arange(len_q, device=q.device)[:, None], torch.arange(len_k, device=q.device)[None, :]
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(s.dtype).expand(batch, heads)[..., None, None]
        s = s - slopes * (i + len_k - len_q - j).abs()
    if bias is not None:
        s = s + bias.to(s.dtype)
    if causal:
        s = s.masked_fill(j > i + len_k - len_q, float("-inf"))
    # A row without keys would give exp(-inf - -inf) = NaN, in the gradient too: it is shifted by 0 instead.
    top = s.amax(-1, keepdim=True).detach() if len_k else s.new_zeros(*s.shape[:-1], 1)
    p = torch.exp(s - torch.where(top.isfinite(), top, 0.0))
    total = p.sum(-1, keepdim=True)
    lse = (top + total.log())[..., 0] if len_k else s.new_full(s.shape[:-1], float("-inf"))
    p = p / torch.where(total > 0, total, 1.0)
    if dropout:
        threshold = round(dropout * 2**24)
        masks = [philox_keep(seed, n, len_q, len_k, threshold) for n in range(batch * heads)]
        keep = torch.stack(masks).view(batch, heads, len_q, len_k).to(p.device)
        p = p * keep / (1.0 - threshold / 2**24)
    return p @ v, lse
