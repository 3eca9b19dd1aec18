# SPDX-License-Identifier: MIT
r"""Attention on 8-bit numbers: int8 in the document's three ways, and fp8; the softmax is always in fp32.

- int8 q, k, v with q, k and v scales: the first product is int8 x int8 in int32; p stays in 16 bits and v is converted.
- the same and ``p_scale``: the second product is int8 x int8 too, with p = round(p / p_scale).
- int8 k, v with k and v scales, q in 16 bits: k and v are converted and both products run in the type of q.
- fp8 (e4m3) q, k, v with scales: both products are fp8 x fp8 in fp32, p times a power of two.

A scale belongs to one head of one sequence, so it moves out of both sums: those of q and k into the softmax's own
scale, that of v to the end. Converting int8 to 16 bits is exact. p lies in [0, 1]; before it becomes 8 bits it is
stretched to the type's range by adding to the exponent, and the sum that it is divided by is stretched with it.

Error bounds against exact attention on the dequantised q, k and v, for a row of n keys whose largest probability is
P: int8 p adds at most :math:`n P \max|v| / 127` (each p is off by half a step of P / 127, in the sum too), e4m3 p at
most :math:`2^{-4} \max|v|` (three bits of mantissa). Both are worst cases; errors of both signs cancel in practice.
On Hopper the fp8 scores themselves are less exact: an instruction adds 32 products to the sum so far, and keeps of each
only what lies within 14 bits of the largest (emulated in the tests; an H100 showed the same deviations).

Source: the document's flash-attention.py, "INT8 Quantization Support"; the loop is that of the file ``attention``.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["Tile", "attention_quantized", "dequantize_heads", "quantize_heads"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
#: Triton's names for the types of the second product.
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.int8: tl.int8,
         torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e4m3fnuz: tl.float8e4b8}  # fmt: skip
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(
    base, start, length, step, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MASKED: tl.constexpr
):
    """Return rows ``start`` to ``start + ROWS`` of a (length, D) matrix as a (ROWS, COLUMNS) tile; zero outside."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = base + tl.cast(start, tl.int64) * step + (rows[:, None] * step + columns[None, :])
    if MASKED:
        if D == COLUMNS:
            return tl.load(at, mask=rows[:, None] < length - start, other=0.0)
        return tl.load(at, mask=(rows[:, None] < length - start) & (columns[None, :] < D), other=0.0)
    if D == COLUMNS:
        return tl.load(at)
    return tl.load(at, mask=columns[None, :] < D, other=0.0)


@triton.jit
def attention_fp8_kernel(
    q, k, v, out, lse, q_scale, k_scale, v_scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    batches, heads, group, twice_q, twice_k, scale,
    D: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
    P_BITS: tl.constexpr, MATH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Attend with BLOCK_M queries of one head. MATH is the type of the second product, 2 ** P_BITS the factor on p."""
    len_q, len_k = twice_q // 2, twice_k // 2
    # Neighbours belong to different heads: MI300X deals workgroups out to its 8 XCDs in turn, each with its own L2.
    bh, tile_m = tl.program_id(0) % (batches * heads), tl.program_id(0) // (batches * heads)
    if CAUSAL:
        # The last queries see the most keys: they come first, so that the short ones fill the gaps at the end.
        tile_m = tl.cdiv(len_q, BLOCK_M) - 1 - tile_m
    row0, batch, head = tile_m * BLOCK_M, (bh // heads).to(tl.int64), (bh % heads).to(tl.int64)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    scale *= LOG2E * tl.load(k_scale + bh // group)
    if q_scale is not None:
        scale *= tl.load(q_scale + bh)
    factor = tl.load(v_scale + bh // group)
    queries = load_rows(q, row0, len_q, q_row, D, BLOCK_M, COLUMNS, True)
    # Finite, so that a row that sees no key never meets inf - inf; no real score is that small.
    m, total = tl.full([BLOCK_M], -1e30, tl.float32), tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, COLUMNS], tl.float32)
    row, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)[None, :]
    high, full = len_k, len_k // BLOCK_N * BLOCK_N
    if CAUSAL:
        high = tl.maximum(tl.minimum(len_k, row0 + BLOCK_M + len_k - len_q), 0)
        full = tl.minimum(full, tl.maximum(row0 + 1 + len_k - len_q, 0) // BLOCK_N * BLOCK_N)
    for MASKED in tl.static_range(2):  # first the tiles without a mask, then those with one
        for n in tl.range(full if MASKED else 0, high if MASKED else full, BLOCK_N, num_stages=STAGES):
            keys = load_rows(k, n, len_k, k_row, D, BLOCK_N, COLUMNS, MASKED)
            if keys.dtype == tl.int8 and queries.dtype != tl.int8:
                keys = keys.to(queries.dtype)
            s = tl.dot(queries, tl.trans(keys), input_precision="ieee").to(tl.float32)
            if MASKED:
                last = len_k - 1
                if CAUSAL:  # aligned to the bottom right
                    last = tl.minimum(row[:, None] + (row0 + len_k - len_q), last)
                s = tl.where(j + n <= last, s, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, 1) * scale)
            # The scale rides along in one multiply-add with the subtraction.
            p = tl.exp2(s * scale - (m_new - P_BITS)[:, None])
            if MATH.is_int():
                p = tl.floor(p + 0.5)
            shrink = tl.exp2(m - m_new)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None]
            values = load_rows(v, n, len_k, v_row, D, BLOCK_N, COLUMNS, MASKED)
            if MATH.is_int():
                acc += tl.dot(p.to(MATH), values).to(tl.float32)
            else:
                acc = tl.dot(p.to(MATH), values.to(MATH), acc, input_precision="ieee")
            m = m_new
    # A row that saw no key gives 0, and the logarithm of its empty sum is -inf.
    some = total > 0.0
    total = tl.where(some, total, 1.0)
    column, live = tl.arange(0, COLUMNS), row < len_q - row0
    out += batch * o_batch + head * o_head + row0.to(tl.int64) * o_row
    inside = live[:, None] & (column[None, :] < D)
    result = (acc * (factor / total)[:, None]).to(out.dtype.element_ty)
    tl.store(out + (row[:, None] * o_row + column[None, :]), result, mask=inside)
    top = (m + tl.log2(total) - P_BITS) / LOG2E
    tl.store(lse + (bh.to(tl.int64) * len_q + row0) + row, tl.where(some, top, float("-inf")), mask=live)


class Tile(NamedTuple):
    """A launch: queries and keys of a tile, and the compiler's options."""

    m: int
    n: int
    warps: int
    stages: int = 1


#: By architecture and longest head. gfx942 was chosen by what it compiles to (no spills, two waves or more on a SIMD,
#: 128-bit loads), sm_90 by measurement (NVIDIA H100, with loads by its TMA, which are gone). Other GPUs take gfx942's.
TILES = {
    "gfx942": {64: Tile(128, 64, 4), 128: Tile(128, 32, 4), 256: Tile(64, 32, 4)},
    "sm_90": {64: Tile(64, 128, 4, 2), 128: Tile(128, 128, 8, 3), 256: Tile(128, 64, 8, 2)},
    "interpreter": {256: Tile(16, 16, 4)},
}


def quantize_heads(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 or fp8 codes of (batch, heads, rows, D), and one fp32 scale per (batch, head): code x scale is x.

    The largest value of a head becomes the largest code; int8 rounds to nearest and stays in [-127, 127].

    >>> codes, scale = quantize_heads(torch.tensor([[[[1.0, -2.0]]]]), torch.int8)
    >>> codes.tolist(), round(scale.item(), 5)
    ([[[[64, -127]]]], 0.01575)
    """
    top = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    size = x.abs().amax((-1, -2), keepdim=True).float().clamp(min=1e-12)
    scaled = x.float() * (top / size)
    codes = scaled.round().clamp(-127, 127) if dtype == torch.int8 else scaled.clamp(-top, top)
    return codes.to(dtype), (size / top)[..., 0, 0].contiguous()


def dequantize_heads(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return what the codes of :func:`quantize_heads` stand for, in float64."""
    return codes.double() * scale.double()[..., None, None]


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
        raise ValueError(f"{name} is on {t.device}, q on {x.device}: put them on one device")


def is_number(x: Any, low: float, high: float) -> bool:
    """Return whether ``x`` is a number from ``low`` to ``high``."""
    return not isinstance(x, bool) and isinstance(x, int | float) and low <= x <= high


def second_product(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p_scale: float | None, out_dtype: torch.dtype
) -> tuple[torch.dtype, float]:
    """Return the type of the product of p and v, and log2 of the factor on p.

    Raises:
        ValueError: types that do not belong together.
    """
    quantised = q.dtype.itemsize == 1
    if k.dtype.itemsize != 1 or v.dtype != k.dtype or (quantised and q.dtype != k.dtype):
        raise ValueError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: quantise all three alike, or k and v to int8")
    if p_scale is not None and (k.dtype != torch.int8 or not quantised):
        raise ValueError("p_scale with unquantised q, or with fp8: it belongs to int8 q, k and v")
    if p_scale is not None and not is_number(p_scale, 1 / 127, 1.0):
        raise ValueError(f"p_scale={p_scale!r}: give a number from 1/127 to 1")
    if p_scale is not None:
        return torch.int8, -math.log2(p_scale)
    if k.dtype == torch.int8:
        return out_dtype, 0.0
    native = FP8[architecture(q) in ("gfx940", "gfx941", "gfx942")]
    if k.dtype != native or not quantised:
        raise ValueError(f"q is {q.dtype} and k {k.dtype}: this GPU multiplies {native}, for all of q, k and v")
    # A power of two, so that the factor itself rounds nothing: 256 of 448 (e4m3fn), 128 of 240 (e4m3fnuz).
    return native, float(math.floor(math.log2(torch.finfo(native).max)))


def attention_quantized(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    p_scale: float | None = None,
    scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp (batch, heads, queries) of attention on 8-bit q, k and v, or k and v only.

    Args:
        q: (batch, heads, queries, D), D from 1 to 256. int8 or this GPU's e4m3, of :func:`quantize_heads`; fp16 or
            bf16 if k and v are int8.
        k, v: the same with keys; the number of heads may be a divisor.
        q_scale, k_scale, v_scale: fp32, (batch, heads) and (batch, KV heads); None for a q that is not quantised.
        p_scale: int8 only: quantise the probabilities too, 1/127 for full range; None keeps them in the output's type,
            which is fp16, or that of a q that is not quantised.
        scale: factor of the scores; D ** -0.5 if None.
        causal: aligned to the bottom right: query i sees key j when j <= i + keys - queries.

    Raises:
        ValueError: types that do not belong together, a missing scale, the other GPU's kind of fp8, shapes that do not
            fit.
    """
    every = (torch.int8, *FP8, *FLOATS)
    check("q", q, (None,) * 4, q, every)
    check("k", k, (q.shape[0], None, None, q.shape[3]), q, every)
    check("v", v, tuple(k.shape), q, every)
    batch, heads, len_q, d = q.shape
    kv_heads, len_k = k.shape[1:3]
    quantised = q.dtype.itemsize == 1
    out_dtype = torch.float16 if quantised else q.dtype
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{heads} query heads and {kv_heads} KV heads: the first must be a multiple of the second")
    if not 1 <= d <= 256:
        raise ValueError(f"head size {d}: give 1 to 256")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if d > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} has stride {x.stride(-1)} along the head size: call .contiguous()")
    if scale is not None and not is_number(scale, 1e-38, 3.4e38):
        raise ValueError(f"scale={scale!r}: give a positive number")
    if q_scale is None and quantised:
        raise ValueError(f"q is {q.dtype} and q_scale is missing: pass what quantize_heads returned")
    for name, x, count in (("q_scale", q_scale, heads), ("k_scale", k_scale, kv_heads), ("v_scale", v_scale, kv_heads)):
        if x is not None:
            check(name, x, (batch, count), q, (torch.float32,))
    second, p_bits = second_product(q, k, v, p_scale, out_dtype)
    arch = architecture(q)
    tiles = TILES.get(arch, TILES["gfx942"])
    tile = tiles[min(n for n in tiles if n >= d)]
    out = torch.empty(q.shape, dtype=out_dtype, device=q.device)
    lse = torch.empty((batch, heads, len_q), dtype=torch.float32, device=q.device)
    if not lse.numel():
        return out, lse
    strides = (stride for x in (q, k, v, out) for stride in x.stride()[:3])
    scales = (x if x is None else x.contiguous() for x in (q_scale, k_scale, v_scale))
    # Triton compiles an argument of 1 in as a constant; 3.6 fails for sm_90 with a length that is one. No twofold is 1.
    sizes = (batch, heads, heads // kv_heads, 2 * len_q, 2 * len_k)
    constants = {
        # The least depth of a product of 8 bits on NVIDIA's GPUs is 32.
        "D": d,
        "COLUMNS": max(32 if quantised else 16, triton.next_power_of_2(d)),
        "CAUSAL": bool(causal),
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "P_BITS": p_bits,
        "MATH": TYPES[second],
        "STAGES": tile.stages,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        # On AMD the 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        **({"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}),
    }
    attention_fp8_kernel[(triton.cdiv(len_q, tile.m) * batch * heads,)](
        q, k, v, out, lse, *scales, *strides, *sizes, float(d**-0.5 if scale is None else scale), **constants
    )
    return out, lse
