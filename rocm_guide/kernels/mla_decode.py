# SPDX-License-Identifier: MIT
r"""Multi-head latent attention, decoding: one small latent per token serves all heads, and K and V are never built.

The cache holds for token :math:`t` a latent :math:`c_t` (512 numbers in DeepSeek-V3) and a rotary key :math:`r_t` (64),
and the file ``mla_prefill`` explains why no head needs more:

.. math:: q_h \cdot W^K_h c_t = (W^{K\top}_h q_h) \cdot c_t, \qquad \sum_t p_t W^V_h c_t = W^V_h \sum_t p_t c_t

In decoding there is one query per head, but 16 or 128 heads read the same 576 numbers per token. So the *heads* are the
columns of a tile of scores here (keys are its rows), and a token is loaded once for 16 to 64 heads.

Three steps: absorb (the query into latent space), attend (the keys are cut into parts, which are joined as in
the file ``decode``), project (out of latent space). Only the second grows with the context.

Source: DeepSeek-AI, "DeepSeek-V2", https://arxiv.org/abs/2405.04434, section 2.1; the document's MLA.py.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["MLA_CONFIGS", "DecodeTile", "launch_mla", "mla_decode", "reference_mla_decode"]

#: Parts that the combining kernel can hold.
MOST_PARTS = 512
LOG2E = 1.4426950408889634


@triton.jit
def _per_head(
    x_ptr, w_ptr, out_ptr, batch, heads, w_first, w_head, w_k, w_n,
    K: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Find ``out[b, h] = x[b, h] @ W_h`` for 16 sequences and BLOCK_N columns: into latent space and out of it."""
    head, b = tl.program_id(0).to(tl.int64), tl.program_id(2) * 16 + tl.arange(0, 16)
    n, row = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), (b.to(tl.int64) * heads + head)[:, None]
    acc = tl.zeros((16, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * K + k[None, :], (b < batch)[:, None] & (k < K)[None, :], 0.0)
        inside = (k < K)[:, None] & (n < N)[None, :]
        w = tl.load(w_ptr + w_first + head * w_head + k[:, None] * w_k + n[None, :] * w_n, inside, 0.0)
        acc = tl.dot(x, w, acc)
    target = out_ptr + row * N + n[None, :]
    tl.store(target, acc.to(out_ptr.dtype.element_ty), (b < batch)[:, None] & (n < N)[None, :])


@triton.jit
def _mla_part(
    q_ptr, q_pe_ptr, kv_ptr, pe_ptr, length_ptr, part_ptr, lse_ptr, tokens, qk_scale, heads,
    kv_batch, kv_token, pe_batch, pe_token,
    C: tl.constexpr, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Attend to one part of the keys with BLOCK_M heads: the weighed mean of its latents, and its log-sum-exp."""
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


@triton.jit
def _combine(part_ptr, lse_ptr, out_ptr, parts, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_P: tl.constexpr):
    """Average the parts of one row of the output, each weighed by exp2 of its log-sum-exp; 16 parts at a time."""
    row, d, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_P)
    lse = tl.load(lse_ptr + row * parts + i, i < parts, float("-inf"))
    top = tl.max(lse, 0)
    top = tl.where(top > float("-inf"), top, 0.0)  # no part has a key: weights 0, not NaN
    total = tl.sum(tl.exp2(lse - top), 0)
    acc = tl.zeros((16, BLOCK_D), tl.float32)
    for first in range(0, parts, 16):
        j = first + tl.arange(0, 16)
        weight = tl.exp2(tl.load(lse_ptr + row * parts + j, j < parts, float("-inf")) - top)
        inside = (j < parts)[:, None] & (d < D)[None, :]
        acc += weight[:, None] * tl.load(part_ptr + (row * parts + j)[:, None] * D + d[None, :], inside, 0.0)
    out = tl.sum(acc, 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + row * D + d, out.to(out_ptr.dtype.element_ty), d < D)


class DecodeTile(NamedTuple):
    """A launch: keys per step, programs that share a compute unit, fewest keys per part, the compiler's options."""

    block: int
    per_unit: int
    least: int
    warps: int = 4
    stages: int = 1

    def options(self, arch: str) -> dict[str, Any]:
        """Return the compile options of a launch on ``arch``."""
        # On AMD the 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        amd = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}
        return {"num_warps": self.warps, "num_stages": self.stages} | amd

    def parts(self, x: torch.Tensor, programs: int, tokens: int) -> int:
        """Return how many parts to cut the keys into: all find a place at once, none has too little to do."""
        units = torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 2
        places = self.per_unit * units
        return max(1, min(places // max(programs, 1), triton.cdiv(tokens, self.least), MOST_PARTS))


#: By architecture and heads of a tile. Not one stage with 8 warps on sm_90: under Triton 3.6 an H100 reported an
#: illegal memory access. The PTX has none (every address of it was followed, between guards), so the fault lies
#: further down.
MLA_CONFIGS = {
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


def architecture(x: torch.Tensor) -> str:
    """Return what a kernel on ``x`` is compiled for (``gfx942``, ``sm_90``, ``interpreter``), or raise ValueError."""
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
    """Raise ValueError unless ``t`` has this shape (None: any size), one of these types, and lies where ``x`` does."""
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


def project(x: torch.Tensor, w: torch.Tensor, first: int, size: int) -> torch.Tensor:
    """Return (batch, heads, ``size``) of ``x`` and rows of each head's matrix ``w`` (heads, rows, C) from ``first``.

    Into latent space (batch, heads, rows) is multiplied with them, out of it (batch, heads, C) with the transpose.
    """
    (batch, heads, k), (w_head, row, column) = x.shape, w.stride()
    out = torch.empty((batch, heads, size), dtype=x.dtype, device=x.device)
    block_k, block_n = (min(128, max(16, triton.next_power_of_2(n))) for n in (k, size))
    arch = architecture(x)
    steps = (column, row) if first else (row, column)
    _per_head[(heads, triton.cdiv(size, block_n), triton.cdiv(batch, 16))](
        x,
        w,
        out,
        batch,
        heads,
        first * row,
        w_head,
        *steps,
        K=k,
        N=size,
        BLOCK_K=block_k,
        BLOCK_N=block_n,
        **DecodeTile(0, 0, 0, stages=2 if arch == "sm_90" else 1).options(arch),
    )
    return out


def launch_mla(
    latent: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    lengths: torch.Tensor | None,
    scale: float,
    parts: int | None = None,
    config: dict[int, DecodeTile] | None = None,
) -> torch.Tensor:
    """Return attention in latent space, (batch, heads, C) as its queries ``latent``; of checked arguments."""
    (batch, heads, c), r, tokens = latent.shape, q_pe.shape[2], kv.shape[1]
    arch = architecture(latent)
    config = config or MLA_CONFIGS.get(arch, MLA_CONFIGS["gfx942"])
    rows = min((n for n in config if n >= heads), default=max(config))
    tile, tiles = config[rows], triton.cdiv(heads, rows)
    parts = parts or tile.parts(latent, batch * tiles, tokens)
    out = torch.empty_like(latent)
    lse = torch.empty((batch, heads, parts), dtype=torch.float32, device=latent.device)
    part = torch.empty((batch, heads, parts, c), dtype=torch.float32, device=latent.device) if parts > 1 else out
    block_c, block_r = (max(16, triton.next_power_of_2(size)) for size in (c, r))
    _mla_part[(tiles, parts, batch)](
        latent,
        q_pe,
        kv,
        k_pe,
        lengths,
        part,
        lse,
        tokens,
        scale * LOG2E,
        heads,
        *kv.stride()[:2],
        *k_pe.stride()[:2],
        C=c,
        R=r,
        BLOCK_M=rows,
        BLOCK_N=tile.block,
        BLOCK_C=block_c,
        BLOCK_R=block_r,
        **tile.options(arch),
    )
    if parts > 1:
        shape = {"D": c, "BLOCK_D": block_c, "BLOCK_P": triton.next_power_of_2(parts)}
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
    """Return latent attention of one query token per sequence.

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
        ValueError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``out = mla_decode(q_nope, q_pe, cache[..., :512], cache[..., 512:], wkv_b, lengths=lengths)``.
    """
    scale = check_mla(q_nope, q_pe, kv, k_pe, wkv_b, scale, 2)
    if lengths is not None:
        check("lengths", lengths, (q_nope.shape[0],), q_nope, (torch.int32, torch.int64))
    if parts is not None and (type(parts) is not int or not 1 <= parts <= MOST_PARTS):
        raise ValueError(f"parts={parts!r}: give an integer from 1 to {MOST_PARTS}, or None")
    d = q_nope.shape[-1]
    latent = project(q_nope.contiguous(), wkv_b, 0, kv.shape[2])
    summed = launch_mla(latent, q_pe.contiguous(), kv, k_pe, lengths, scale, parts)
    return project(summed, wkv_b, d, wkv_b.shape[1] - d)


def reference_mla_decode(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Return the absorbed form in plain torch, for one query per sequence. See :func:`mla_decode` for shapes."""
    d = q_nope.shape[-1]
    latent = torch.einsum("bhd,hdc->bhc", q_nope, wkv_b[:, :d])
    scores = torch.einsum("bhc,btc->bht", latent, kv) + torch.einsum("bhr,btr->bht", q_pe, k_pe)
    scores = scores * ((d + q_pe.shape[-1]) ** -0.5 if scale is None else scale)
    if lengths is not None:
        hidden = torch.arange(kv.shape[1], device=kv.device) >= lengths[:, None]
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0.0)  # a sequence without keys gets zeros
    return torch.einsum("bhc,hdc->bhd", torch.einsum("bht,btc->bhc", weights, kv), wkv_b[:, d:])
