# SPDX-License-Identifier: MIT
r"""Multi-head latent attention for many queries, everything in one kernel: absorb, attend, project.

The cache holds for token :math:`t` a latent :math:`c_t` and a rotary key :math:`r_t` that all heads share. Head
:math:`h` would expand it to a key :math:`W^K_h c_t` and a value :math:`W^V_h c_t`. Both expansions can be moved:

.. math:: q \cdot W^K_h c_t = (W^{K\top}_h q) \cdot c_t, \qquad \sum_t p_t W^V_h c_t = W^V_h \sum_t p_t c_t

The kernel multiplies its tile of queries with :math:`W^K_h` once, before the loop (the document's pseudocode does so
too), attends in latent space, and multiplies the finished sums with :math:`W^V_h` once, after it. The pseudocode
applies :math:`W^V_h` inside the loop, to every tile of latents. That costs V x C multiplications per key and head where
moving it out costs BLOCK_M x C, and it is what makes the loop run out of registers. Here keys are the rows of a tile of
scores and queries its columns, so every wave of a workgroup has keys of its own and no product is made twice.

Source: DeepSeek-AI, "DeepSeek-V2", https://arxiv.org/abs/2405.04434, section 2.1; the document's MLA.py.
For one query over a long cache see mla_decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from rocm_guide.kernels.arguments import (
    KernelError,
    architecture,
    check_batch,
    check_contiguous,
    check_dtype,
    check_last_contiguous,
    check_number,
    check_same_device,
    check_shape,
    choose,
    compiler_options,
    next_power_of_2,
)
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["mla_attention", "reference_mla_absorbed", "reference_mla_naive"]


@dataclass(frozen=True)
class MlaTile:
    """Launch settings: queries and keys of a tile, rows of a weight multiplied at once.

    ``waves`` is AMD's ``waves_per_eu``; 0 leaves the registers to the compiler.
    """

    m: int
    n: int
    chunk: int
    warps: int = 8
    stages: int = 1
    waves: int = 0

    def options(self, arch: str) -> dict[str, Any]:
        """The compile options of a launch on ``arch``."""
        options = {"num_warps": self.warps, "num_stages": self.stages, "waves_per_eu": self.waves}
        return compiler_options(arch, options, matrix=True)


#: By architecture. (For gfx942 with Triton 3.9; 3.6 needs m=32 to keep everything in registers.)
MLA_PREFILL_CONFIGS: dict[str, MlaTile] = {
    "gfx942": MlaTile(m=64, n=32, chunk=32),
    "sm_90": MlaTile(m=64, n=64, chunk=32, stages=2),
    "interpreter": MlaTile(m=16, n=16, chunk=16),
}
_LOG2E = 1.4426950408889634


@triton.jit
def _mla_attention(
    q_ptr,
    q_pe_ptr,
    kv_ptr,
    pe_ptr,
    w_ptr,
    out_ptr,
    queries,
    keys,
    heads,
    qk_scale,
    kv_strides,
    pe_strides,
    D: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    CAUSAL: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """BLOCK_M queries of one head over all keys that they may see."""
    first, head, b = tl.program_id(0) * BLOCK_M, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    m, c, r, e = first + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R), tl.arange(0, CHUNK)
    row, in_m, in_c = ((b * queries + m) * heads + head)[None, :], (m < queries)[None, :], c < C
    w_ptr += head * (D + V) * C
    latent = tl.zeros((BLOCK_C, BLOCK_M), tl.float32)
    for d0 in range(0, D, CHUNK):  # absorb: W^K q, a few rows of W at a time, or it would not fit LDS
        q = tl.load(q_ptr + row * D + (d0 + e)[:, None], in_m & (d0 + e < D)[:, None], 0.0)
        w = tl.load(w_ptr + (d0 + e)[:, None] * C + c[None, :], (d0 + e < D)[:, None] & in_c[None, :], 0.0)
        latent = tl.dot(tl.trans(w), q, latent)
    q = latent.to(kv_ptr.dtype.element_ty)
    q_pe = tl.load(q_pe_ptr + row * R + r[:, None], in_m & (r < R)[:, None], 0.0)

    acc = tl.zeros((BLOCK_C, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), -1e30, tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    end = keys
    if CAUSAL:  # query i sees the keys up to i + keys - queries: the ends are aligned
        end = tl.maximum(tl.minimum(keys, first + BLOCK_M + keys - queries), 0)
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live, at = (n < keys)[:, None], n.to(tl.int64)[:, None]
        kv = tl.load(kv_ptr + b * kv_strides[0] + at * kv_strides[1] + c[None, :], live & in_c[None, :], 0.0)
        pe = tl.load(pe_ptr + b * pe_strides[0] + at * pe_strides[1] + r[None, :], live & (r < R)[None, :], 0.0)
        score = tl.dot(pe, q_pe, tl.dot(kv, q)) * qk_scale
        seen = live & ((n[:, None] <= m[None, :] + keys - queries) | (not CAUSAL))
        score = tl.where(seen, score, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        acc = tl.dot(tl.trans(kv), p.to(kv.dtype), acc * shrink[None, :])
        total, top = total * shrink + tl.sum(p, 0), new_top

    summed = (acc / tl.where(total > 0.0, total, 1.0)[None, :]).to(kv_ptr.dtype.element_ty)
    for v0 in range(0, V, CHUNK):  # project: W^V once, on the finished sums
        w = tl.load(w_ptr + (D + v0 + e)[:, None] * C + c[None, :], (v0 + e < V)[:, None] & in_c[None, :], 0.0)
        out = tl.dot(w, summed).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * V + (v0 + e)[:, None], out, in_m & (v0 + e < V)[:, None])


def check_mla(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    scale: float | None,
) -> float:
    """What latent attention asks of its arguments, with or without an axis of queries; returns the scale."""
    import torch

    names = {"q_nope": q_nope, "q_pe": q_pe, "kv": kv, "k_pe": k_pe, "wkv_b": wkv_b}
    check_dtype("q_nope", q_nope, (torch.float16, torch.bfloat16))
    for name, x in names.items():
        check_dtype(name, x, (q_nope.dtype,))
    check_same_device(**names)
    (*rows, d), heads = q_nope.shape, q_nope.shape[-2]
    check_shape("q_pe", q_pe, (*rows, None))
    check_shape("kv", kv, (rows[0], None, None))
    check_shape("k_pe", k_pe, (*kv.shape[:2], q_pe.shape[-1]))
    check_shape("wkv_b", wkv_b, (heads, None, kv.shape[2]))
    if wkv_b.shape[1] <= d:
        raise KernelError(f"wkv_b has {wkv_b.shape[1]} rows per head: give {d} for the keys and more for the values")
    if not 1 <= kv.shape[2] <= 512:
        raise KernelError(f"latents of {kv.shape[2]} numbers: give 1 to 512")
    for name in ("kv", "k_pe"):
        check_last_contiguous(name, names[name])
    check_contiguous("wkv_b", wkv_b)
    check_batch(rows[0])
    return check_number("scale", (d + q_pe.shape[-1]) ** -0.5 if scale is None else scale)


def mla_attention(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    config: MlaTile | None = None,
) -> torch.Tensor:
    """Latent attention of many queries.

    Args:
        q_nope: (batch, queries, heads, D), queries without position; fp16 or bf16, as all tensors.
        q_pe: (batch, queries, heads, R), their rotary part.
        kv: (batch, keys, C), the latents, normalised; C up to 512.
        k_pe: (batch, keys, R), the rotary keys. ``kv`` and ``k_pe`` may be slices of one (…, C + R) cache.
        wkv_b: (heads, D + V, C): the key projection above the value projection.
        causal: query i sees the keys up to i + keys - queries.
        scale: factor of the scores; ``(D + R) ** -0.5`` if None.
        config: another entry of MLA_PREFILL_CONFIGS.

    Returns:
        (batch, queries, heads, V); zeros for a query that sees no key.

    Raises:
        KernelError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``out = mla_attention(q_nope, q_pe, cache[..., :512], cache[..., 512:], wkv_b, causal=True)``.
    """
    import torch

    if config is None and (traced := operator("mla_attention")) is not None:
        return traced(q_nope, q_pe, kv, k_pe, wkv_b, causal, scale)
    check_shape("q_nope", q_nope, (None, None, None, None))
    scale = check_mla(q_nope, q_pe, kv, k_pe, wkv_b, scale)
    (batch, queries, heads, d), (_, keys, c), r = q_nope.shape, kv.shape, q_pe.shape[-1]
    v = wkv_b.shape[1] - d
    out = torch.empty((batch, queries, heads, v), dtype=q_nope.dtype, device=q_nope.device)
    if not out.numel():
        return out
    arch = architecture(q_nope)
    config = config or choose(MLA_PREFILL_CONFIGS, arch)
    _mla_attention[(-(-queries // config.m), heads, batch)](
        q_nope.contiguous(),
        q_pe.contiguous(),
        kv,
        k_pe,
        wkv_b,
        out,
        queries,
        keys,
        heads,
        scale * _LOG2E,
        kv.stride(),
        k_pe.stride(),
        D=d,
        V=v,
        C=c,
        R=r,
        CAUSAL=bool(causal),
        CHUNK=config.chunk,
        BLOCK_M=config.m,
        BLOCK_N=config.n,
        BLOCK_C=max(16, next_power_of_2(c)),
        BLOCK_R=max(16, next_power_of_2(r)),
        **config.options(arch),
    )
    return out


def _weights(scores: torch.Tensor, lengths: torch.Tensor | None, causal: bool) -> torch.Tensor:
    """Softmax over the keys of (batch, queries, heads, keys); rows that see no key get zeros."""
    import torch

    s, t = scores.shape[1], scores.shape[3]
    key = torch.arange(t, device=scores.device)
    if lengths is not None:
        scores = scores.masked_fill((key >= lengths[:, None])[:, None, None], float("-inf"))
    if causal:
        query = torch.arange(s, device=scores.device) + t - s
        scores = scores.masked_fill((key > query[:, None])[None, :, None], float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0)


def reference_mla_naive(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Expand every latent into the keys and values of all heads, then attend as usual. See mla_attention for shapes."""
    import torch

    d = q_nope.shape[-1]
    k_nope, v = torch.einsum("btc,hdc->bthd", kv, wkv_b).split([d, wkv_b.shape[1] - d], dim=-1)
    k = torch.cat([k_nope, k_pe[:, :, None].expand(-1, -1, wkv_b.shape[0], -1)], dim=-1)
    q = torch.cat([q_nope, q_pe], dim=-1)
    scores = torch.einsum("bshd,bthd->bsht", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.einsum("bsht,bthd->bshd", _weights(scores, lengths, causal), v)


def reference_mla_absorbed(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """The same with both projections moved, as in the kernels: nothing is expanded per token."""
    import torch

    d = q_nope.shape[-1]
    latent = torch.einsum("bshd,hdc->bshc", q_nope, wkv_b[:, :d])
    scores = torch.einsum("bshc,btc->bsht", latent, kv) + torch.einsum("bshr,btr->bsht", q_pe, k_pe)
    scores = scores * ((d + q_pe.shape[-1]) ** -0.5 if scale is None else scale)
    summed = torch.einsum("bsht,btc->bshc", _weights(scores, lengths, causal), kv)
    return torch.einsum("bshc,hdc->bshd", summed, wkv_b[:, d:])
