# SPDX-License-Identifier: MIT
"""Where the time of a skinny GEMM goes when launches follow each other, and what waiting for the one before costs.

Reading the weight of 2304 x 16384 in fp8 once, at the rate at which the larger weights are read, takes 13 us; the
course's kernel takes 15. This script launches a copy of that kernel that notes the time (PTX ``%globaltimer``) in every
workgroup: at its start, after waiting for the kernel before, after its loop, at its end. It also leaves the wait out.
That is wrong in a model, where x is what the kernel before wrote, but here it shows the bound: workgroups of the next
launch then stream on while those of this one add up their parts.

    python benchmarks/skinny_timeline.py [--out FOLDER]        # writes results/skinny_timeline.json; needs a Hopper GPU
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

from rocm_guide.kernels.gemm_skinny import SkinnyWorkspace
from rocm_guide.kernels.hopper import fetch_rows, let_next_kernel_start, wait_for_kernel_before

N, K, ROWS = 2304, 16384, 8
POINTS = ("start", "waited", "loop", "end")


@dataclass(frozen=True)
class Way:
    """Parts of K, steps asked for before the wait, when the next launch may start, and whether to wait at all."""

    split: int
    ahead: int
    early: int
    wait: bool


@triton.jit(do_not_specialize=["M"])
def timed_kernel(
    x_ptr, w_ptr, out_ptr, part_ptr, count_ptr, time_ptr, M, N, K, scale,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, AHEAD: tl.constexpr,
    EARLY: tl.constexpr, WAIT: tl.constexpr, TIME: tl.constexpr,
):  # fmt: skip
    """The skinny GEMM without tails: BN divides N and BK divides K."""
    began, waited, looped = tl.cast(0, tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if TIME:
        began = globaltimer()
    tile, piece = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    first, last = K // BK * piece // SPLIT, K // BK * (piece + 1) // SPLIT
    w_ptr += (tile * BN).to(tl.int64) * K + first * BK
    x_ptr += first * BK
    if AHEAD > 0:
        fetch_rows(w_ptr + rn * K, AHEAD * BK)
    if WAIT:
        wait_for_kernel_before()
    if TIME:
        waited = globaltimer()
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    for step in range(first, last):
        w = tl.load(w_ptr + rn[:, None] * K + rk[None, :])
        x = tl.load(x_ptr + rm[None, :] * K + rk[:, None], mask=(rm < M)[None, :], other=0.0)
        acc = tl.dot(w, x, acc, max_num_imprecise_acc=128)
        w_ptr += BK
        x_ptr += BK
        let_next_kernel_start(tl.maximum(last - step - EARLY, 0))
    if TIME:
        looped = globaltimer()
    inner = rn[:, None] * BM + rm[None, :]
    part_ptr += tile * (SPLIT * BN * BM)
    tl.store(part_ptr + piece * (BN * BM) + inner, acc)
    tl.debug_barrier()
    if tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu") == SPLIT - 1:
        acc = tl.zeros((BN, BM), dtype=tl.float32)
        for s in tl.static_range(SPLIT):
            acc += tl.load(part_ptr + s * (BN * BM) + inner)
        tl.store(count_ptr + tile, 0)
        at = out_ptr + tile * BN + rm[None, :] * N + rn[:, None]
        tl.store(at, (acc * scale).to(tl.bfloat16), mask=(rm < M)[None, :])
    if TIME:
        time_ptr += (tile * SPLIT + piece) * 4
        tl.store(time_ptr, began)
        tl.store(time_ptr + 1, waited)
        tl.store(time_ptr + 2, looped)
        tl.store(time_ptr + 3, globaltimer())


def launch(way: Way, x, w, space: SkinnyWorkspace, times=None):
    """x @ w.T / 8; ``times`` takes four numbers from each workgroup."""
    out = torch.empty(len(x), N, dtype=torch.bfloat16, device=x.device)
    timed_kernel[(N // 64, way.split)](
        x, w, out, space.partials, space.counters, space.counters if times is None else times, len(x), N, K, 0.125,
        BM=16, BN=64, BK=256, SPLIT=way.split, AHEAD=way.ahead, EARLY=way.early, WAIT=way.wait, TIME=times is not None,
        num_warps=4, num_stages=4, launch_pdl=True,
    )  # fmt: skip
    return out


def timeline(way: Way, x, w, spaces: list[SkinnyWorkspace]) -> list[dict[str, list[float]]]:
    """Per launch and point the earliest, median and latest workgroup in us; launches in one graph, one per copy."""
    copies = len(w)
    times = [torch.zeros(N // 64 * way.split, 4, dtype=torch.int64, device="cuda") for _ in range(copies)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        launch(way, x[0], w[0], spaces[0], times[0])
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for i in range(3 * copies):
            kept.append(launch(way, x[i % copies], w[i % copies], spaces[i % copies], times[i % copies]))
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    zero, found = times[0][:, 0].min(), []
    for t in times:
        columns = ((t - zero).double() / 1e3).sort(0).values
        chosen = columns[[0, len(t) // 2, -1]].round(decimals=2).T.tolist()
        found.append(dict(zip(POINTS, chosen, strict=True)))
    return found


def main() -> None:
    from kernel_bench import copies_past_cache, save, tensors, time_graph

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for the result instead of benchmarks/results")
    given = parser.parse_args()
    if not torch.cuda.is_available() or torch.version.hip or torch.cuda.get_device_capability() < (9, 0):
        sys.exit("no Hopper GPU here: overlapped launches are what this script measures")
    copies = copies_past_cache(N * K)
    w, x = (tensors((n, K), torch.float8_e4m3fn, copies, seed=n) for n in (N, ROWS))
    one, rows = torch.ones((), device="cuda"), []
    spaces = [SkinnyWorkspace.on("cuda") for _ in range(copies)]  # without the wait, launches overlap
    library = time_graph(lambda i: lambda: torch._scaled_mm(
        x[i], w[i].T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), N * K).us  # fmt: skip
    print(f"torch._scaled_mm {library:.2f} us")
    for wait, early, ahead in ((w_, e, a) for w_ in (True, False) for e in (4, 1000) for a in (2, 0)):
        way = Way(6, ahead, early, wait)
        got, wanted = launch(way, x[0], w[0], spaces[0]).double(), 0.125 * x[0].double() @ w[0].double().T
        assert ((got - wanted).abs().max() / wanted.abs().max()).item() < 0.01, way
        us = time_graph(lambda i, way=way: lambda: launch(way, x[i], w[i], spaces[i]), N * K).us
        rows.append({**asdict(way), "us": round(us, 2)})
        print(f"{us:6.2f} us {way}", flush=True)
    found: dict[str, Any] = {"n": N, "k": K, "rows": ROWS, "library_us": round(library, 2), "ways": rows}
    found["timeline"] = timeline(Way(6, 2, 4, True), x, w, spaces)
    for i, launched in enumerate(found["timeline"]):
        print(f"launch {i}:", ", ".join(f"{p} {a:.2f} {b:.2f} {c:.2f}" for p, (a, b, c) in launched.items()), "us")
    save("skinny_timeline", found, given.out)


if __name__ == "__main__":
    main()
