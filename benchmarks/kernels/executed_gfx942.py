# SPDX-License-Identifier: MIT
"""How many lane-instructions of gfx942 code does one core of this CPU execute in a second?

    python -m benchmarks.kernels.executed_gfx942 [--runs 5] [NAME ...]

Kernels of the course, compiled for gfx942 and executed by `cdna.run`. CPU seconds of this process without
compiling, after one run that is not counted; the least of several runs, since what else runs on the machine can only
add to them. Prints a table and writes results/executed_gfx942.json with the versions and the CPU. These are speeds of
the interpreter on this CPU and say nothing about an MI300X.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cdna.dry_run.driver import dry_run
from cdna.run import prepare
from rocm_guide.common.base import write_text
from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.kernels.attention import attention_backward, attention_forward
from rocm_guide.kernels.gemm import GemmTile, gemm
from rocm_guide.kernels.softmax import softmax_forward

ROOT = Path(__file__).resolve().parents[2]


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).half()


def _heads(rows: int) -> torch.Tensor:
    return _normal(1, 2, rows, 64)


def _backward() -> None:
    q = _heads(64)
    attention_backward(q, q, q, q, q, torch.zeros(1, 2, 64), causal=True)


# name -> (what launches the kernels, the most CPU seconds that it should take, where there is such an aim)
CASES: dict[str, tuple[Callable[[], Any], float | None]] = {
    "GEMM 64 x 64 x 64": (lambda: gemm(_normal(64, 64), _normal(64, 64), tile=GemmTile(64, 64, 64, 4)), 0.3),
    "GEMM 128 x 128 x 512": (lambda: gemm(_normal(128, 512), _normal(512, 128), tile=GemmTile(128, 128, 64, 8)), None),
    "softmax 16 x 4,096": (lambda: softmax_forward(_normal(16, 4096)), None),
    "attention, 128 queries": (lambda: attention_forward(_heads(128), _heads(128), _heads(128), causal=True), None),
    "attention backward, 64 queries": (_backward, None),
}


def launches(call: Callable[[], Any]) -> list[tuple[Any, tuple[int, int, int], dict[str, Any]]]:
    """Compiled kernels, grids and arguments of what ``call`` launches."""
    found = []

    def keep(compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        free = {name: value for name, value in arguments.items() if compiled.signature[name] != "constexpr"}
        found.append((compiled, grid, free))

    with dry_run("gfx942", on_launch=keep):
        call()
    return found


def measure(kernels: list[tuple[Any, tuple[int, int, int], dict[str, Any]]], count: bool) -> tuple[float, int, int]:
    """CPU seconds of one execution, its wave instructions and lane-instructions."""
    took, executed, lanes = 0.0, 0, 0
    for compiled, grid, arguments in kernels:
        start = time.process_time()
        session = prepare(compiled, grid, arguments, count=count)
        session.machine.run()
        result = session.finish()
        took += time.process_time() - start
        executed += result.executed
        lanes += result.counters.lanes
    return took, executed, lanes


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all if none")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/executed_gfx942.json")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    rows = json.loads(given.out.read_text())["cases"] if given.names and given.out.exists() else {}
    print(f"{'case':<32}{'CPU s':>8}{'aim':>6}{'instructions':>14}{'million lanes/s':>17}")
    for name in given.names or CASES:
        call, aim = CASES[name]
        kernels = launches(call)
        measure(kernels, False)
        runs = sorted(measure(kernels, False) for _ in range(given.runs))
        took, executed, lanes = runs[0]
        counted = min(measure(kernels, True)[0] for _ in range(given.runs))
        rows[name] = {
            "cpu_s": [round(r[0], 4) for r in runs],
            "aim_s": aim,
            "wave_instructions": executed,
            "lane_instructions": lanes,
            "lanes_per_s": round(lanes / took),
            "counted_cpu_s": round(counted, 4),
        }
        shown = f"{aim:>6.1f}" if aim else f"{'':>6}"
        print(f"{name:<32}{took:>8.3f}{shown}{executed:>14,}{lanes / took / 1e6:>17.2f}", flush=True)
    versions = {n: importlib.metadata.version(n) for n in ("numpy", "torch", "triton")}
    what = (
        "CPU seconds of gfx942 kernels executed on one core; sorted runs, take the first; counted_cpu_s with "
        "bytes, lines and bank conflicts counted"
    )
    stamp = {"hardware": describe_cpu(), "host": host_facts(), "versions": versions}
    write_text(given.out, json.dumps({"question": what, **stamp, "runs": given.runs, "cases": rows}, indent=1) + "\n")
    print(f"{describe_cpu()}; {', '.join(f'{k} {v}' for k, v in versions.items())}")


if __name__ == "__main__":
    main()
