# SPDX-License-Identifier: MIT
r"""Multi-head latent attention, decoding: one small latent per token serves all heads, and K and V are never built.

The cache holds for token :math:`t` a latent :math:`c_t` (512 numbers in DeepSeek-V3) and a rotary key :math:`r_t` (64),
and mla_attention explains why no head needs more:

.. math:: q_h \cdot W^K_h c_t = (W^{K\top}_h q_h) \cdot c_t, \qquad \sum_t p_t W^V_h c_t = W^V_h \sum_t p_t c_t

In decoding there is one query per head, but 16 or 128 heads read the same 576 numbers per token. So the *heads* are the
columns of a tile of scores here (keys are its rows), and a token is loaded once for 16 to 64 heads.

Three steps: absorb (the query into latent space), attend (the keys are cut into parts, which are joined as in
attention_decode), project (out of latent space). Only the second grows with the context.

Source: DeepSeek-AI, "DeepSeek-V2", https://arxiv.org/abs/2405.04434, section 2.1; the document's MLA.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    architecture,
    check_dtype,
    check_same_device,
    check_shape,
    choose,
    compiler_options,
    next_power_of_2,
)
from rocm_guide.kernels.decode.configs import DecodeTile, parts_for
from rocm_guide.kernels.decode.decode import _combine, check_parts
from rocm_guide.kernels.decode.mla_prefill import check_mla, reference_mla_absorbed
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["MLA_CONFIGS", "launch_mla", "mla_decode", "reference_mla_decode"]

#: By architecture and heads of a tile. Not one stage with 8 warps on sm_90: under Triton 3.6 an H100 reported an
#: illegal memory access. The PTX has none (every address of it was followed, between guards), so the fault lies
#: further down.
MLA_CONFIGS: dict[str, dict[int, DecodeTile]] = {
    "gfx942": {
        16: DecodeTile(block=32, per_unit=2, least=128),
        32: DecodeTile(block=64, per_unit=1, least=128, warps=8),
    },
    "sm_90": {
        16: DecodeTile(block=64, per_unit=1, least=128, warps=8, stages=2),
        64: DecodeTile(block=64, per_unit=1, least=128, warps=8, stages=2),
    },
    "interpreter": {16: DecodeTile(block=16, per_unit=2, least=16)},
}
_PROJECTION_STAGES = {"gfx942": 1, "sm_90": 2}
_LOG2E = 1.4426950408889634


@triton.jit
def _per_head(
    x_ptr,
    w_ptr,
    out_ptr,
    batch,
    heads,
    w_head,
    w_k,
    w_n,
    K: tl.constexpr,
    N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """``out[b, h] = x[b, h] @ W_h`` for 16 sequences and BLOCK_N columns: into latent space and out of it again."""
    head, b = tl.program_id(0).to(tl.int64), tl.program_id(2) * 16 + tl.arange(0, 16)
    n, row = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), (b.to(tl.int64) * heads + head)[:, None]
    acc = tl.zeros((16, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * K + k[None, :], (b < batch)[:, None] & (k < K)[None, :], 0.0)
        inside = (k < K)[:, None] & (n < N)[None, :]
        w = tl.load(w_ptr + head * w_head + k[:, None] * w_k + n[None, :] * w_n, inside, 0.0)
        acc = tl.dot(x, w, acc)
    target = out_ptr + row * N + n[None, :]
    tl.store(target, acc.to(out_ptr.dtype.element_ty), (b < batch)[:, None] & (n < N)[None, :])


@triton.jit
def _mla_part(
    q_ptr,
    q_pe_ptr,
    kv_ptr,
    pe_ptr,
    length_ptr,
    part_ptr,
    lse_ptr,
    tokens,
    qk_scale,
    heads,
    kv_batch,
    kv_token,
    pe_batch,
    pe_token,
    C: tl.constexpr,
    R: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """One part of the keys for BLOCK_M heads: the weighed mean of its latents, and its log-sum-exp."""
    part, parts, b = tl.program_id(1), tl.num_programs(1), tl.program_id(2).to(tl.int64)
    h, c, r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    row, in_h, in_c, in_r = b * heads + h, (h < heads)[None, :], c < C, r < R
    q = tl.load(q_ptr + row[None, :] * C + c[:, None], in_h & in_c[:, None], 0.0)
    q_pe = tl.load(q_pe_ptr + row[None, :] * R + r[:, None], in_h & in_r[:, None], 0.0)
    acc = tl.zeros((BLOCK_C, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), float("-inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)

    length = tokens
    if length_ptr is not None:
        length = tl.minimum(tl.load(length_ptr + b).to(tl.int32), tokens)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), parts) * BLOCK_N
    for start in range(part * share, tl.minimum(part * share + share, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live, at = (n < length)[:, None], n.to(tl.int64)[:, None]
        kv = tl.load(kv_ptr + b * kv_batch + at * kv_token + c[None, :], live & in_c[None, :], 0.0)
        pe = tl.load(pe_ptr + b * pe_batch + at * pe_token + r[None, :], live & in_r[None, :], 0.0)
        score = tl.where(live, tl.dot(pe, q_pe, tl.dot(kv, q)) * qk_scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        acc = tl.dot(tl.trans(kv), p.to(kv.dtype), acc * shrink[None, :])  # the latents are keys and values at once
        total, top = total * shrink + tl.sum(p, 0), new_top

    part_row, some = row * parts + part, total > 0.0
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part_row, lse, h < heads)
    mean = (acc / tl.where(some, total, 1.0)[None, :]).to(part_ptr.dtype.element_ty)
    tl.store(part_ptr + part_row[None, :] * C + c[:, None], mean, in_h & in_c[:, None])


def _multiply(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """(batch, heads, K) times (heads, K, N), one matrix per head; ``w`` may be a transposed view."""
    import torch

    (batch, heads, k), n = x.shape, w.shape[2]
    out = torch.empty((batch, heads, n), dtype=x.dtype, device=x.device)
    block_k, block_n = (min(128, max(16, next_power_of_2(size))) for size in (k, n))
    grid = (heads, -(-n // block_n), -(-batch // 16))
    arch = architecture(x)
    options = compiler_options(arch, {"num_warps": 4, "num_stages": choose(_PROJECTION_STAGES, arch)}, matrix=True)
    _per_head[grid](x, w, out, batch, heads, *w.stride(), K=k, N=n, BLOCK_K=block_k, BLOCK_N=block_n, **options)
    return out


def launch_mla(
    latent: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    lengths: torch.Tensor | None,
    scale: float,
    parts: int | None = None,
    config: Mapping[int, DecodeTile] | None = None,
) -> torch.Tensor:
    """Attend in latent space: (batch, heads, C) queries and results. Checked arguments."""
    import torch

    (batch, heads, c), r, tokens = latent.shape, q_pe.shape[2], kv.shape[1]
    arch = architecture(latent)
    config = config or choose(MLA_CONFIGS, arch)
    rows = min((n for n in config if n >= heads), default=max(config))
    tile, tiles = config[rows], -(-heads // rows)
    parts = parts or parts_for(latent, tokens, tiles, tile)
    out = torch.empty_like(latent)
    lse = torch.empty((batch, heads, parts), dtype=torch.float32, device=latent.device)
    part = torch.empty((batch, heads, parts, c), dtype=torch.float32, device=latent.device) if parts > 1 else out
    block_c, block_r = (max(16, next_power_of_2(size)) for size in (c, r))
    _mla_part[(tiles, parts, batch)](
        latent,
        q_pe,
        kv,
        k_pe,
        lengths,
        part,
        lse,
        tokens,
        scale * _LOG2E,
        heads,
        kv.stride(0),
        kv.stride(1),
        k_pe.stride(0),
        k_pe.stride(1),
        C=c,
        R=r,
        BLOCK_M=rows,
        BLOCK_N=tile.block,
        BLOCK_C=block_c,
        BLOCK_R=block_r,
        **tile.options(arch),
    )
    if parts > 1:
        shape = {"D": c, "BLOCK_D": block_c, "BLOCK_P": next_power_of_2(parts)}
        _combine[(batch * heads,)](part, lse, out, parts, **shape, num_warps=8)
    return out


def mla_decode(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Latent attention of one query token per sequence.

    Args:
        q_nope: (batch, heads, D), the query without position; fp16 or bf16, as all tensors.
        q_pe: (batch, heads, R), its rotary part.
        kv: (batch, keys, C), the cached latents, normalised.
        k_pe: (batch, keys, R), the cached rotary keys. ``kv`` and ``k_pe`` may be slices of one (…, C + R) cache.
        wkv_b: (heads, D + V, C): the key projection above the value projection.
        lengths: (batch,) integers, how many keys count; all if None.
        scale: factor of the scores; ``(D + R) ** -0.5`` if None.
        parts: into how many parts to cut the keys; chosen if None.

    Returns:
        (batch, heads, V) in the dtype of q_nope; zeros for a sequence without keys.

    Raises:
        KernelError: shapes, dtypes, strides or devices that do not fit together.

    >>> import torch
    >>> from rocm_guide.kernels.anywhere import call  # on a GPU: mla_decode(…) itself
    >>> q, rope = torch.zeros(1, 2, 16).half(), torch.zeros(1, 2, 8).half()
    >>> latents, w = torch.ones(1, 3, 32).half(), torch.ones(2, 16 + 4, 32).half()
    >>> call(mla_decode, q, rope, latents, torch.zeros(1, 3, 8).half(), w)[0].tolist()
    [[32.0, 32.0, 32.0, 32.0], [32.0, 32.0, 32.0, 32.0]]
    """
    import torch

    if (traced := operator("mla_decode")) is not None:
        return traced(q_nope, q_pe, kv, k_pe, wkv_b, lengths, scale, parts)
    check_shape("q_nope", q_nope, (None, None, None))
    scale = check_mla(q_nope, q_pe, kv, k_pe, wkv_b, scale)
    if lengths is not None:
        check_shape("lengths", lengths, (q_nope.shape[0],))
        check_dtype("lengths", lengths, (torch.int32, torch.int64))
        check_same_device(q_nope=q_nope, lengths=lengths)
    d = q_nope.shape[-1]
    latent = _multiply(q_nope.contiguous(), wkv_b[:, :d])
    summed = launch_mla(latent, q_pe.contiguous(), kv, k_pe, lengths, scale, check_parts(parts))
    return _multiply(summed, wkv_b[:, d:].transpose(1, 2))


def reference_mla_decode(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The absorbed form in plain torch, for one query per sequence. See mla_decode for shapes."""
    return reference_mla_absorbed(q_nope[:, None], q_pe[:, None], kv, k_pe, wkv_b, lengths=lengths, scale=scale)[:, 0]
