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
For one query over a long cache see the file ``mla_decode``. For a long prompt it takes fewer operations to write keys
and values out and to attend with ``attention``, whose values may be narrower than its keys. The file needs torch and
triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["MLA_PREFILL_CONFIGS", "MlaTile", "mla_attention", "reference_mla_absorbed", "reference_mla_naive"]

LOG2E = 1.4426950408889634


@triton.jit
def _mla_attention(
    q_ptr, q_pe_ptr, kv_ptr, pe_ptr, w_ptr, out_ptr, queries, keys, heads, qk_scale,
    kv_batch, kv_token, pe_batch, pe_token,
    D: tl.constexpr, V: tl.constexpr, C: tl.constexpr, R: tl.constexpr, CAUSAL: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Attend with BLOCK_M queries of one head to all keys that they may see."""
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
        kv = tl.load(kv_ptr + b * kv_batch + at * kv_token + c[None, :], live & in_c[None, :], 0.0)
        pe = tl.load(pe_ptr + b * pe_batch + at * pe_token + r[None, :], live & (r < R)[None, :], 0.0)
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


class MlaTile(NamedTuple):
    """A launch: queries and keys of a tile, rows of a weight multiplied at once, the compiler's options."""

    m: int
    n: int
    chunk: int
    warps: int = 8
    stages: int = 1
    waves: int = 0  #: AMD's ``waves_per_eu``; 0 leaves the registers to the compiler

    def options(self, arch: str) -> dict[str, Any]:
        """Return the compile options of a launch on ``arch``."""
        # On AMD the 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        amd = {"matrix_instr_nonkdim": 16, "waves_per_eu": self.waves} if arch.startswith("gfx") else {}
        return {"num_warps": self.warps, "num_stages": self.stages} | amd


#: By architecture; others take gfx942's. (That with Triton 3.9; 3.6 needs m=32 to keep everything in registers.)
MLA_PREFILL_CONFIGS = {
    "gfx942": MlaTile(m=64, n=32, chunk=32),
    "sm_90": MlaTile(m=64, n=64, chunk=32, stages=2),
    "interpreter": MlaTile(m=16, n=16, chunk=16),
}


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for: ``gfx942``, ``sm_90``, ``interpreter``.

    Raises:
        ValueError: on the CPU without Triton's interpreter, or on another GPU than the current one.
    """
    if x.device.type == "cuda":
        if x.device.index not in (None, here := torch.cuda.current_device()):
            raise ValueError(f"tensors on {x.device}, Triton launches on cuda:{here}: use torch.cuda.device(x.device)")
        if torch.version.hip:
            return str(torch.cuda.get_device_properties(x.device).gcnArchName).split(":")[0]
        return "sm_{}{}".format(*torch.cuda.get_device_capability(x.device))
    if x.device.type == "cpu" and triton.knobs.runtime.interpret:
        return "interpreter"
    raise ValueError(f"tensors on {x.device}: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts")


def check(name: str, t: Any, shape: tuple[int | None, ...], x: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check that ``t`` has this shape (None: any size), one of these types, and lies where ``x`` does.

    Raises:
        ValueError: it does not; the message names it.
    """
    if not isinstance(t, torch.Tensor):
        raise ValueError(f"{name} is {t!r:.40}: give a tensor")
    if t.dtype not in dtypes:
        raise ValueError(f"{name} is {t.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if t.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, t.shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(t.shape)}: give {shape}".replace("None", "any"))
    if t.device != x.device:
        raise ValueError(f"{name} is on {t.device}, q_nope on {x.device}: put them on one device")


def check_mla(q_nope: Any, q_pe: Any, kv: Any, k_pe: Any, wkv_b: Any, scale: float | None, axes: int) -> float:
    """Check what latent attention asks of its arguments, with ``axes`` of q_nope before its features; the scale.

    Raises:
        ValueError: shapes, dtypes, strides or devices that do not fit together.
    """
    check("q_nope", q_nope, (None,) * (axes + 1), q_nope, (torch.float16, torch.bfloat16))
    (*rows, d), heads, one = q_nope.shape, q_nope.shape[-2], (q_nope.dtype,)
    check("q_pe", q_pe, (*rows, None), q_nope, one)
    check("kv", kv, (rows[0], None, None), q_nope, one)
    check("k_pe", k_pe, (*kv.shape[:2], q_pe.shape[-1]), q_nope, one)
    check("wkv_b", wkv_b, (heads, None, kv.shape[2]), q_nope, one)
    if wkv_b.shape[1] <= d:
        raise ValueError(f"wkv_b has {wkv_b.shape[1]} rows per head: give {d} for the keys and more for the values")
    if not 1 <= kv.shape[2] <= 512:
        raise ValueError(f"latents of {kv.shape[2]} numbers: give 1 to 512")
    for name, x in (("kv", kv), ("k_pe", k_pe)):
        if x.shape[-1] > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} has stride {x.stride(-1)} in its last dimension: call .contiguous()")
    if not wkv_b.is_contiguous():
        raise ValueError(f"wkv_b of shape {tuple(wkv_b.shape)} has strides {wkv_b.stride()}: call .contiguous()")
    if rows[0] > 65_535:  # what CUDA and HIP launch along the third axis of a grid
        raise ValueError(f"a batch of {rows[0]}: give 65535 sequences at most, or call several times")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) < 3.4e38):
        raise ValueError(f"scale={scale!r}: give a finite number")
    return float((d + q_pe.shape[-1]) ** -0.5 if scale is None else scale)


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
    """Return latent attention of many queries.

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
        ValueError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``out = mla_attention(q_nope, q_pe, cache[..., :512], cache[..., 512:], wkv_b, causal=True)``.
    """
    scale = check_mla(q_nope, q_pe, kv, k_pe, wkv_b, scale, 3)
    (batch, queries, heads, d), (_, keys, c), r = q_nope.shape, kv.shape, q_pe.shape[-1]
    v = wkv_b.shape[1] - d
    out = torch.empty((batch, queries, heads, v), dtype=q_nope.dtype, device=q_nope.device)
    arch = architecture(q_nope)
    if not out.numel():
        return out
    config = config or MLA_PREFILL_CONFIGS.get(arch, MLA_PREFILL_CONFIGS["gfx942"])
    _mla_attention[(triton.cdiv(queries, config.m), heads, batch)](
        q_nope.contiguous(),
        q_pe.contiguous(),
        kv,
        k_pe,
        wkv_b,
        out,
        queries,
        keys,
        heads,
        scale * LOG2E,
        *kv.stride()[:2],
        *k_pe.stride()[:2],
        D=d,
        V=v,
        C=c,
        R=r,
        CAUSAL=bool(causal),
        CHUNK=config.chunk,
        BLOCK_M=config.m,
        BLOCK_N=config.n,
        BLOCK_C=max(16, triton.next_power_of_2(c)),
        BLOCK_R=max(16, triton.next_power_of_2(r)),
        **config.options(arch),
    )
    return out


def _weights(scores: torch.Tensor, lengths: torch.Tensor | None, causal: bool) -> torch.Tensor:
    """Return the softmax over the keys of (batch, queries, heads, keys); rows that see no key get zeros."""
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
    """Return the same with both projections moved, as in the kernels: nothing is expanded per token."""
    d = q_nope.shape[-1]
    latent = torch.einsum("bshd,hdc->bshc", q_nope, wkv_b[:, :d])
    scores = torch.einsum("bshc,btc->bsht", latent, kv) + torch.einsum("bshr,btr->bsht", q_pe, k_pe)
    scores = scores * ((d + q_pe.shape[-1]) ** -0.5 if scale is None else scale)
    summed = torch.einsum("bsht,btc->bshc", _weights(scores, lengths, causal), kv)
    return torch.einsum("bshc,hdc->bshd", summed, wkv_b[:, d:])
