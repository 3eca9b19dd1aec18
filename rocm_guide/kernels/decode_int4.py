# SPDX-License-Identifier: MIT
r"""Flash decoding over a cache of 8-bit or 4-bit codes: 52 % or 28 % of the bytes, for heads of 128.

A vector of :math:`D` features is stored as codes, a scale and a shift:

.. math:: \hat x = \text{shift} + \text{scale} \cdot c, \qquad |x - \hat x| \le \tfrac12\,\text{scale}

8 bits: :math:`c` from -127 to 127, one grid for the whole head. 4 bits: :math:`c = b - 7.5` with :math:`b` from 0 to
15, one grid for each half of the head, and byte :math:`i` holds features :math:`i` (low bits) and :math:`i + D/2`
(high bits), so that unpacking needs no shuffling. The grid is fitted to the smallest and the largest feature; scale
and shift are fp16, rounded *before* the codes are chosen, so that the bound above holds for what is stored.

For a head of 128 a token costs 132 B or 72 B instead of 256 B.

With :math:`k = a c + b` (scale, code, shift) no key is ever dequantised feature by feature:

.. math:: q \cdot k_j = a_j\,(q \cdot c_j) + b_j \sum_d q_d, \qquad
          \sum_j p_j v_j = \sum_j (p_j a'_j)\, c'_j + \sum_j p_j b'_j

Both products run on the matrix units with plain integers in fp16 or bf16, which hold them exactly; scales and shifts
enter once for each key. Split-K and combine are those of the file ``decode``. Source of the layout's idea (two codes
per byte, scale and shift per group): the int4 path of xFormers' Triton split-K kernel, which the document's
06-attention-decode.py comes from. The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["DecodeTile", "attention_decode_int", "dequantize_kv", "quantize_kv", "unpack_grid"]

#: Parts that the combining kernel can hold.
MOST_PARTS = 512
LOG2E = 1.4426950408889634
_REACH = {8: 127.0, 4: 7.5}
_LEAST_SCALE = 2.0**-14  # the smallest normal fp16


@triton.jit
def _unpack(codes, HIGH: tl.constexpr, BITS: tl.constexpr, dtype: tl.constexpr):
    """Return codes as numbers around 0: -127 to 127, or of the low or high four bits of a byte -8 to 7.

    Conversion instructions are slow on some GPUs (on an H100 they alone took 0.3 of 0.6 ms). In fp16 the bits
    0x6400 + n are the number 1024 + n for n below 1024: so a code becomes the last bits of a number and 1024 is
    subtracted again.
    """
    if BITS == 8:
        if dtype == tl.float16:
            return (codes.to(tl.uint8, bitcast=True).to(tl.uint16) ^ 0x6480).to(tl.float16, bitcast=True) - 1152.0
        return codes.to(dtype)
    nibble = (codes >> 4) if HIGH else (codes & 15)
    if dtype == tl.float16:
        return (nibble.to(tl.uint16) ^ 0x6400).to(tl.float16, bitcast=True) - 1032.0
    return nibble.to(dtype) - 8.0


@triton.jit
def _grid_at(grid_ptr, mark, near, live, BITS: tl.constexpr):
    """Return scale and shift of the keys at ``mark``: two fp16 numbers in one 32-bit word, 0 where not ``live``."""
    both = tl.where(live, tl.load(grid_ptr + mark, near, 0), 0)
    scale = (both & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    shift = (both >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    scale, shift = scale.to(tl.float32), shift.to(tl.float32)
    if BITS == 4:
        shift += 0.5 * scale  # codes are taken around 8 instead of 7.5
    return scale[:, None], shift[:, None]


@triton.jit
def _decode_int_part(
    q_ptr, k_ptr, v_ptr, k_grid, v_grid, length_ptr, out_ptr, lse_ptr,
    tokens, qk_scale, stride_batch, stride_token, stride_head, plane,
    GROUP: tl.constexpr, D: tl.constexpr, BITS: tl.constexpr, EIGHTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Attend to one part of the keys. With 4 bits what has features comes in two halves, ``…`` and ``…_h``."""
    TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    W: tl.constexpr = D // 2 if BITS == 4 else D
    head, part, b = tl.program_id(0) // TILES, tl.program_id(1), tl.program_id(2).to(tl.int64)
    heads, parts = tl.num_programs(0) // TILES, tl.num_programs(1)
    d, in_group = tl.arange(0, BLOCK_D), tl.program_id(0) % TILES * BLOCK_M + tl.arange(0, BLOCK_M)
    q_row, in_d = (b * heads + head) * GROUP + in_group, d < W
    wanted, q_place = in_d[:, None] & (in_group < GROUP)[None, :], d[:, None] + q_row[None, :] * D
    q = tl.load(q_ptr + q_place, wanted, 0.0)
    q_h = tl.load(q_ptr + q_place + W, wanted & (BITS == 4), 0.0)
    q_sum, q_sum_h = tl.sum(q.to(tl.float32), 0)[None, :], tl.sum(q_h.to(tl.float32), 0)[None, :]
    acc, acc_h = tl.zeros((BLOCK_D, BLOCK_M), tl.float32), tl.zeros((BLOCK_D, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), float("-inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    drift, drift_h = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M,), tl.float32)

    length = tokens
    if length_ptr is not None:
        length = tl.minimum(tl.load(length_ptr + b).to(tl.int32), tokens)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), parts) * BLOCK_N
    for start in range(part * share, tl.minimum(part * share + share, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        row = b * stride_batch + n.to(tl.int64) * stride_token
        mark = (b * heads + head) * tokens + n
        near = live
        if EIGHTS:  # keys are stored in eights: reading whole ones makes loads wide
            mark, near = tl.max_contiguous(tl.multiple_of(mark, 8), 8), n // 8 * 8 < length
        place, inside = row[:, None] + head.to(tl.int64) * stride_head + d[None, :], live[:, None] & in_d[None, :]
        k = tl.load(k_ptr + place, inside, 0)
        a, shift = _grid_at(k_grid, mark, near, live, BITS)
        score = tl.dot(_unpack(k, False, BITS, q.dtype), q) * a + q_sum * shift
        if BITS == 4:
            a, shift = _grid_at(k_grid + plane, mark, near, live, BITS)
            score += tl.dot(_unpack(k, True, BITS, q.dtype), q_h) * a + q_sum_h * shift
        score = tl.where(live[:, None], score * qk_scale, float("-inf"))
        # Exponentials may be taken relative to anything. This reference point keeps p * a at 1 or less, however small
        # or large the scales are, so that the product is rounded to 16 bits like any probability.
        a, shift = _grid_at(v_grid, mark, near, live, BITS)
        most = a
        if BITS == 4:
            a_h, shift_h = _grid_at(v_grid + plane, mark, near, live, BITS)
            most = tl.maximum(a, a_h)
        new_top = tl.maximum(top, tl.max(score + tl.log2(most), 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        v = tl.load(v_ptr + place, inside, 0)
        acc = tl.dot(tl.trans(_unpack(v, False, BITS, q.dtype)), (p * a).to(q.dtype), acc * shrink[None, :])
        drift = drift * shrink + tl.sum(p * shift, 0)
        if BITS == 4:
            weight_h = (p * a_h).to(q.dtype)
            acc_h = tl.dot(tl.trans(_unpack(v, True, BITS, q.dtype)), weight_h, acc_h * shrink[None, :])
            drift_h = drift_h * shrink + tl.sum(p * shift_h, 0)
        total, top = total * shrink + tl.sum(p, 0), new_top

    part_row, some = q_row * parts + part, total > 0.0
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part_row, lse, in_group < GROUP)
    one, out_place = 1.0 / tl.where(some, total, 1.0)[None, :], d[:, None] + part_row[None, :] * D
    tl.store(out_ptr + out_place, ((acc + drift[None, :]) * one).to(out_ptr.dtype.element_ty), wanted)
    out_h = ((acc_h + drift_h[None, :]) * one).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + out_place + W, out_h, wanted & (BITS == 4))


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
    narrow_warps: int = 4  #: in place of ``warps`` where a row of codes has fewer than 64 bytes

    def options(self, arch: str, row_bytes: int) -> dict[str, Any]:
        """Return the compile options of a launch on ``arch``."""
        # On AMD the 16x16 matrix instructions: their accumulator takes a quarter of the registers of the 32x32 ones.
        amd = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}
        warps = self.narrow_warps if row_bytes < 64 else self.warps
        return {"num_warps": warps, "num_stages": self.stages} | amd

    def parts(self, x: torch.Tensor, programs: int, tokens: int) -> int:
        """Return how many parts to cut the keys into: all find a place at once, none has too little to do."""
        units = torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 2
        places = self.per_unit * units
        return max(1, min(places // max(programs, 1), triton.cdiv(tokens, self.least), MOST_PARTS))


#: By architecture; others take gfx942's. Fewer warps for narrow rows, so that every lane still has 16 bytes to load.
INT_CONFIGS = {
    "gfx942": DecodeTile(block=64, per_unit=4, least=256, narrow_warps=2),
    "sm_90": DecodeTile(block=64, per_unit=4, least=256, warps=2, stages=2, narrow_warps=2),
    "interpreter": DecodeTile(block=16, per_unit=4, least=16),
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
        raise ValueError(f"{name} is on {t.device}, q on {x.device}: put them on one device")


def grid_shape(x_shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Return the shape of the grid of a (batch, keys, heads, size) tensor: (grids, batch, heads, keys).

    Keys come last, so that the kernel reads the grids of neighbouring keys in one piece.

    >>> grid_shape((2, 100, 8, 128), 4)
    (2, 2, 8, 100)
    """
    batch, keys, heads, _ = x_shape
    return (2 if bits == 4 else 1, batch, heads, keys)


def quantize_kv(x: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and grid of keys or values.

    Args:
        x: (batch or pages, keys, heads, head size); numbers below 65,504 in size. The head size is even for 4 bits.
        bits: 8 or 4.

    Returns:
        codes, int8 of the same shape or uint8 of half the head size; and the grid, int32 of :func:`grid_shape`: the
        fp16 scale in the low and the fp16 shift in the high half (read them with :func:`unpack_grid`).

    Raises:
        ValueError: another number of bits or dimensions, or an odd head size for 4 bits.

    >>> x = torch.linspace(-1, 1, 8).reshape(1, 1, 1, 8)
    >>> codes, grid = quantize_kv(x, 8)
    >>> codes.flatten().tolist(), grid.shape
    ([-127, -91, -54, -18, 18, 54, 91, 127], torch.Size([1, 1, 1, 1]))
    >>> scale, shift = unpack_grid(grid)
    >>> bool(((dequantize_kv(codes, grid) - x).abs() <= scale / 2).all())
    True
    """
    if not isinstance(bits, int) or bits not in _REACH:
        raise ValueError(f"bits={bits!r}: give 8 or 4")
    check("x", x, (None,) * 4, x, (torch.float16, torch.bfloat16, torch.float32, torch.float64))
    if not x.shape[-1]:
        raise ValueError("head size 0: a grid is fitted to at least one feature")
    if bits == 4 and x.shape[-1] % 2:
        raise ValueError(f"head size {x.shape[-1]}: two 4-bit codes share a byte, so it must be even")
    groups = x.float().unflatten(-1, (2 if bits == 4 else 1, -1))
    low, high = groups.aminmax(dim=-1, keepdim=True)
    shift = ((low + high) / 2).half().float()
    reach = torch.maximum(high - shift, shift - low) / _REACH[bits]
    scale = reach.clamp(min=_LEAST_SCALE).half().float()  # off by 2^-11 at most: no code leaves its range
    steps = (groups - shift) / scale
    if bits == 8:
        codes = (steps + 0.5).floor().to(torch.int8).flatten(-2)
    else:
        nibbles = (steps + 8.0).floor().to(torch.uint8)
        codes = nibbles[..., 0, :] | (nibbles[..., 1, :] << 4)
    # Side by side in memory, the low half first: one 32-bit load brings both.
    both = torch.cat([scale, shift], dim=-1).half().view(torch.int32)[..., 0]  # (batch, keys, heads, grids)
    return codes, both.permute(3, 0, 2, 1).contiguous()


def unpack_grid(grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and shift, fp32, of the grid that :func:`quantize_kv` returns."""
    scale, shift = grid.unsqueeze(-1).view(torch.float16).float().unbind(-1)
    return scale, shift


def dequantize_kv(codes: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Return what codes and grid stand for, in fp32: the inverse of :func:`quantize_kv` up to half a scale."""
    four = codes.dtype == torch.uint8
    parts = [(codes & 15).float() - 7.5, (codes >> 4).float() - 7.5] if four else [codes.float()]
    scale, shift = (x.permute(1, 3, 2, 0) for x in unpack_grid(grid))  # (batch, keys, heads, grids)
    return torch.cat([c * scale[..., i, None] + shift[..., i, None] for i, c in enumerate(parts)], dim=-1)


def attention_decode_int(
    q: torch.Tensor,
    k_codes: torch.Tensor,
    v_codes: torch.Tensor,
    k_grid: torch.Tensor,
    v_grid: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Return attention of one query token per sequence over quantised keys and values.

    Args:
        q: (batch, query heads, head size), fp16 or bf16.
        k_codes, v_codes: (batch, keys, KV heads, head size) int8, or half the head size in uint8: see quantize_kv.
        k_grid, v_grid: their grids, contiguous.
        lengths: (batch,) integers: keys 0 to lengths[b] - 1 of sequence b count (all, if it is larger). None: all.
        scale: factor of the scores; ``head size ** -0.5`` if None.
        parts: into how many parts to cut the keys; chosen from the shape and the GPU if None.

    Returns:
        (batch, query heads, head size) in the dtype of q. Against attention over the unquantised cache it is off by at
        most the quantisation of v (half its scale) plus what half a scale in k moves the probabilities.

    Raises:
        ValueError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU:
    ``(k, k_grid), (v, v_grid) = quantize_kv(k, 4), quantize_kv(v, 4)``, then
    ``out = attention_decode_int(q, k, v, k_grid, v_grid)``.
    """
    check("q", q, (None, None, None), q, (torch.float16, torch.bfloat16))
    batch, q_heads, width = q.shape
    check("k_codes", k_codes, (None,) * 4, q, (torch.int8, torch.uint8))
    bits = 8 if k_codes.dtype == torch.int8 else 4
    if bits == 4 and width % 2:
        raise ValueError(f"head size {width}: two 4-bit codes share a byte, so it must be even")
    check("k_codes", k_codes, (batch, None, None, width * bits // 8), q, (k_codes.dtype,))
    check("v_codes", v_codes, tuple(k_codes.shape), q, (k_codes.dtype,))
    tokens, heads = k_codes.shape[1:3]
    if not heads or q_heads % heads:
        raise ValueError(f"{q_heads} query heads for {heads} KV heads: give a whole number of times as many")
    if not 1 <= width <= 256:
        raise ValueError(f"head size {width}: give 1 to 256")
    if batch > 65_535:  # what CUDA and HIP launch along the third axis of a grid
        raise ValueError(f"a batch of {batch}: give 65535 sequences at most, or call several times")
    for name, x in (("k_codes", k_codes), ("v_codes", v_codes)):
        if width > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} has stride {x.stride(-1)} in its last dimension: call .contiguous()")
    # How far apart the only entry of a dimension is from the next one does not matter.
    if any(a != b for a, b, n in zip(k_codes.stride(), v_codes.stride(), k_codes.shape, strict=True) if n > 1):
        raise ValueError(f"k_codes has strides {k_codes.stride()}, v_codes {v_codes.stride()}: lay both out alike")
    for name, grid in (("k_grid", k_grid), ("v_grid", v_grid)):
        check(name, grid, grid_shape(tuple(k_codes.shape), bits), q, (torch.int32,))
        if not grid.is_contiguous():
            raise ValueError(f"{name} of shape {tuple(grid.shape)} has strides {grid.stride()}: call .contiguous()")
    if lengths is not None:
        check("lengths", lengths, (batch,), q, (torch.int32, torch.int64))
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) < 3.4e38):
        raise ValueError(f"scale={scale!r}: give a finite number")
    if parts is not None and (type(parts) is not int or not 1 <= parts <= MOST_PARTS):
        raise ValueError(f"parts={parts!r}: give an integer from 1 to {MOST_PARTS}, or None")
    arch = architecture(q)
    tile = INT_CONFIGS.get(arch, INT_CONFIGS["gfx942"])
    group, rows = q_heads // heads, min(max(16, triton.next_power_of_2(q_heads // heads)), 64)
    tiles = heads * triton.cdiv(group, rows)
    parts = parts or tile.parts(q, batch * tiles, tokens)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if not q.numel():
        return out
    lse = torch.empty((batch, q_heads, parts), dtype=torch.float32, device=q.device)
    part = torch.empty((batch, q_heads, parts, width), dtype=torch.float32, device=q.device) if parts > 1 else out
    scale, stored = width**-0.5 if scale is None else scale, k_codes.shape[3]
    _decode_int_part[(tiles, parts, batch)](
        q.contiguous(),
        k_codes,
        v_codes,
        k_grid,
        v_grid,
        lengths,
        part,
        lse,
        tokens,
        scale * LOG2E,
        *k_codes.stride()[:3],
        k_grid.stride(0),
        GROUP=group,
        D=width,
        BITS=bits,
        EIGHTS=tokens % 8 == 0,
        BLOCK_M=rows,
        BLOCK_N=tile.block // 2 if width > 128 else tile.block,
        BLOCK_D=max(16, triton.next_power_of_2(stored)),
        **tile.options(arch, stored),
    )
    if parts > 1:
        shape = {"D": width, "BLOCK_D": triton.next_power_of_2(width), "BLOCK_P": triton.next_power_of_2(parts)}
        _combine[(batch * q_heads,)](part, lse, out, parts, **shape, num_warps=4)
    return out
