# SPDX-License-Identifier: MIT
r"""Flash decoding over a paged cache: key ``n`` of sequence ``b`` is key ``n % P`` of page ``table[b, n // P]``.

A server holds hundreds of sequences that grow at different speeds. Instead of reserving the longest possible cache for
each, it keeps one pool of small pages (``P`` keys each) and a *block table* per sequence, as an operating system maps
virtual memory. The kernel is that of the file ``decode``; only where a key lies is
looked up.

Source: W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
https://arxiv.org/abs/2309.06180. The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["DecodeTile", "attention_paged", "reference_attention_paged"]

#: Parts that the combining kernel can hold.
MOST_PARTS = 512
LOG2E = 1.4426950408889634


@triton.jit
def hint_multiple(x, UNIT: tl.constexpr):
    """Return ``x``, a multiple of UNIT, so that Triton, which knows of multiples of 16 by itself, sees that it is."""
    return x // UNIT * UNIT if UNIT > 1 else x


@triton.jit
def _rows_of(table_ptr, b, n, live, stride_page, stride_token, table_width, PAGE: tl.constexpr):
    """Return where keys ``n`` of sequence ``b`` lie: their page, found in the block table, and the row inside."""
    page = tl.load(table_ptr + b * table_width + n // PAGE, live, 0).to(tl.int64)
    return page * stride_page + (n % PAGE) * stride_token


@triton.jit
def _paged_part(
    q_ptr, k_ptr, v_ptr, length_ptr, table_ptr, out_ptr, lse_ptr, tokens, qk_scale, stride_page, stride_token,
    stride_head, table_width,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Attend to one part of the keys, with up to BLOCK_M query heads of one KV head: output and log-sum-exp."""
    TILES: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    head, part, b = tl.program_id(0) // TILES, tl.program_id(1), tl.program_id(2).to(tl.int64)
    heads, parts = tl.num_programs(0) // TILES, tl.num_programs(1)
    d, in_group = tl.arange(0, BLOCK_D), tl.program_id(0) % TILES * BLOCK_M + tl.arange(0, BLOCK_M)
    q_row, in_d = (b * heads + head) * GROUP + in_group, d < D
    wanted = in_d[:, None] & (in_group < GROUP)[None, :]
    q = tl.load(q_ptr + q_row[None, :] * D + d[:, None], wanted, 0.0)
    acc = tl.zeros((BLOCK_D, BLOCK_M), tl.float32)
    top, total = tl.full((BLOCK_M,), float("-inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)

    length = tl.minimum(tl.load(length_ptr + b).to(tl.int32), tokens)
    share = tl.cdiv(tl.cdiv(length, BLOCK_N), parts) * BLOCK_N  # the parts of a sequence are equal, in whole steps
    for start in range(part * share, tl.minimum(part * share + share, length), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        row = _rows_of(table_ptr, b, n, live, stride_page, stride_token, table_width, PAGE)
        place = hint_multiple(row[:, None] + head.to(tl.int64) * stride_head, UNIT) + d[None, :]
        inside = live[:, None] & in_d[None, :]
        k = tl.load(k_ptr + place, inside, 0.0)
        score = tl.where(live[:, None], tl.dot(k, q) * qk_scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 0))
        p, shrink = tl.exp2(score - new_top[None, :]), tl.exp2(top - new_top)
        v = tl.load(v_ptr + place, inside, 0.0)
        acc = tl.dot(tl.trans(v), p.to(v.dtype), acc * shrink[None, :])
        total, top = total * shrink + tl.sum(p, 0), new_top

    # A part without keys weighs nothing: its log-sum-exp is -inf and its output 0.
    part_row, some = q_row * parts + part, total > 0.0
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + part_row, lse, in_group < GROUP)
    out = acc / tl.where(some, total, 1.0)[None, :]
    tl.store(out_ptr + part_row[None, :] * D + d[:, None], out.to(out_ptr.dtype.element_ty), wanted)


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


#: By architecture; others take gfx942's. Heads above 128 take half as many keys, so that a tile needs the same
#: registers. On an H100 one program per multiprocessor was best by 2 to 4 %.
DECODE_CONFIGS = {
    "gfx942": DecodeTile(block=64, per_unit=4, least=256),
    "sm_90": DecodeTile(block=64, per_unit=1, least=256, stages=3),
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


def attention_paged(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    parts: int | None = None,
) -> torch.Tensor:
    """Return attention of one query token per sequence over keys and values in pages.

    Args:
        q: (batch, query heads, head size), fp16 or bf16.
        k_pages, v_pages: (pages, keys per page, KV heads, head size) in the dtype of q.
        table: (batch, pages per sequence at most) int32: which page holds which keys. Entries that a sequence does
            not reach may hold anything; those that it reaches must be valid (they are not checked: that would make
            the CPU wait for the GPU).
        lengths: (batch,) int32, keys of each sequence.
        scale: factor of the scores; ``head size ** -0.5`` if None.
        parts: into how many parts to cut the keys; chosen from the shape and the GPU if None.

    Returns:
        (batch, query heads, head size) in the dtype of q; zeros for a sequence without keys.

    Raises:
        ValueError: shapes, dtypes, strides or devices that do not fit together.

    Example, in the interpreter or on a GPU: ``out = attention_paged(q, k_pages, v_pages, table, lengths)``.
    """
    if lengths is None:
        raise ValueError("lengths is None: a page table does not say how many keys a sequence has")
    check("q", q, (None, None, None), q, (torch.float16, torch.bfloat16))
    batch, q_heads, width = q.shape
    check("k_pages", k_pages, (None, None, None, width), q, (q.dtype,))
    check("v_pages", v_pages, tuple(k_pages.shape), q, (q.dtype,))
    page, heads = k_pages.shape[1:3]
    if not heads or q_heads % heads:
        raise ValueError(f"{q_heads} query heads for {heads} KV heads: give a whole number of times as many")
    if not 1 <= width <= 256:
        raise ValueError(f"head size {width}: give 1 to 256")
    if batch > 65_535:  # what CUDA and HIP launch along the third axis of a grid
        raise ValueError(f"a batch of {batch}: give 65535 sequences at most, or call several times")
    for name, x in (("k_pages", k_pages), ("v_pages", v_pages)):
        if width > 1 and x.stride(-1) != 1:
            raise ValueError(f"{name} has stride {x.stride(-1)} in its last dimension: call .contiguous()")
    # How far apart the only entry of a dimension is from the next one does not matter.
    if any(a != b for a, b, n in zip(k_pages.stride(), v_pages.stride(), k_pages.shape, strict=True) if n > 1):
        raise ValueError(f"k_pages has strides {k_pages.stride()}, v_pages {v_pages.stride()}: lay both out alike")
    check("lengths", lengths, (batch,), q, (torch.int32, torch.int64))
    check("table", table, (batch, None), q, (torch.int32, torch.int64))
    if table.shape[1] > 1 and table.stride(1) != 1:
        raise ValueError(f"table has stride {table.stride(1)} in its last dimension: call .contiguous()")
    if page < 1:
        raise ValueError("pages of 0 keys: a page holds at least one")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) < 3.4e38):
        raise ValueError(f"scale={scale!r}: give a finite number")
    if parts is not None and (type(parts) is not int or not 1 <= parts <= MOST_PARTS):
        raise ValueError(f"parts={parts!r}: give an integer from 1 to {MOST_PARTS}, or None")
    tokens = table.shape[1] * page
    arch = architecture(q)
    tile = DECODE_CONFIGS.get(arch, DECODE_CONFIGS["gfx942"])
    group, rows = q_heads // heads, min(max(16, triton.next_power_of_2(q_heads // heads)), 64)
    tiles = heads * triton.cdiv(group, rows)
    parts = parts or tile.parts(q, batch * tiles, tokens)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if not q.numel():
        return out
    lse = torch.empty((batch, q_heads, parts), dtype=torch.float32, device=q.device)
    part = torch.empty((batch, q_heads, parts, width), dtype=torch.float32, device=q.device) if parts > 1 else out
    strides = k_pages.stride()[:3]
    unit = 8 if all(s % 8 == 0 for s in strides) and any(s % 16 for s in strides) else 1
    block_d, scale = max(16, triton.next_power_of_2(width)), width**-0.5 if scale is None else scale
    _paged_part[(tiles, parts, batch)](
        q.contiguous(),
        k_pages,
        v_pages,
        lengths,
        table,
        part,
        lse,
        tokens,
        scale * LOG2E,
        *strides,
        table.stride(0),
        GROUP=group,
        D=width,
        PAGE=page,
        BLOCK_M=rows,
        BLOCK_N=tile.block // 2 if width > 128 else tile.block,
        BLOCK_D=block_d,
        UNIT=unit,
        **tile.options(arch),
    )
    if parts > 1:
        block_p = triton.next_power_of_2(parts)
        _combine[(batch * q_heads,)](part, lse, out, parts, D=width, BLOCK_D=block_d, BLOCK_P=block_p, num_warps=4)
    return out


def reference_attention_paged(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Gather the pages of every sequence into an ordinary cache, then attend. Give a float64 q for a yardstick."""
    # A slot of the table that no key uses may hold anything; any valid page does.
    keys, group = table.shape[1] * k_pages.shape[1], q.shape[1] // k_pages.shape[2]
    used = lengths[:, None] > k_pages.shape[1] * table.new_tensor(range(table.shape[1]))
    pages = table.masked_fill(~used, 0).long()
    k, v = (x[pages].reshape(q.shape[0], keys, *x.shape[2:]).to(q.dtype) for x in (k_pages, v_pages))
    scores = torch.einsum("bhd,bnhd->bhn", q, k.repeat_interleave(group, 2))
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    hidden = torch.arange(keys, device=q.device) >= lengths[:, None]
    weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhn,bnhd->bhd", weights, v.repeat_interleave(group, 2))
