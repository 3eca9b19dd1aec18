# SPDX-License-Identifier: MIT
"""The skinny GEMM with its weight dealt out evenly: as many rows to each workgroup as fill this GPU exactly.

The course's kernel gives 64 rows of the weight to a workgroup. At 2304 x 16384 that makes 36 tiles, and only a split of
K in 7 uneven parts fills 132 multiprocessors; the parts are then added by whoever comes last, and meanwhile the
memory idles. Here a workgroup takes ``step`` rows, a number that need not be a power of two (the tile is padded, and
what is padded is not loaded), such that few parts or none are needed: 18 rows make 128 workgroups without a split, 35
rows and 2 parts make 132. The price: x is read by every workgroup, more often the fewer rows it has. ``groups`` cuts K
inside the workgroup, a stretch for each warp or two.

What wins here belongs into rocm_guide/kernels/gemm_skinny.py.

    python benchmarks/skinny_sweep.py [--n 2304 --k 16384] [--rows 1,8,16]
    TRITON_INTERPRET=1 python benchmarks/skinny_sweep.py --check          # only check, without a GPU
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
import triton
import triton.language as tl

from rocm_guide.kernels.gemm_skinny import SkinnyWorkspace, gemm_skinny, reference_skinny
from rocm_guide.kernels.gemm_tiles import ask_and_wait, settle
from rocm_guide.kernels.launch import architecture, next_power_of_2, unit_count

FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn


@dataclass(frozen=True)
class Deal:
    """One launch: rows per workgroup, K per step and its groups, parts of K, warps, stages, overlapped launches."""

    step: int
    bk: int
    groups: int
    split: int
    warps: int
    stages: int
    overlap: bool = False
    ahead: int = 0
    early: int = 1

    @property
    def bn(self) -> int:
        """Rows of the padded tile; the matrix unit takes 16 and more."""
        return max(16, next_power_of_2(self.step))


@triton.jit(do_not_specialize=["M"])
def dealt_kernel(
    x_ptr, w_ptr, out_ptr, part_ptr, count_ptr, M, N, K, stride_x, stride_w, scale,
    STEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUPS: tl.constexpr,
    SPLIT: tl.constexpr, EXACT: tl.constexpr, PDL: tl.constexpr, AHEAD: tl.constexpr, EARLY: tl.constexpr,
    AMD: tl.constexpr,
):  # fmt: skip
    """Columns from ``program_id(0) * STEP`` on, over the ``program_id(1)``-th part of K, which BK divides."""
    tile, piece = tl.program_id(0), tl.program_id(1)
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    in_m, in_n = rm < M, (rn < STEP) & (tile * STEP + rn < N)
    first, last = K // BK * piece // SPLIT, K // BK * (piece + 1) // SPLIT
    w_ptr += (tile * STEP).to(tl.int64) * stride_w + first * BK
    x_ptr += first * BK
    if PDL:
        ask_and_wait(w_ptr + tl.minimum(rn, tl.minimum(STEP, N - tile * STEP) - 1) * stride_w, BK, BN, AHEAD)
    if GROUPS == 1:
        k = tl.arange(0, BK)
        at_w, at_x = rn[:, None] * stride_w + k[None, :], rm[None, :] * stride_x + k[:, None]
        use_w, use_x = in_n[:, None], in_m[None, :]
        acc = tl.zeros((BN, BM), dtype=tl.float32)
    else:
        k = tl.arange(0, GROUPS)[:, None] * (BK // GROUPS) + tl.arange(0, BK // GROUPS)[None, :]
        at_w, at_x = rn[None, :, None] * stride_w + k[:, None, :], rm[None, None, :] * stride_x + k[:, :, None]
        use_w, use_x = in_n[None, :, None], in_m[None, None, :]
        acc = tl.zeros((GROUPS, BN, BM), dtype=tl.float32)
    for step in range(first, last):
        w = tl.load(w_ptr + at_w, mask=use_w, other=0.0)
        x = tl.load(x_ptr + at_x, mask=use_x, other=0.0)
        acc = tl.dot(w, x, acc, max_num_imprecise_acc=EXACT)
        w_ptr += BK
        x_ptr += BK
        if PDL:
            tl.inline_asm_elementwise(
                "{ .reg .pred p; setp.eq.s32 p, $1, 0; @p griddepcontrol.launch_dependents; mov.u32 $0, 0; }",
                "=r,r", [tl.maximum(last - step - EARLY, 0)], dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
    if GROUPS > 1:
        acc = tl.sum(acc, 0)
    arrived = 0
    inner = rn[:, None] * BM + rm[None, :]
    if SPLIT > 1:
        part_ptr += tile * (SPLIT * BN * BM)
        tl.store(part_ptr + piece * (BN * BM) + inner, acc)
        settle(AMD)
        arrived = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT - 1:
            acc = tl.zeros((BN, BM), dtype=tl.float32)
            for s in tl.static_range(SPLIT):
                acc += tl.load(part_ptr + s * (BN * BM) + inner)
            tl.store(count_ptr + tile, 0)
    if SPLIT == 1 or arrived == SPLIT - 1:
        out_ptr += tile * STEP
        inside = in_n[:, None] & in_m[None, :]
        tl.store(out_ptr + rm[None, :] * N + rn[:, None], (acc * scale).to(out_ptr.dtype.element_ty), mask=inside)


def dealt(deal: Deal, x, weight, scale: float, space: SkinnyWorkspace, out_dtype=torch.bfloat16):
    """scale * x @ weight.T."""
    (m, k), n, arch = x.shape, weight.shape[0], architecture(x)
    bm, tiles = (16 if m <= 16 else 32), triton.cdiv(n, deal.step)
    assert k % deal.bk == 0 and space.partials.numel() >= deal.split * tiles * deal.bn * bm
    out = torch.empty(m, n, dtype=out_dtype, device=x.device)
    # wgmma (64 rows and more) adds fp8 products with few bits; the smaller tiles go through mma, which does not.
    exact = 128 if arch == "sm_90" and x.element_size() == 1 and deal.bn >= 64 else 0
    options = {"launch_pdl": True} if deal.overlap else {}
    dealt_kernel[(tiles, deal.split)](
        x, weight, out, space.partials, space.counters, m, n, k, x.stride(0), weight.stride(0), scale,
        STEP=deal.step, BM=bm, BN=deal.bn, BK=deal.bk, GROUPS=deal.groups, SPLIT=deal.split, EXACT=exact,
        PDL=deal.overlap, AHEAD=deal.ahead, EARLY=deal.early, AMD=arch.startswith("gfx"),
        num_warps=deal.warps, num_stages=deal.stages, **options,
    )  # fmt: skip
    return out


def deals(n: int, k: int, units: int) -> list[Deal]:
    """What is worth trying: 1 or 2 workgroups per unit, 1 to 4 parts, tiles whose stages fit into shared memory."""
    found = {}
    for each, split in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4)):
        step = max(4, -(-n * split // (units * each)))
        for bk, groups, warps, stages in itertools.product((256, 512, 1024), (1, 4, 8), (4, 8), (3, 4, 6, 8)):
            d = Deal(step, bk, groups, split, warps, stages)
            room = stages * bk * (d.bn + 16) * each
            if groups > warps or bk // groups < 64 or (groups > 1 and d.bn >= 64) or room > 220_000 or room < 60_000:
                continue
            if d.bn <= 256 and k // bk // split >= stages:
                found[step, bk, groups, split, warps, stages] = d
    return list(found.values())


def check(device: str) -> None:
    """Small products against float64, with every shape of launch that the sweep uses (without overlapped launches)."""
    space, g, count = SkinnyWorkspace.on(device, 1 << 20, 1 << 10), torch.Generator().manual_seed(0), 0
    kinds = (torch.float16, FP8 if device == "cuda" else torch.float8_e4m3fn)
    for dtype, (m, n, k) in itertools.product(kinds, ((1, 40, 512), (8, 37, 1024), (16, 70, 512))):
        x, w = (torch.randn(s, generator=g).to(dtype).to(device) for s in ((m, k), (n, k)))
        wanted = reference_skinny(x, w, 0.5)
        for step, groups, split in itertools.product((9, 18, 35), (1, 4), (1, 2)):
            if groups > 1 and step > 32:
                continue
            deal = Deal(step, 256, groups, split, 4, 3)
            for _ in range(2):  # the second finds the counters as the first left them
                got = dealt(deal, x, w, 0.5, space, torch.float32)
            off = ((got.double() - wanted).abs().max() / wanted.abs().max()).item()
            assert off < (2e-3 if device == "cuda" else 1e-5), f"{deal} {m}x{n}x{k}: off by {off:.2g}"
            assert not space.counters.any(), "a counter was left raised"
            count += 1
    print(f"{count} products right")


def compile_one(job) -> str:
    """Launch one deal once in a process of its own, which fills the compiler's cache for the one that measures."""
    n, k, deal = job
    try:
        x, w = torch.ones(16, k, device="cuda").to(FP8), torch.zeros(n, k, dtype=torch.uint8, device="cuda").view(FP8)
        dealt(deal, x, w, 0.125, SkinnyWorkspace.on("cuda"))
        torch.cuda.synchronize()
    except Exception as e:  # noqa: BLE001 - a sweep goes on
        return f"{deal}: {type(e).__name__} {str(e)[:100]}"
    return ""


def measure(n: int, k: int, rows: list[int]) -> None:
    """Time all deals at one weight: first apart, then the best of them with overlapped launches; the best last."""
    from kernel_bench import copies_past_cache, tensors, time_graph

    jobs = [(n, k, d) for d in deals(n, k, unit_count(torch.empty(1, device="cuda")))]
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for text in filter(None, pool.map(compile_one, jobs, chunksize=4)):
            print(text, flush=True)
    print(f"{len(jobs)} deals compiled", flush=True)
    copies, space = copies_past_cache(n * k), SkinnyWorkspace.on("cuda")
    w = tensors((n, k), FP8, copies, seed=1)
    sx, sw = torch.tensor(0.5, device="cuda"), torch.tensor(0.25, device="cuda")
    for m in rows:
        x = tensors((m, k), FP8, copies)
        library = time_graph(lambda i, x=x: lambda: torch._scaled_mm(
            x[i], w[i].T, scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16), n * k)  # fmt: skip
        ours = time_graph(lambda i, x=x: lambda: gemm_skinny(x[i], w[i], 0.5, 0.25, workspace=space), n * k)
        print(f"\n{m} x {n} x {k}: torch._scaled_mm {library.us:.2f} us, the course's kernel {ours.us:.2f}", flush=True)
        times = []

        def run(deal, x=x, times=times):
            try:
                t = time_graph(lambda i: lambda: dealt(deal, x[i], w[i], 0.125, space), n * k, replays=9)
                got, want = dealt(deal, x[0], w[0], 0.125, space).double(), 0.125 * x[0].double() @ w[0].double().T
                assert ((got - want).abs().max() / want.abs().max()).item() < 0.01, "wrong"
                times.append((t.us, deal))
            except Exception as e:  # noqa: BLE001 - a sweep goes on
                space.counters.zero_()
                print(f"{deal}: {type(e).__name__} {str(e)[:80]}", flush=True)

        for *_, deal in jobs:
            run(deal)
        apart = sorted(times, key=lambda t: t[0])[:4]
        for (_, deal), ahead, early in itertools.product(apart, (2, 4), (2, 8)):
            if k // deal.bk // deal.split >= ahead:
                run(replace(deal, overlap=True, ahead=ahead, early=early))
        for us, deal in sorted(times, key=lambda t: t[0])[:6]:
            print(f"  {us:6.2f} us, {library.us / us:.3f} of _scaled_mm's speed, {ours.us / us:.3f} of ours: {deal}")
        us, deal = apart[0]
        print(f"  launched apart: {us:6.2f} us, {library.us / us:.3f}: {deal}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2304)
    parser.add_argument("--k", type=int, default=16384)
    parser.add_argument("--rows", default="16,8,1")
    parser.add_argument("--check", action="store_true", help="check small products and end")
    options = parser.parse_args()
    check("cuda" if torch.cuda.is_available() else "cpu")
    if not options.check:
        measure(options.n, options.k, [int(r) for r in options.rows.split(",")])


if __name__ == "__main__":
    main()
