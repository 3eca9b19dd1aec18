# SPDX-License-Identifier: MIT
"""How do our kernels' gfx942 code and model times compare with those of Liger, torch.compile and aiter on an MI300X?

    python -m benchmarks.kernels.peers_mi300x [--only TEXT] [--fresh]

Nothing is measured on a GPU. Every library launches its own kernels as it would on an MI300X; one Triton compiles each
launch for gfx942, and one workgroup of it is executed. A row holds what the code object states (registers, spills,
waves, LDS), what the whole grid does (instructions by class, bytes and lines asked for, bank conflicts), and the time
by the model of `cdna.predict`, the same for all. Memory is charged with each tensor of a launch once.

Liger and aiter lie in a folder of their own, which the first run fills from the package index (`peers_mi300x.txt` pins
them); inductor is this torch's, with the best of the tiles that it would try, and without its
passes over the graph, so that its softmax reads a row three times. A row that is stored
for these versions, model and kernels is kept, so a run goes on where it was stopped. `--only TEXT` works out the
operations whose names hold TEXT. Writes results/peers_mi300x.json, .png and .svg.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import json
import math
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cdna.costs import mfma_cycles
from cdna.dry_run.driver import dry_run
from cdna.predict.achieved import likely
from cdna.predict.specs import gpu
from cdna.run.counters import LINE
from cdna.run.launches import executed_on_gfx942
from cdna.step.state import Recording
from cdna.step.steady import events_of
from cdna.step.timeline import timeline
from rocm_guide.common.base import write_text
from rocm_guide.common.plots import PALETTE, house_style
from rocm_guide.kernels.attention import attention_forward, reference_attention
from rocm_guide.kernels.gemm import gemm, pick_gemm_tile
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.paged import attention_paged
from rocm_guide.kernels.rms_norm import rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
from rocm_guide.kernels.softmax import softmax_forward
from rocm_guide.kernels.table_measure import compiled_sources, digest_of
from rocm_guide.observe.doctor.own_folders import LibraryFolder
from rocm_guide.observe.predict import L2_BYTES, launches_of, makespan, with_memory
from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, load_kernel

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/peers_mi300x.json"
FOLDER = LibraryFolder(
    name="peers",
    listed=Path(__file__).with_suffix(".txt").read_text("utf-8"),
    shown=("liger_kernel", "amd_aiter"),
    needed_by="benchmarks/kernels/peers_mi300x.py",
    in_cache=True,
)
MI300X = gpu("MI300X")
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fnuz
_LIMIT = 20_000_000  # steps of a workgroup

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Operation:
    """One operation at one size.

    Attributes:
        make: the inputs, on the GPU; if it is given a length, at that length of the loop.
        small: the same at a size at which every launch is executed as a whole.
        floor: bytes that the task must move: every input and every output once.
        units: what "per element" counts: elements of the output, for products 1,024 operations.
        plain: the operation in torch: what inductor compiles, and what results are held against; fp32 inside.
        calls: library -> what it does with the inputs.
        lengths: two short lengths of a long loop that are executed in its place, and how long the loop is.
        alike: library -> the number of a workgroup with the same work, for each; all have the same if left out.
        torch_bytes: library -> bytes that torch moves for it after its kernels.
        fill: puts values into a tensor of integers, which has none where nothing is allocated.
        close: the largest error that rounding explains, as a share of the largest result.
    """

    name: str
    make: Callable[..., Tensors]
    small: Callable[[], Tensors]
    floor: int
    units: int
    plain: Callable[..., Any]
    calls: dict[str, Callable[..., Any]]
    lengths: tuple[int, int, int] | None = None
    alike: dict[str, Callable[[int], int]] = field(default_factory=dict)
    torch_bytes: dict[str, int] = field(default_factory=dict)
    fill: Callable[[torch.Tensor], Any] = lambda _: None
    close: float = 0.02


# --- the libraries ---


def liger(module: str, name: str) -> Any:
    """Return a function of ``liger_kernel.ops``."""
    _use_folder()
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name)


def aiter(module: str, name: str) -> Any:
    """Return a function of ``aiter.ops.triton``, past the package's own start, which wants ROCm's compiler."""
    _use_folder()
    if "aiter" not in sys.modules:
        for package in ("aiter", "aiter.ops", "aiter.utility", "aiter.jit", "aiter.jit.utils"):
            sys.modules[package] = stub = types.ModuleType(package)
            stub.__path__ = [str(FOLDER.path.joinpath(*package.split(".")))]
        chip: Any = types.ModuleType("aiter.jit.utils.chip_info")
        chip.get_gfx = lambda: "gfx942"
        # A second attention, which nothing here calls: this Triton refuses its tuner's keys, which are no arguments.
        other: Any = types.ModuleType("aiter.ops.triton._triton_kernels.flash_attn_triton_amd")
        other.flash_attn_2 = None
        sys.modules |= {stub.__name__: stub for stub in (chip, other)}
        top: Any = sys.modules["aiter"]
        top.dtypes = importlib.import_module("aiter.utility.dtypes")
    return getattr(importlib.import_module(f"aiter.ops.triton.{module}"), name)


@functools.cache
def _use_folder() -> None:
    if FOLDER.install():
        print(f"installed {' and '.join(FOLDER.requirements)} in a folder of their own", flush=True)
    sys.path.insert(0, str(FOLDER.path))


class _InductorKernel:
    """A kernel of inductor's, launched as its generated code asks, with one of the tiles that it would try."""

    def __init__(self, tuner: Any, choice: int) -> None:
        self.tuner, self.config = tuner, tuner.configs[choice % len(tuner.configs)]

    def run(self, *arguments: Any, stream: Any) -> None:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        order = list(self.tuner.triton_meta["signature"])
        fixed = {**self.tuner.triton_meta.get("constants", {}), **self.config.kwargs}
        given = dict(zip((n for n in order if n not in fixed), arguments, strict=True))
        launch = {"num_warps": self.config.num_warps, "num_stages": self.config.num_stages}
        expression = GridExpr.from_meta(self.tuner.inductor_meta, self.config)
        self.tuner.fn[expression.eval_slow({**given, **fixed})](**given, **fixed, **launch)


def inductor(plain: Callable[..., Any], inputs: Tensors, folder: Path) -> list[Callable[..., Any]]:
    """Return inductor's code for ``plain`` as functions, one for each choice of tiles that it would try."""
    text = inductor_code(plain, inputs)
    tuners = {kernel.name: load_kernel(kernel, folder) for kernel in extract_kernels(text)}
    body = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "call")
    whole = compile(ast.Module([body], []), "inductor's output_code.py", "exec")
    code = next(c for c in whole.co_consts if isinstance(c, types.CodeType))
    here = types.SimpleNamespace(_DeviceGuard=lambda _: contextlib.nullcontext(), set_device=lambda _: None)
    names = {
        "torch": types.SimpleNamespace(cuda=here, **{str(t)[6:]: t for t in (torch.float32, BF16, FP8)}),
        "empty_strided_cuda": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda"),
        "reinterpret_tensor": lambda x, size, stride, offset: x.as_strided(size, stride, x.storage_offset() + offset),
        "assert_size_stride": lambda *_: None,
        "get_raw_stream": lambda _: 0,
    }

    def choose(choice: int) -> Callable[..., Any]:
        space: dict[str, Any] = names | {name: _InductorKernel(tuner, choice) for name, tuner in tuners.items()}
        function = types.FunctionType(code, space)
        return lambda *inputs: function(None, list(inputs))

    return [choose(n) for n in range(max(len(tuner.configs) for tuner in tuners.values()))]


# --- what a launch costs ---


def moved(arguments: dict[str, Any]) -> int:
    """Return the bytes of all tensors of a launch, each once."""
    tensors = {id(v): v for v in arguments.values() if isinstance(v, torch.Tensor)}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def counted(recording: Recording) -> Counter[str]:
    """Return what one workgroup did, by what is counted."""
    c, code = recording.counters, recording.code
    events = [code[e.index] for wave in recording.events for e in wave]
    out = Counter(f"{o.kind} instructions" for o in events)
    out["bytes"], out["LDS conflict cycles"] = c.loaded + c.stored, c.lds_conflicts
    out["lines"] = len({line for wave in recording.events for e in wave for line in e.lines})
    out["matrix cycles"] = sum(mfma_cycles(o.op) for o in events if o.kind == "mfma")
    return out


def cost(op: Operation, library: str, compiled: Any, grid: Any, arguments: Any, report: Any) -> Counter[str]:
    """Return the cycles of a launch on a whole MI300X, by the model, and what all its workgroups do."""
    count, alike = math.prod(grid), op.alike.get(library)
    held = min(report.occupancy.workgroups_per_cu, math.ceil(count / MI300X.units))
    arguments = {n: with_memory(v) for n, v in arguments.items()}
    for value in arguments.values():
        if isinstance(value, torch.Tensor) and value.dtype == torch.int32:
            op.fill(value)
    runs = {n: events_of(compiled, grid, arguments, n, _LIMIT) for n in ({*map(alike, range(count))} if alike else [0])}
    cycles = {n: float(timeline(run, groups=held).cycles) for n, run in runs.items()}
    out: Counter[str] = Counter()
    for n, share in Counter(map(alike, range(count)) if alike else {0: count}).items():
        for what, number in counted(runs[n]).items():
            out[what] += number * share
    if alike:
        total = makespan([cycles[alike(n)] for n in range(count)], MI300X.units * held)
    else:  # in the last round fewer workgroups share a compute unit
        rounds = math.ceil(count / (MI300X.units * held))
        last = math.ceil((count - (rounds - 1) * MI300X.units * held) / MI300X.units)
        total = (rounds - 1) * cycles[0] + timeline(runs[0], groups=last).cycles
    out["cycles"] = round(total)
    return out


def measure(op: Operation, library: str, call: Callable[..., Any]) -> dict[str, Any]:
    """Return the row of one library's way to do ``op``."""
    whole = launches_of(lambda: call(*op.make()))
    if op.lengths:
        short, long, length = op.lengths
        ends = [[cost(op, library, *one) for one in launches_of(lambda k=k: call(*op.make(k)))] for k in (short, long)]
        each = []
        for a, b in zip(*ends, strict=True):
            each.append(Counter({n: round(b[n] + (b[n] - a[n]) / (long - short) * (length - long)) for n in b}))
    else:
        each = [cost(op, library, *one) for one in whole]
    total: Counter[str] = sum(each, Counter())
    mhz, gone = MI300X.flops["fp32"][1], sum(moved(one[2]) for one in whole) + op.torch_bytes.get(library, 0)
    parts = {
        "compute units": total["cycles"] / mhz,
        "L2": total["lines"] * LINE / (L2_BYTES * MI300X.dies * mhz),
        "HBM": gone / MI300X.bandwidth_tb_s / 1e6,
    }
    matrix = total["matrix cycles"] / MI300X.simds / MI300X.units / mhz
    model = likely(parts, matrix=min(matrix, max(parts.values())), launches=len(whole) + (library in op.torch_bytes))
    kinds = {n.removesuffix(" instructions"): 64 * total[n] / op.units for n in total if n.endswith(" instructions")}
    return {
        "kernels": [
            {
                "name": compiled.name,
                "grid": list(grid),
                "vgprs": report.resources.vgprs_allocated,
                "spills": report.resources.vgpr_spills or 0,
                "waves_per_simd": report.occupancy.waves_per_simd,
                "lds": report.lds,
                "warps": compiled.num_warps,
                "cycles": one["cycles"],
            }
            for (compiled, grid, _, report), one in zip(whole, each, strict=True)
        ],
        "instructions": {kind: round(n, 2) for kind, n in sorted(kinds.items())},
        "executed": round(sum(kinds.values()), 2),
        "bytes": round(total["bytes"] / op.floor, 3),
        "lines": round(total["lines"] * LINE / op.floor, 3),
        "moved": round(gone / op.floor, 3),
        "lds_conflicts": round(total["LDS conflict cycles"] / op.units, 3),
        "unit_us": round(parts["compute units"], 2),
        "bound_us": round(model.bound, 2),
        "likely_us": round(model.microseconds, 2),
        "limit": model.limit,
    }


def error(op: Operation, call: Callable[..., Any]) -> float:
    """Execute every instruction at the small size; return the largest error as a share of the largest result."""
    with executed_on_gfx942(units=2, limit=_LIMIT, count=False):
        inputs = op.small()
        wanted = op.plain(*(x.float() if x.is_floating_point() else x for x in inputs))
        results = call(*inputs)
    results, wanted = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (results, wanted))
    pairs = [(r.float().reshape(w.shape), w.float()) for r, w in zip(results, wanted, strict=False)]
    return max(float((r - w).abs().max() / w.abs().max()) for r, w in pairs)


# --- the operations ---


def draw(*shape: int, dtype: torch.dtype = BF16, seed: int = 0) -> torch.Tensor:
    """Return normal numbers, the same in each call."""
    torch.manual_seed(seed)
    return torch.randn(*shape, device="cuda").to(dtype)


def row_operations(cols: int = 0) -> Iterator[Operation]:
    """Yield softmax, RMSNorm and LayerNorm over 2,048 rows of ``cols``; 0: 16,384, of LayerNorm 8,192."""
    wide, narrow = cols or 16384, cols or 8192

    def inputs(rows: int, cols: int, per_column: int, gradient: bool, per_row: int) -> Tensors:
        x, dy = (draw(rows, cols, seed=seed) for seed in (0, 1))
        numbers = (draw(rows, dtype=torch.float32, seed=4 + i).abs() + 0.5 for i in range(per_row))
        return x, *(draw(cols, seed=2 + i) for i in range(per_column)), *([dy] if gradient else []), *numbers

    def operation(
        name: str, cols: int, moved: tuple[int, int, int], per_column: int, per_row: int, plain: Any, **calls: Any
    ) -> Operation:
        # moved: matrices, numbers for each column, 32-bit ones for each row; of the inputs so many have one per column.
        (matrices, columns, rows), gradient, kept = moved, "backward" in name, calls.pop("torch_bytes", {})
        make, small = (
            functools.partial(inputs, n, cols, per_column, gradient, per_row) for n in (2048, 14 if gradient else 4)
        )
        floor, name = 2 * 2048 * cols * matrices + 2 * cols * columns + 4 * 2048 * rows, f"{name} bf16 2048 x {cols}"
        return Operation(name, make, small, floor, 2048 * cols, plain, calls, torch_bytes=kept)

    def rms(x: Any, w: Any) -> Any:
        rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return (x.float() * rstd * w.float()).to(x.dtype), rstd.squeeze(-1)

    def rms_backward(x: Any, w: Any, dy: Any, rstd: Any) -> Any:
        h, g = x.float() * rstd.unsqueeze(-1), dy.float() * w.float()
        dx = rstd.unsqueeze(-1) * (g - h * (g * h).mean(-1, keepdim=True))
        return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype)

    def layer(x: Any, w: Any, b: Any) -> Any:
        mean = x.float().mean(-1, keepdim=True)
        rstd = torch.rsqrt((x.float() - mean).square().mean(-1, keepdim=True) + 1e-5)
        return ((x.float() - mean) * rstd * w.float() + b.float()).to(x.dtype), mean.squeeze(-1), rstd.squeeze(-1)

    def layer_backward(x: Any, w: Any, dy: Any, mean: Any, rstd: Any) -> Any:
        h, g = (x.float() - mean.unsqueeze(-1)) * rstd.unsqueeze(-1), dy.float() * w.float()
        dx = rstd.unsqueeze(-1) * (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True))
        return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype), dy.float().sum(0).to(w.dtype)

    def aiter_layer(x: Any, w: Any, b: Any) -> Any:
        y, mean, rstd = torch.empty_like(x), *(x.new_empty(len(x), dtype=torch.float32) for _ in range(2))
        aiter("norm", "_layernorm_forward")(y, x, w, b, mean, rstd)
        return y, mean, rstd

    def aiter_layer_backward(x: Any, w: Any, dy: Any, mean: Any, rstd: Any) -> Any:
        dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
        return aiter("norm", "_layernorm_backward")(dy, dx, dw, db, x, w, mean, rstd)

    def liger_rms_backward(x: Any, w: Any, dy: Any, rstd: Any) -> Any:
        backward = liger("rms_norm", "rms_norm_backward")
        settings = importlib.import_module("liger_kernel.ops.utils").calculate_settings(x.shape[1])
        return backward(dy, x, w, rstd, 0.0, 0, *settings, False, None)

    yield operation(
        "softmax",
        wide,
        (2, 0, 0),
        0,
        0,
        lambda x: torch.softmax(x.float(), -1).to(x.dtype),
        ours=softmax_forward,
        liger=lambda x: liger("softmax", "_softmax_forward")(x)[0],
        aiter=lambda x: aiter("softmax", "softmax")(x),
    )
    yield operation(
        "RMSNorm",
        wide,
        (2, 1, 1),
        1,
        0,
        rms,
        ours=rms_norm_forward,
        liger=lambda x, w: liger("rms_norm", "rms_norm_forward")(x, w, 1e-6, 0.0, "llama", None)[::2],
        aiter=lambda x, w: aiter("rmsnorm", "_rmsnorm_forward")(x, w, 1e-6),
    )
    yield operation(
        "RMSNorm backward",
        wide,
        (3, 2, 1),
        1,
        1,
        rms_backward,
        ours=rms_norm_backward,
        liger=liger_rms_backward,
        aiter=lambda x, w, dy, rstd: aiter("rmsnorm", "_rmsnorm_backward")(dy, x, w, rstd),
        torch_bytes={"liger": 4 * MI300X.units * wide},
    )
    yield operation(
        "LayerNorm",
        narrow,
        (2, 2, 2),
        2,
        0,
        layer,
        ours=layer_norm_forward,
        liger=lambda x, w, b: liger("layer_norm", "layer_norm_forward")(x, w, b, 1e-5)[0],
        aiter=aiter_layer,
    )
    yield operation(
        "LayerNorm backward",
        narrow,
        (3, 3, 2),
        1,
        2,
        layer_backward,
        ours=layer_norm_backward,
        liger=lambda x, w, dy, mean, rstd: liger("layer_norm", "layer_norm_backward")(dy, x, w, w, mean, rstd),
        aiter=aiter_layer_backward,
        # Sums of parts; zeros that the kernel adds to.
        torch_bytes={"liger": 2 * 4 * MI300X.units * narrow, "aiter": 2 * 256 * 4 * narrow},
    )


def fp8_operations() -> Iterator[Operation]:
    """Yield the residual's addition, RMSNorm and FP8 in one, with a scale for the tensor and one for each row."""
    rows, cols, static = 2048, 16384, 0.05

    def make(rows: int = rows) -> Tensors:
        return draw(rows, cols), draw(rows, cols, seed=1), draw(cols, seed=2)

    def norm(x: Any, residual: Any, w: Any) -> Any:
        added = x + residual
        rstd = torch.rsqrt(added.float().square().mean(-1, keepdim=True) + 1e-6)
        return added, added.float() * rstd * w.float()

    def plain(x: Any, residual: Any, w: Any) -> Any:
        added, y = norm(x, residual, w)
        return (y / static).clamp(-240, 240).to(FP8), added

    def plain_rows(x: Any, residual: Any, w: Any) -> Any:
        added, y = norm(x, residual, w)
        scale = y.abs().amax(-1, keepdim=True) / 240
        return (y / scale).clamp(-240, 240).to(FP8), added, scale

    def by_aiter(x: Any, residual: Any, w: Any) -> Any:
        scale = torch.full((1,), static, dtype=torch.float32, device="cuda")
        fused = aiter("fused_fp8_quant", "fused_rms_fp8_per_tensor_static_quant")
        return fused(x, w, 1e-6, scale, dtype_quant=FP8, res1=residual)[::3]

    def by_aiter_rows(x: Any, residual: Any, w: Any) -> Any:
        out, added = torch.empty_like(x, dtype=FP8), torch.empty_like(x)
        scale = torch.empty((len(x), 1), dtype=torch.float32, device="cuda")
        aiter("rmsnorm", "rmsnorm2d_fwd_with_add_dynamicquant")(out, x, residual, added, scale, w, 1e-6)
        return out, added, scale

    floor, elements, step = 7 * rows * cols + 2 * cols, rows * cols, 0.07  # fp8 has steps of 16 near 240
    small = functools.partial(make, 4)
    calls: dict[str, Callable[..., Any]] = {
        "ours": lambda x, r, w: rmsnorm_fp8(x, r, w, static)[:2],
        "aiter": by_aiter,
    }
    yield Operation("add, RMSNorm, FP8 2048 x 16384", make, small, floor, elements, plain, calls, close=step)
    calls, floor = {"ours": rmsnorm_fp8, "aiter": by_aiter_rows}, floor + 4 * rows
    name = "add, RMSNorm, FP8 by rows 2048 x 16384"
    yield Operation(name, make, small, floor, elements, plain_rows, calls, close=step)


def decode_operations() -> Iterator[Operation]:
    """Yield one query token each of 16 sequences over 8,192 keys, which lie in pages of 64."""
    batch, heads, kv_heads, keys, size, page = 16, 32, 8, 8192, 128, 64

    def make(batch: int = batch, heads: int = heads, kv_heads: int = kv_heads, keys: int = keys) -> Tensors:
        count = batch * keys // page
        pages = (draw(count, page, kv_heads, size, seed=seed) for seed in (1, 2))
        table = torch.arange(count, dtype=torch.int32, device="cuda").view(batch, -1)
        lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
        return draw(batch, heads, size), *pages, table, lengths

    def plain(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> Any:
        k, v = (x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v))
        return reference_attention(q.unsqueeze(2), k, v)[0].squeeze(2)

    def by_aiter(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> Any:
        out, starts = torch.empty_like(q), torch.arange(len(q) + 1, dtype=torch.int32, device="cuda")
        most, scale = table.shape[1] * page, q.shape[2] ** -0.5
        given = (starts, 1, lengths, most, scale, True, (-1, -1), table, 0, None, None, None)
        aiter("unified_attention", "unified_attention")(q, k, v, out, *given)
        return out

    def fill(x: torch.Tensor) -> None:
        if x.numel() == batch:
            x.fill_(keys)
        elif x.ndim == 2 or x.numel() == batch + 1:
            x.copy_(torch.arange(x.numel(), dtype=torch.int32).view(x.shape))

    yield Operation(
        f"paged decode bf16 {batch} x {heads}/{kv_heads} x {keys} x {size}",
        make,
        functools.partial(make, 1, 8, 2, 2048),
        2 * (2 * batch * kv_heads * keys * size + 2 * batch * heads * size) + 4 * batch * (keys // page + 1),
        4 * batch * heads * keys * size // 1024,
        plain,
        {"ours": attention_paged, "aiter": by_aiter},
        fill=fill,
    )


def gemm_operations() -> Iterator[Operation]:
    """Yield products with a weight, whose rows are contiguous."""
    for name, dtype in (("bf16", BF16), ("fp8", FP8)):
        for m, n, k in ((8192, 8192, 8192), (4096, 11008, 4096)):
            size = dtype.itemsize
            tile = pick_gemm_tile(m, n, 8 * size, "gfx942", MI300X.units, k=k, weight=True)

            def make(length: int = k, m: int = m, n: int = n, dtype: torch.dtype = dtype) -> Tensors:
                return draw(m, length, dtype=dtype), draw(n, length, dtype=dtype, seed=1)

            def by_aiter(a: Any, b: Any, m: int = m, n: int = n, k: int = k, size: int = size) -> Any:
                module = "gemm_a16w16" if size == 2 else "gemm_a8w8"
                config = dict(aiter(f"_triton_kernels.{module}", "_get_config")(m, n, k))
                if size == 2:  # a part of K that goes to one workgroup: all of it
                    assert config["NUM_KSPLIT"] == 1
                    return aiter(module, module)(a, b, config=config | {"SPLITK_BLOCK_SIZE": a.shape[1]})
                ones = (torch.ones(len(x), dtype=torch.float32, device="cuda") for x in (a, b))
                return aiter(module, module)(a, b, *ones, config=config)

            yield Operation(
                f"GEMM {name} {m} x {n} x {k}",
                make,
                functools.partial(make, 256, 256, 256),
                size * (m * k + k * n) + 2 * m * n,
                2 * m * n * k // 1024,
                lambda a, b: a @ b.T,
                {"ours": lambda a, b, tile=tile: gemm(a, b.T, tile=tile), "aiter": by_aiter},
                lengths=(512, 1024, k),
            )


def attention_operations() -> Iterator[Operation]:
    """Yield attention with heads of six sizes."""
    batch, heads = 4, 32

    def make(n: int, kv_heads: int, tokens: int, size: int, batch: int = batch) -> Tensors:
        return tuple(draw(batch, n, tokens, size, seed=seed) for seed, n in enumerate((n, kv_heads, kv_heads)))

    def plain(q: Any, k: Any, v: Any, causal: bool) -> Any:
        return reference_attention(q, k, v, causal=causal)[0]

    def by_aiter(q: Any, k: Any, v: Any, causal: bool) -> Any:
        rows = q.shape[2]
        given = (0.0, q.shape[3] ** -0.5, causal, -1, -1, None, None, True, False, rows, rows)
        return aiter("mha", "_flash_attn_forward")(*(x.transpose(1, 2) for x in (q, k, v)), *given)[0].transpose(1, 2)

    for size, tokens, kv_heads, causal in (
        *((128, 1024, heads, causal) for causal in (False, True)),
        *((size, 512 if size > 128 else 1024, 8, True) for size in (64, 80, 96, 192, 256)),
    ):
        # Tiles of queries have unequal work. Ours take all heads before the next tile, aiter's those of one batch.
        alike = {
            "ours": lambda n: n // (batch * heads) * (batch * heads),
            "aiter": lambda n, tokens=tokens: n // heads % (tokens // 128) * heads,
        }
        many = f"{heads}" if kv_heads == heads else f"{heads}/{kv_heads}"
        yield Operation(
            f"attention {'causal ' if causal else ''}bf16 {batch} x {many} x {tokens} x {size}",
            functools.partial(make, heads, kv_heads, tokens, size),
            functools.partial(make, 2, 1, 256, size, 1),
            4 * batch * (heads + kv_heads) * tokens * size + 4 * batch * heads * tokens,
            4 * batch * heads * tokens * tokens * size // 1024 // (2 if causal else 1),
            functools.partial(plain, causal=causal),
            {
                "ours": lambda q, k, v, causal=causal: attention_forward(q, k, v, causal=causal)[0],
                "aiter": functools.partial(by_aiter, causal=causal),
            },
            alike=alike if causal else {},
        )


def operations() -> dict[str, Operation]:
    """Return all operations by name."""
    narrow = functools.partial(row_operations, 2048)  # where partial sums weigh most
    makers = (row_operations, narrow, gemm_operations, attention_operations, decode_operations, fp8_operations)
    return {op.name: op for make in makers for op in make()}


def libraries(op: Operation) -> tuple[str, ...]:
    """Return who does ``op``, ours first. Products and attention are no kernels of inductor's: it calls a library."""
    products = ("GEMM", "attention", "paged")
    return (*op.calls, *([] if op.name.startswith(products) else ["inductor"]))


# --- the table ---


def versions() -> dict[str, str]:
    """Return what decides about the peers' code, and about the model."""
    peers = dict(requirement.split("==") for requirement in FOLDER.requirements)
    return {n: importlib.metadata.version(n) for n in ("torch", "triton")} | peers


def made_of(op: Operation, library: str) -> str:
    """Return a digest of what a row is made of: versions, the model, and the kernels' source, types and options."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for path in sorted((ROOT / "cdna/cdna").rglob("*.py")):
        digest.update(path.read_bytes())
    if library != "inductor":
        with dry_run("gfx942", device="meta"), compiled_sources(skip=True) as seen:
            op.calls[library](*op.make())
        digest.update(digest_of(seen).encode())
    return digest.hexdigest()[:12]


def best_of_inductor(op: Operation) -> dict[str, Any]:
    """Return the row of inductor's code with the tiles that likely take least."""
    with dry_run("gfx942", device="meta"):
        inputs = op.make()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(op, "inductor", call) for call in inductor(op.plain, inputs, Path(folder))]
    return min(rows, key=lambda row: (row["likely_us"], row["unit_us"])) | {"tiles_tried": len(rows)}


def main() -> None:
    """Work out the rows that are missing, print the table, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operations whose names hold this")
    parser.add_argument("--fresh", action="store_true", help="work out every row anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(RESULTS.read_text("utf-8"))["rows"] if RESULTS.exists() and not given.fresh else {}
    rows: dict[str, dict[str, Any]] = {}
    for name, op in operations().items():
        rows[name] = {}
        for library in libraries(op):
            old = kept.get(name, {}).get(library)
            source = made_of(op, library) if given.only in name else ""
            if not source or (old and old["made_of"] == source):
                rows[name] |= {library: old} if old else {}
                continue
            start = time.process_time()
            row = best_of_inductor(op) if library == "inductor" else measure(op, library, op.calls[library])
            if library != "inductor":
                row["error"] = float(f"{error(op, op.calls[library]):.2g}")
            rows[name][library] = row | {"made_of": source, "cpu_s": round(time.process_time() - start, 1)}
            brief = {what: row[what] for what in ("likely_us", "limit", "unit_us", "executed", "bytes", "moved")}
            print(f"{name}, {library}: {brief}", flush=True)
            store(rows | {n: r for n, r in kept.items() if n not in rows})
    store(rows)
    draw_picture(rows)


def store(rows: dict[str, Any]) -> None:
    """Write the table."""
    what = (
        "Computed, not measured: gfx942 code by one Triton, one workgroup of each launch executed, and the model of "
        "cdna.predict for an MI300X. Per element of the output, for products per 1,024 operations: instructions of "
        "lanes (64 for each of a wave), LDS conflict cycles. bytes (asked for by lanes), lines (of 128 bytes, by "
        "workgroups) and moved (each tensor of a launch once) are multiples of what the task must move. unit_us: the "
        "compute units alone; likely_us: the longest of units, L2 and HBM at the rates that people reach. "
        "error: the largest of a small case executed as a whole, as a share of the largest result."
    )
    write_text(RESULTS, json.dumps({"question": what, "versions": versions(), "rows": rows}, indent=1) + "\n")


def draw_picture(rows: dict[str, Any]) -> None:
    """Draw how long every library likely takes, as a multiple of what ours does."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    house_style()
    _, ax = plt.subplots(figsize=(8.4, 0.42 * len(rows) + 1.2))
    for n, library in enumerate(("liger", "aiter", "inductor")):
        found = {
            y: row[library]["likely_us"] / row["ours"]["likely_us"]
            for y, row in enumerate(rows.values())
            if library in row
        }
        ax.scatter([*found.values()], [*found], s=34, marker="os^"[n], color=PALETTE[n], label=library, zorder=3)
    ax.axvline(1, color="#333333", linewidth=1)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("likely time by one model, as a multiple of ours")
    ax.set_title("Computed from gfx942 code, not measured")
    ax.legend(loc="lower right")
    for kind in ("png", "svg"):
        plt.savefig(RESULTS.with_suffix(f".{kind}"), dpi=130)
    plt.close()


if __name__ == "__main__":
    main()
