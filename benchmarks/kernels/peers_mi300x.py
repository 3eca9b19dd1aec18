# SPDX-License-Identifier: MIT
"""How do our kernels' gfx942 code and model times compare with those of Liger, torch.compile and aiter on an MI300X?

    python -m benchmarks.kernels.peers_mi300x [--only TEXT] [--fresh]

Nothing is measured on a GPU. Every library launches its own kernels as it would on an MI300X; one Triton compiles each
launch for gfx942, and one workgroup of it is executed. A row holds what the code object states (registers, spills,
waves, LDS), what the whole grid does (instructions by class, bytes and lines asked for, bank conflicts), and the time
by the model of `cdna.predict`, the same for all. Memory is charged with each tensor of a launch once.

The operations, and how each library is called, are in `peers_cases.py`; Liger and aiter come from the package index,
pinned by `peers_mi300x.txt`. inductor is this torch's, with the best of the tiles that it would try, and without its
passes over the graph, so that its softmax reads a row three times. A row that is stored for these versions, model and
kernels is kept, so a run goes on where it was stopped. `--only TEXT` works out the operations whose names hold TEXT.
Writes results/peers_mi300x.json, .png and .svg.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.metadata
import json
import math
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.kernels.peers_cases import BF16, FOLDER, FP8, MI300X, Operation, Tensors, operations
from cdna.costs import mfma_cycles
from cdna.dry_run.driver import dry_run
from cdna.predict.achieved import likely
from cdna.run.counters import LINE
from cdna.run.launches import executed_on_gfx942
from cdna.step.state import Recording
from cdna.step.steady import events_of
from cdna.step.timeline import timeline
from course.table_measure import compiled_sources, digest_of
from rocm_guide.common.base import write_text
from rocm_guide.common.plots import PALETTE, house_style
from rocm_guide.observe.predict import L2_BYTES, launches_of, makespan, with_memory
from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, load_kernel

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/peers_mi300x.json"
_LIMIT = 20_000_000  # steps of a workgroup

# --- inductor ---


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
    """Return the bytes of all tensors of a launch, each once, and of views of one memory no more than it has."""
    tensors, held = {id(v): v for v in arguments.values() if isinstance(v, torch.Tensor)}, Counter[Any]()
    for t in tensors.values():
        memory = t.untyped_storage()
        held[memory._cdata] = min(held[memory._cdata] + t.numel() * t.element_size(), memory.nbytes())
    return held.total()


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
    count, alike = math.prod(grid), op.alike.get(f"{library} {compiled.name}", op.alike.get(library))
    held = min(report.occupancy.workgroups_per_cu, math.ceil(count / MI300X.units))
    arguments = {n: with_memory(v) for n, v in arguments.items()}
    for value in arguments.values():
        for held_values in op.indices if isinstance(value, torch.Tensor) and value.dtype == torch.int32 else ():
            if value.shape == held_values.shape:
                value.copy_(held_values)
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


def libraries(op: Operation) -> tuple[str, ...]:
    """Return who does ``op``, ours first. Products and attention are no kernels of inductor's: it calls a library."""
    products = ("GEMM", "skinny", "attention", "paged", "MLA")
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
