# SPDX-License-Identifier: MIT
"""Mixture of experts (MoE), forward: each token is multiplied by the matrices of the few experts that it is sent to.

    y[t] = sum over j of  weight[t, j] * down[e] @ (silu(gate[e] @ x[t]) * (up[e] @ x[t])),    e = index[t, j]

Pairs of a token and an expert are sorted by expert, so that a tile of rows has one expert and is a piece of an ordinary
GEMM. Two kernels: gate and up with SwiGLU while the sums are in registers, and down times the routing weight. The k
rows of a token are then added in order, so results repeat bit for bit. The host never asks how many rows an expert
has: it launches as many tiles as there can be at most.
Source: N. Shazeer et al., "Outrageously Large Neural Networks", https://arxiv.org/abs/1701.06538; the form with three
matrices is that of Mixtral, https://arxiv.org/abs/2401.04088. Layout of the weights: transformers 5.
The file needs torch and triton and nothing else: copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["CONFIGS", "ExpertTile", "experts", "pick_expert_tile", "reference_experts", "sort_by_expert"]


def sort_by_expert(index: torch.Tensor, experts: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which pairs each tile of ``block`` rows has, and each tile's expert; nothing of it waits for the GPU.

    Args:
        index: (T, k) expert of each pair; pair p belongs to token p // k. A number that is no expert leaves a pair out.
        experts: how many there are.
        block: rows of a tile.

    Returns:
        slots: (tiles, block) int32, the pair in each row; T * k where a row has none.
        owner: (tiles,) int32, the expert of each tile; ``experts`` for a tile that nobody needs.

    >>> slots, owner = sort_by_expert(torch.tensor([[2, 0], [2, 1], [2, 0]]), 4, 2)
    >>> slots.tolist(), owner.tolist()
    ([[1, 5], [3, 6], [0, 2], [4, 6], [6, 6]], [0, 1, 2, 2, 4])
    """
    flat = index.reshape(-1)
    pairs, here = flat.numel(), index.device
    order = flat.argsort(stable=True)  # pairs, those of one expert next to each other
    numbers = torch.arange(experts, device=here, dtype=flat.dtype)
    starts = torch.searchsorted(flat[order], numbers)
    ends = torch.searchsorted(flat[order], numbers, right=True)
    last = ((ends - starts + block - 1) // block).cumsum(0)  # tiles up to and with each expert
    # Every expert that has rows leaves at most block - 1 rows of its last tile empty.
    most = min(pairs, (pairs + min(experts, pairs) * (block - 1)) // block)
    tile = torch.arange(most, device=here)
    owner = torch.searchsorted(last, tile, right=True)
    e = owner.clamp(max=experts - 1)
    before = torch.where(e > 0, last[e - 1], 0)
    row = starts[e, None] + (tile - before)[:, None] * block + torch.arange(block, device=here)
    used = (row < ends[e, None]) & (owner < experts)[:, None]
    slots = torch.where(used, order[row.clamp(max=pairs - 1)], pairs)
    return slots.int(), owner.int()


@triton.jit(do_not_specialize=["pairs", "experts", "PER"])
def gate_up_kernel(
    x_ptr,
    w_ptr,
    slot_ptr,
    owner_ptr,
    out_ptr,
    pairs,
    experts,
    N,
    K,
    PER,
    stride_x,
    stride_e,
    stride_n,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Compute silu(gate) * up of one tile of pairs; an expert's matrix has N rows of gate, then N of up."""
    tile, cols = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    expert = tl.load(owner_ptr + tile)
    if expert < experts:
        pair = tl.load(slot_ptr + tile * BM + tl.arange(0, BM))
        real, inside = (pair < pairs)[:, None], (cols < N)[None, :]
        k = tl.arange(0, BK)
        steps = tl.cdiv(K, BK)
        tl.assume(steps > 0)  # spares the end of the loop a branch
        x = x_ptr + (pair // PER)[:, None].to(tl.int64) * stride_x + k[None, :]
        w = w_ptr + expert.to(tl.int64) * stride_e + k[:, None]
        w += cols[None, :].to(tl.int64) * stride_n
        up_rows = N.to(tl.int64) * stride_n
        gate, up = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            rest = (k < K) if EVEN_K else (k < K - step * BK)
            rows = tl.load(x, mask=real & rest[None, :], other=0.0)
            gate = tl.dot(rows, tl.load(w, mask=inside & rest[:, None], other=0.0), gate)
            up = tl.dot(rows, tl.load(w + up_rows, mask=inside & rest[:, None], other=0.0), up)
            x += BK
            w += BK
        y = gate / (1.0 + tl.exp(-gate)) * up
        place = out_ptr + pair[:, None].to(tl.int64) * N + cols[None, :]
        tl.store(place, y.to(out_ptr.dtype.element_ty), mask=real & inside)


@triton.jit(do_not_specialize=["pairs", "experts", "PER"])
def grouped_kernel(
    x_ptr,
    w_ptr,
    slot_ptr,
    owner_ptr,
    weight_ptr,
    out_ptr,
    pairs,
    experts,
    N,
    K,
    PER,
    stride_x,
    stride_e,
    stride_n,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Compute a tile of pairs times their expert's matrix; each row times its routing weight, where there is one."""
    tile, cols = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    expert = tl.load(owner_ptr + tile)
    if expert < experts:
        pair = tl.load(slot_ptr + tile * BM + tl.arange(0, BM))
        real, inside = (pair < pairs)[:, None], (cols < N)[None, :]
        k = tl.arange(0, BK)
        steps = tl.cdiv(K, BK)
        tl.assume(steps > 0)  # spares the end of the loop a branch
        x = x_ptr + (pair // PER)[:, None].to(tl.int64) * stride_x + k[None, :]
        w = w_ptr + expert.to(tl.int64) * stride_e + k[:, None]
        w += cols[None, :].to(tl.int64) * stride_n
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            rest = (k < K) if EVEN_K else (k < K - step * BK)
            rows = tl.load(x, mask=real & rest[None, :], other=0.0)
            total = tl.dot(rows, tl.load(w, mask=inside & rest[:, None], other=0.0), total)
            x += BK
            w += BK
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + pair, mask=pair < pairs, other=0.0)
            total *= weight[:, None].to(tl.float32)
        place = out_ptr + pair[:, None].to(tl.int64) * N + cols[None, :]
        tl.store(place, total.to(out_ptr.dtype.element_ty), mask=real & inside)


class ExpertTile(NamedTuple):
    """How both kernels are launched: ``bm`` pairs by ``bn`` columns, ``bk`` of K a step, ``warps`` waves."""

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int = 2

    def options(self, arch: str) -> dict[str, int]:
        """Return the compile options of a launch on ``arch``."""
        own = {"matrix_instr_nonkdim": 16} if arch.startswith("gfx") else {}
        return {"num_warps": self.warps, "num_stages": self.stages, **own}


#: Tiles by architecture, rows ascending. gfx942's were chosen from its compiled code (notebook 35). Other GPUs take
#: gfx942's.
CONFIGS: dict[str, tuple[ExpertTile, ...]] = {
    "gfx942": (
        ExpertTile(16, 64, 64, 4),
        ExpertTile(32, 64, 64, 4),
        ExpertTile(64, 64, 64, 4),
        ExpertTile(128, 128, 32, 8),
    ),
    "interpreter": (ExpertTile(16, 32, 32, 4),),
}


def pick_expert_tile(pairs: int, experts: int, arch: str) -> ExpertTile:
    """Return the first tile of the table with room for the rows that an expert gets on average, or the last.

    >>> [pick_expert_tile(tokens * 8, 128, "gfx942").bm for tokens in (1, 256, 1024, 8192)]
    [16, 16, 64, 128]
    """
    table = CONFIGS.get(arch, CONFIGS["gfx942"])
    return next((t for t in table if t.bm * experts >= pairs), table[-1])


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


def check(name: str, x: Any, dtypes: Sequence[torch.dtype], shape: Sequence[int | None], like: torch.Tensor) -> None:
    """Check that ``x`` is a tensor of one of these types and of this shape (None: any size), where ``like`` is.

    Raises:
        ValueError: it is not; the message names it.
    """
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} is {x!r:.40}: give a tensor")
    if x.dtype not in dtypes:
        raise ValueError(f"{name} is {x.dtype}: give {' or '.join(map(str, dtypes))}".replace("torch.", ""))
    if x.ndim != len(shape) or any(s not in (None, have) for s, have in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} has shape {tuple(x.shape)}: give ({wanted})")
    if x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, what came before on {like.device}: put them on one device")


def rows_ready(name: str, x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` if its last stride is 1.

    Raises:
        ValueError: it is not.
    """
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"{name} has strides {x.stride()}: the last has to be 1; call .contiguous()")
    return x


def experts(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    index: torch.Tensor,
    weight: torch.Tensor,
    *,
    tile: ExpertTile | None = None,
) -> torch.Tensor:
    """Return what the experts make of ``x``, (T, H), in its type, without autograd.

    Args:
        x: (T, H) tokens, float16 or bfloat16.
        gate_up: (E, 2 I, H), same type: for each expert I rows of gate, then I of up; as transformers stores them.
        down: (E, H, I), same type.
        index: (T, k) int64 or int32, the experts of each token, 0 to E - 1; another number leaves that pair out.
        weight: (T, k), floating point, what each of them counts.
        tile: a launch configuration of your own; by default the table's for that many rows an expert.

    Raises:
        ValueError: shapes, types, strides or devices that do not fit.
    """
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"x is {x!r:.40}: give a tensor")
    arch = architecture(x)
    check("x", x, (torch.float16, torch.bfloat16), (None, None), x)
    if x.dtype == torch.bfloat16 and arch == "interpreter":
        raise ValueError("x is bfloat16, which Triton's interpreter multiplies wrongly: give float16 here")
    tokens, hidden = x.shape
    check("gate_up", gate_up, (x.dtype,), (None, None, hidden), x)
    number, twice, _ = gate_up.shape
    if twice % 2:
        raise ValueError(f"gate_up has shape {tuple(gate_up.shape)}: gate and up need as many rows each")
    check("down", down, (x.dtype,), (number, hidden, twice // 2), x)
    check("index", index, (torch.int64, torch.int32), (tokens, None), x)
    check("weight", weight, (torch.float16, torch.bfloat16, torch.float32), tuple(index.shape), x)
    for name, matrix in (("x", x), ("gate_up", gate_up), ("down", down)):
        rows_ready(name, matrix)
    per, inner = index.shape[1], twice // 2
    if 0 in (tokens, hidden, number, per, inner):
        return torch.zeros_like(x)
    pairs = tokens * per
    t = tile or pick_expert_tile(pairs, number, arch)
    slots, owner = sort_by_expert(index, number, t.bm)
    between = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    rows = torch.zeros(pairs, hidden, dtype=x.dtype, device=x.device)  # zero: a pair that is left out adds nothing
    blocks = {"BM": t.bm, "BN": t.bn, "BK": t.bk}
    gate_up_kernel[(len(owner), triton.cdiv(inner, t.bn))](
        x,
        gate_up,
        slots,
        owner,
        between,
        pairs,
        number,
        inner,
        hidden,
        per,
        x.stride(0),
        *gate_up.stride()[:2],
        **blocks,
        EVEN_K=hidden % t.bk == 0,
        **t.options(arch),
    )
    grouped_kernel[(len(owner), triton.cdiv(hidden, t.bn))](
        between,
        down,
        slots,
        owner,
        weight.contiguous(),
        rows,
        pairs,
        number,
        hidden,
        inner,
        1,
        inner,
        *down.stride()[:2],
        **blocks,
        EVEN_K=inner % t.bk == 0,
        **t.options(arch),
    )
    return rows.view(tokens, per, hidden).sum(1)


def reference_experts(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, index: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """Return the same in float64, as torch expressions: what the kernels are judged against.

    >>> one = torch.ones(1, 1)
    >>> down, index = torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[0, 1]])
    >>> y = reference_experts(one, torch.ones(2, 2, 1), down, index, one / 2)
    >>> round(y.item(), 4)  # silu(1) = 0.7311, times 0.5 * 1 + 0.5 * 3
    1.4621
    """
    x, gate_up, down, weight = x.double(), gate_up.double(), down.double(), weight.double().expand(index.shape)
    y = torch.zeros_like(x)
    for e in range(len(down)):
        token, place = (index == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ gate_up[e].T).chunk(2, -1)
        y.index_add_(0, token, weight[token, place, None] * ((torch.nn.functional.silu(gate) * up) @ down[e].T))
    return y
