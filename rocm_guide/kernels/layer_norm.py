# SPDX-License-Identifier: MIT
"""LayerNorm over the last dimension, forward and backward, for rows of any length.

mean = mean(x),  rstd = 1 / sqrt(mean((x - mean)^2) + eps),  h = (x - mean) * rstd,  y = h * w + b.  With g = dy * w:
dx = rstd * (g - mean(g) - h * mean(g * h)),  dw = sum over rows of dy * h,  db = sum over rows of dy.
Source: J. L. Ba et al., "Layer Normalization", https://arxiv.org/abs/1607.06450. A row that is read in blocks gets its
variance by the update of T. Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances",
1979, because mean(x^2) - mean^2 would cancel. All arithmetic is fp32.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["LayerNorm", "Tile", "layer_norm", "layer_norm_backward", "layer_norm_forward", "reference_layer_norm"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def layer_norm_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, rows, cols, eps,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, DEFER_WEIGHT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Norm ROWS whole rows, each read once. Weight and bias, which every program reads, are to stay in L1."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    inside = (first + row < rows)[:, None] & (col < cols)[None, :]
    at = row[:, None] * x_stride + col[None, :]
    x = tl.load(x_ptr + first * x_stride + at, mask=inside, other=0.0, eviction_policy="evict_first")
    if WEIGHT and not DEFER_WEIGHT:  # asked for before the reduction, so that it is there when that is done
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if BIAS and not DEFER_WEIGHT:
        b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    # Sums of the distances to a member of the row, and of their squares, in one exchange between the lanes.
    pivot = tl.load(x_ptr + first * x_stride + row * x_stride, mask=first + row < rows, other=0.0).to(tl.float32)
    x = tl.where(inside, x.to(tl.float32) - pivot[:, None], 0.0)
    shift, square = tl.split(tl.sum(tl.join(x, x * x), 1) * (1.0 / cols))
    variance = square - shift * shift
    if tl.max(shift * shift - 16 * variance, 0) > 0:
        # A member far from the mean: the distances have lost digits. Rare; then one sum after the other.
        x = tl.load(x_ptr + first * x_stride + at, mask=inside, other=0.0).to(tl.float32)
        pivot, shift = pivot * 0, tl.sum(x, 1) * (1.0 / cols)
        x = tl.where(inside, x - shift[:, None], 0.0)
        variance = tl.sum(x * x, 1) * (1.0 / cols)
    else:
        x -= shift[:, None]
    mean, rstd = pivot + shift, tl.rsqrt(variance + eps)
    y = x * rstd[:, None]
    if WEIGHT and DEFER_WEIGHT:
        w = tl.load(w_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if BIAS and DEFER_WEIGHT:
        b = tl.load(b_ptr + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    if WEIGHT:  # widened only now: until here they take half the registers
        y *= w.to(tl.float32)[None, :]
    if BIAS:
        y += b.to(tl.float32)[None, :]
    tl.store(mean_ptr + first + row, mean, mask=first + row < rows)
    tl.store(rstd_ptr + first + row, rstd, mask=first + row < rows)
    tl.store(y_ptr + first * cols + (row[:, None] * cols + col[None, :]), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_blocked(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, x_stride, cols, eps,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Norm one row of any length, read twice. Every lane keeps a mean and a sum of squared distances to it."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        x = tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        count += 1.0
        distance = tl.where(inside, x - means, 0.0)
        means += distance / count
        squares += distance * tl.where(inside, x - means, 0.0)
    seen = ((cols - 1 - lane + BLOCK) // BLOCK).to(tl.float32)  # elements that each lane has had
    mean = tl.sum(means * seen, 0) * (1.0 / cols)
    total = squares + seen * (means - mean) * (means - mean)
    rstd = tl.rsqrt(tl.sum(total, 0) * (1.0 / cols) + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        y = (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        if WEIGHT:
            y *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            y += tl.load(b_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * cols + start + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_backward_rows(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, x_stride, rows, cols,
    WEIGHT: tl.constexpr, DW: tl.constexpr, DB: tl.constexpr, RELOAD: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Find dx of every so many rows, ROWS at a time; dw and db stay in registers until the end.

    FULL promises that each row fills the tile: without masks nothing spills where dw and db leave few registers.
    """
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    in_cols = tl.full((COLS,), 1, tl.int1) if FULL else col < cols
    programs, begin = tl.num_programs(0).to(tl.int64), tl.program_id(0).to(tl.int64) * ROWS
    x_at, at = row[:, None] * x_stride + col[None, :], row[:, None] * cols + col[None, :]
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for first in tl.range(begin, rows, programs * ROWS, num_stages=STAGES):
        inside = tl.full((ROWS, COLS), 1, tl.int1)
        if not FULL:
            inside = (first + row < rows)[:, None] & in_cols[None, :]
        x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0)
        dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + first + row, mask=first + row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + first + row, mask=first + row < rows, other=0.0)[:, None]
        g = dy.to(tl.float32)
        if WEIGHT:
            w = tl.load(w_ptr + col, mask=in_cols, other=0.0)
            g *= w.to(tl.float32)[None, :]
        h = (x.to(tl.float32) - mean) * rstd
        # Beyond the row's end x - mean is not zero, but g is. Two sums, one exchange between the lanes.
        along, level = tl.split(tl.sum(tl.join(g * h, g), 1) * (1.0 / cols))
        if RELOAD:  # from the cache, so that registers are free for dw; marked, or the compiler would join the loads
            x = tl.load(x_ptr + first * x_stride + x_at, mask=inside, other=0.0, eviction_policy="evict_first")
            dy = tl.load(dy_ptr + first * cols + at, mask=inside, other=0.0, eviction_policy="evict_first")
            g = dy.to(tl.float32)
            if WEIGHT:
                w = tl.load(w_ptr + col, mask=in_cols, other=0.0, eviction_policy="evict_last")
                g *= w.to(tl.float32)[None, :]
            h = (x.to(tl.float32) - mean) * rstd
        dy = dy.to(tl.float32)
        if DW:
            dw += dy * h
        if DB:
            db += dy
        dx = rstd * (g - level[:, None] - h * along[:, None])
        tl.store(dx_ptr + first * cols + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    part_ptr += tl.program_id(0).to(tl.int64) * cols
    if DW:
        tl.store(part_ptr + col, tl.sum(dw, 0).to(part_ptr.dtype.element_ty), mask=in_cols)
        part_ptr += programs * cols
    if DB:
        tl.store(part_ptr + col, tl.sum(db, 0).to(part_ptr.dtype.element_ty), mask=in_cols)


@triton.jit
def layer_norm_backward_blocked(
    x_ptr, w_ptr, dy_ptr, mean_ptr, rstd_ptr, dx_ptr, x_stride, cols,
    WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find dx of one row of any length, read twice."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    dots = tl.zeros((BLOCK,), tl.float32)
    levels = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        # Where g is 0 it does not matter that x is not centred.
        dots += g * (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean)
        levels += g
    along, level = tl.sum(dots, 0) * (1.0 / cols) * rstd, tl.sum(levels, 0) * (1.0 / cols)
    for start in range(0, cols, BLOCK):
        inside = lane < cols - start
        g = tl.load(dy_ptr + row * cols + start + lane, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            g *= tl.load(w_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        h = (tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        dx = rstd * (g - level - h * along)
        tl.store(dx_ptr + row * cols + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def column_sums(part_ptr, out_ptr, parts, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Sum COLS columns of one table (second grid axis) of ``parts`` rows, always in the same order."""
    table = tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.program_id(0) * COLS + tl.arange(0, COLS)
    part_ptr += table * parts * cols
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, parts, ROWS):
        inside = (row < parts - start) & (col < cols)[None, :]
        total += tl.load(part_ptr + (row * cols + col[None, :]), mask=inside, other=0.0)
        part_ptr += ROWS * cols
    tl.store(out_ptr + table * cols + col, tl.sum(total, 0).to(out_ptr.dtype.element_ty), mask=col < cols)


class Tile(NamedTuple):
    """A launch: what one program holds, and which rows it serves."""

    columns: int  #: the longest row, padded to a power of two; where blocked, the width of a block
    rows: int  #: of one program
    warps: int
    per_unit: int = 1  #: backward: programs on a compute unit, which loop over the rows
    stages: int = 1  #: backward: so many steps of that loop are loaded ahead
    defer_weight: bool = False  #: forward: load weight and bias after the reduction, and keep registers free until then
    reload: bool = False  #: backward: read the row again after the reduction, and keep less in registers across it
    aligned: bool = False  #: only rows whose length and distance are multiples of 8: others take more registers
    blocked: bool = False  #: the row is walked through in blocks


#: The first that serves a row is taken, the last serves all. gfx942 was chosen by what it compiles to (no spills, four
#: to eight waves on a SIMD, 128-bit loads), sm_90 by measurement (NVIDIA H100). Other GPUs take gfx942's.
FORWARD = {
    "gfx942": (Tile(128, 16, 4), Tile(512, 4, 4), Tile(1024, 2, 4), Tile(2048, 2, 2),
               Tile(4096, 1, 4, defer_weight=True), Tile(8192, 1, 4, defer_weight=True, aligned=True),
               Tile(8192, 1, 8, defer_weight=True), Tile(32768, 1, 16, defer_weight=True),
               Tile(8192, 1, 16, blocked=True)),
    "sm_90": (Tile(128, 16, 4), Tile(512, 4, 4), Tile(1024, 2, 4), Tile(2048, 2, 4), Tile(4096, 1, 8),
              Tile(8192, 1, 16, defer_weight=True), Tile(16384, 1, 16, defer_weight=True), Tile(32768, 1, 32),
              Tile(16384, 1, 32, blocked=True)),
}  # fmt: skip
BACKWARD = {
    "gfx942": (Tile(128, 16, 4), Tile(512, 8, 4), Tile(1024, 8, 8), Tile(2048, 4, 8), Tile(4096, 2, 8),
               Tile(8192, 1, 8, aligned=True), Tile(8192, 1, 16), Tile(16384, 1, 16, reload=True, aligned=True),
               Tile(8192, 1, 16, blocked=True)),
    "sm_90": (Tile(128, 16, 4, 4), Tile(512, 8, 4, 4), Tile(1024, 4, 4, 4), Tile(2048, 4, 8, stages=3),
              Tile(4096, 2, 8, stages=3), Tile(8192, 1, 8, stages=3), Tile(16384, 1, 16, reload=True),
              Tile(16384, 1, 32, blocked=True)),
}  # fmt: skip
#: (rows, columns, warps) of :func:`column_sums`.
SUMS = {"gfx942": (128, 32, 8), "sm_90": (8, 32, 8), "interpreter": (16, 1024, 1)}


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


def pick_tile(tiles: tuple[Tile, ...], flat: torch.Tensor) -> Tile:
    """Return the first of ``tiles`` that serves the rows of ``flat``; one row a program where offsets need 64 bits."""
    cols, stride = flat.shape[1], flat.stride(0)
    padded, odd = triton.next_power_of_2(cols), cols % 8 or stride % 8
    tile = next(t for t in tiles if t.blocked or (padded <= t.columns and not (t.aligned and odd)))
    return tile._replace(rows=1) if tile.rows * max(stride, cols) >= 1 << 31 else tile


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` (…, columns) seen as (rows, columns); rows may be any distance apart.

    Raises:
        ValueError: not a float tensor with columns, or its layout is no list of rows.
    """
    if not isinstance(x, torch.Tensor) or x.dtype not in FLOATS:
        raise ValueError(f"x is {str(getattr(x, 'dtype', repr(x)))[:40].removeprefix('torch.')}: give a float tensor")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}: give at least one column")
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"x has stride {x.stride(-1)} in its last dimension: call .contiguous()")
    try:
        return x.view(-1, x.shape[-1]) if x.numel() else x.new_empty(0, x.shape[-1])
    except RuntimeError as e:
        raise ValueError(f"x with strides {x.stride()} is no list of rows: call .contiguous()") from e


def check(name: str, t: Any, shape: tuple[int, ...], x: torch.Tensor, dtypes: Any = FLOATS, whole: bool = True) -> None:
    """Raise ValueError unless ``t`` has this shape, a type of these and the device of ``x``; ``whole``: contiguous."""
    if not isinstance(t, torch.Tensor):
        raise ValueError(f"{name} is {t!r:.40}: give a tensor")
    if t.device != x.device:
        raise ValueError(f"{name} is on {t.device}, x on {x.device}: put them on one device")
    if t.dtype not in dtypes:
        raise ValueError(f"{name} is {t.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if tuple(t.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(t.shape)}: give {tuple(shape)}")
    if whole and not t.is_contiguous():
        raise ValueError(f"{name} of shape {tuple(t.shape)} has strides {t.stride()}: call .contiguous()")


def layer_norm_forward(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    tile: Tile | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return y (shape and type of x, contiguous), mean and rstd (fp32, one per row), without autograd.

    Args:
        x: (…, columns) in fp16, bf16 or fp32; the last dimension contiguous, rows any distance apart.
        weight, bias: (columns,), any of these types; either may be None.
        eps: finite, 0 or more.
        tile: a launch of your own instead of the table's.

    Raises:
        ValueError: shape, type, layout or device that does not fit; eps negative or not finite.
    """
    flat = as_rows(x)
    (rows, cols), stride = flat.shape, flat.stride(0)
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None:
            check(name, vector, (cols,), x)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps <= torch.finfo(torch.float32).max:
        raise ValueError(f"eps={eps!r}: give a finite number of 0 or more")
    tile = tile or pick_tile(FORWARD.get(architecture(x), FORWARD["gfx942"]), flat)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    given = x, x if weight is None else weight, x if bias is None else bias, y, mean, rstd, stride
    flags = {"WEIGHT": weight is not None, "BIAS": bias is not None, "num_warps": tile.warps}
    if rows and tile.blocked:
        layer_norm_blocked[(rows,)](*given, cols, float(eps), BLOCK=tile.columns, **flags)
    elif rows:
        flags |= {"DEFER_WEIGHT": tile.defer_weight, "ROWS": tile.rows, "COLS": triton.next_power_of_2(cols)}
        layer_norm_rows[(triton.cdiv(rows, tile.rows),)](*given, rows, cols, float(eps), **flags)
    return y, mean, rstd


def layer_norm_backward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    tile: Tile | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return dx (shape and type of x), dw (None without weight) and db (None unless ``bias``), in the weight's type.

    Args:
        x, weight: as given to :func:`layer_norm_forward`.
        dy: the gradient of y; made contiguous if it is not.
        mean, rstd: what the forward pass returned.
        bias: whether db is wanted.

    Of blocked rows torch sums dw and db.

    Raises:
        ValueError: see :func:`layer_norm_forward`.
    """
    flat = as_rows(x)
    (rows, cols), stride, w, arch = flat.shape, flat.stride(0), x if weight is None else weight, architecture(x)
    if weight is not None:
        check("weight", weight, (cols,), x)
    check("dy", dy, x.shape, x, whole=False)
    check("mean", mean, (rows,), x, (torch.float32,))
    check("rstd", rstd, (rows,), x, (torch.float32,))
    tile, dy = tile or pick_tile(BACKWARD.get(arch, BACKWARD["gfx942"]), flat), dy.contiguous()
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    has, dtype = weight is not None, w.dtype
    tables, padded = has + bias, triton.next_power_of_2(cols)
    dw_db = torch.empty((tables, cols), dtype=dtype, device=x.device)
    flags = {"WEIGHT": has, "num_warps": tile.warps}
    if rows == 0:
        dw_db.zero_()
    elif tile.blocked:
        layer_norm_backward_blocked[(rows,)](x, w, dy, mean, rstd, dx, stride, cols, BLOCK=tile.columns, **flags)
        if has:
            h = flat.float().sub_(mean[:, None]).mul_(rstd[:, None])
            dw_db[0] = h.mul_(dy.view(rows, cols)).sum(0)
        if bias:
            dw_db[-1] = dy.view(rows, cols).sum(0, dtype=torch.float32)
    else:
        units = torch.cuda.get_device_properties(x.device).multi_processor_count if x.device.type == "cuda" else 2
        programs = triton.cdiv(rows, tile.rows)
        programs = min(programs, tile.per_unit * units) if tables else programs
        parts = torch.empty((tables, programs, cols), dtype=torch.float32, device=x.device) if tables else dx
        flags |= {"DW": has, "DB": bias, "RELOAD": tile.reload, "STAGES": tile.stages}
        flags |= {"ROWS": tile.rows, "COLS": padded, "FULL": tile.rows == 1 and padded == cols}
        layer_norm_backward_rows[(programs,)](x, w, dy, mean, rstd, dx, parts, stride, rows, cols, **flags)
        if tables:
            height, width, warps = SUMS.get(arch, SUMS["gfx942"])
            grid, flags = (triton.cdiv(cols, width), tables), {"ROWS": height, "COLS": width, "num_warps": warps}
            column_sums[grid](parts, dw_db, programs, cols, **flags)
    return dx, dw_db[0] if has else None, dw_db[-1] if bias else None


class LayerNorm(torch.autograd.Function):
    """Keeps x, the weight and two numbers per row. Call :func:`layer_norm`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        """Return y."""
        y, mean, rstd = layer_norm_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dw, db = layer_norm_backward(x, weight, dy, mean, rstd, bias=ctx.bias_dtype is not None)
        return dx, dw, None if db is None else db.to(ctx.bias_dtype), None


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """Return LayerNorm over the last dimension, differentiable by all three; see :func:`layer_norm_forward`."""
    return LayerNorm.apply(x, weight, bias, eps)


def reference_layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> torch.Tensor:
    """Return what the kernels compute, by ``torch.nn.functional.layer_norm``."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
