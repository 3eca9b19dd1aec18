# SPDX-License-Identifier: MIT
"""How the constants were measured by which Hopper's GEMM chooses its tile (rocm_guide/kernels/gemm/hopper_configs.py).

Random products, drawn as benchmarks/kernels/gemm.py draws them, are timed on the tiles that the chooser thinks best,
each also with K in parts, and on the library. From these times the constants are fitted. Before a tile is timed it has
to be right on products of awkward sizes, with the same bits each time.

    python -m benchmarks.kernels.gemm_hopper --check               # only that
    python -m benchmarks.kernels.gemm_hopper --sweep 400           # into results/gemm_hopper_sweep.jsonl
    python -m benchmarks.kernels.gemm_hopper --named               # known shapes, into results/gemm_hopper_named.json
    python -m benchmarks.kernels.gemm_hopper --fit --seconds 60    # print constants for both files; no GPU needed
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from dataclasses import fields, replace
from pathlib import Path

from rocm_guide.kernels.gemm.hopper_configs import COSTS, candidates, expected_time, in_parts

UNITS = 132
SWEEP, NAMED = "gemm_hopper_sweep", "gemm_hopper_named"
#: M, N, K; 16-bit ones with B as it is and transposed.
NAMED_SHAPES = {16: ((1000, 3000, 5000), (16384, 4096, 4096), (4096, 11008, 4096)), 8: ((8192, 8192, 8192),)}
OTHERS = ("cuBLAS", "today", "today,splitK")


def name_of(tile, bits):
    """b: 16 bits, f: 8; p: programs of a multiprocessor; s: stream; k: parts of K."""
    name = f"{'f' if bits == 8 else 'b'}{tile.bm}x{tile.width}{f'p{tile.per}' if tile.per > 1 else ''}"
    return name + ("s" if tile.stream else f"k{tile.parts}" if tile.parts > 1 else "")


def copied_bytes(m, n, k, b_t, bits):
    """Bytes of operands whose rows do not start at multiples of 16 bytes."""
    size = bits // 8
    return sum(size * rows * columns for rows, columns in ((m, k), (n, k) if b_t else (k, n)) if columns * size % 16)


def all_ways(m, n, k, bits):
    return [w for t in candidates(bits) for w in (t, *in_parts(t, m, n, k, UNITS))]


def likely(m, n, k, b_t, bits, most, slack=2.0):
    """The tiles worth timing, by the chooser's constants: of each tile whole, and the best two numbers of parts."""
    copied, ways = copied_bytes(m, n, k, b_t, bits), []
    for t in candidates(bits):
        parts = [(expected_time(w, m, n, k, bits, UNITS, copied), w) for w in in_parts(t, m, n, k, UNITS)]
        ways += [(expected_time(t, m, n, k, bits, UNITS, copied), t), *sorted(parts, key=lambda x: x[0])[:2]]
    ways.sort(key=lambda x: x[0])
    return [t for us, t in ways if us <= slack * ways[0][0]][:most]


def matrices(m, n, k, dtype, a_t, b_t, copies=1):
    """``copies`` pairs (a, b); a transposed operand is stored as its transpose."""
    from benchmarks.timing import tensors

    a = tensors((k, m) if a_t else (m, k), dtype, copies)
    b = tensors((n, k) if b_t else (k, n), dtype, copies, seed=1)
    return (a.transpose(1, 2) if a_t else a), (b.transpose(1, 2) if b_t else b)


def check(bits, tile):
    """A few products of awkward sizes against fp32, each three times with the same bits.

    They have clipped edges, a K that is no multiple of the tile, a K of fewer steps than stages, several tiles for each
    program, rows at odd addresses.
    """
    import torch

    from rocm_guide.kernels.gemm.hopper_launch import gemm_hopper

    torch.backends.cuda.matmul.allow_tf32 = False
    # (M, N, K), A and B transposed, parts, epilogue.
    cases = [((300, 520, 200), 0, 1, 1, 0), ((3000, 3304, 1040), 0, 1, 1, 0), ((515, 1032, 1032), 0, 1, 1, 1)]
    if not tile.stream:
        cases += [((300, 520, 4112), 0, 1, 5, 0), ((130, 264, 1032), 0, 1, 3, 1)]
    if bits == 16:
        cases += [((3000, 3304, 1040), 0, 0, 1, 0), ((777, 1001, 333), 0, 0, 1, 0), ((777, 1001, 333), 0, 1, 1, 0)]
        cases += [((1000, 264, 776), 1, 1, 1, 0)] + [((301, 703, 2333), 0, 0, 4, 0)] * (not tile.stream)
    dtype, worst = torch.float8_e4m3fn if bits == 8 else torch.bfloat16, 0.0
    for (m, n, k), a_t, b_t, parts, ends in cases:
        n, k = (n // 16 * 16, k // 16 * 16) if bits == 8 else (n, k)
        (a,), (b,) = matrices(m, n, k, dtype, a_t, b_t)
        want, options = a.float() @ b.float(), {}
        if ends:
            options = {"bias": torch.randn(n, device="cuda"), "alpha": 0.5, "activation": "silu"}
            want = torch.nn.functional.silu(0.5 * want + options["bias"])
        outs = [gemm_hopper(a, b, tile=replace(tile, parts=parts), **options) for _ in range(3)]
        error = float((outs[0].float() - want).norm() / want.norm())
        if not error < 4e-3 or not all(torch.equal(outs[0], o) for o in outs[1:]):
            what = f"{name_of(tile, bits)}: {m}x{n}x{k} A{'^T' * a_t} B{'^T' * b_t} in {parts}"
            raise SystemExit(f"{what}: off by {error:.3g} of the norm, or not the same bits again")
        worst = max(worst, error)
    print(f"{name_of(tile, bits)}: right, {worst:.2g} of the norm", flush=True)


def ways_of(m, n, k, dtype, b_t, tiles):
    """name -> make(i), and how many copies of the operands there are."""
    import torch

    from benchmarks.timing import copies_past_cache
    from rocm_guide.kernels.gemm.hopper_launch import gemm_hopper

    bits = 8 * dtype.itemsize
    copies = copies_past_cache(dtype.itemsize * (m * k + k * n))
    a, b = matrices(m, n, k, dtype, 0, b_t, copies)
    one = torch.ones((), device="cuda")

    def library(i):
        if bits == 8:
            return lambda: torch._scaled_mm(a[i], b[i], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return lambda: a[i] @ b[i]

    ours = {name_of(t, bits): lambda i, t=t: lambda: gemm_hopper(a[i], b[i], tile=t) for t in tiles}
    return {"cuBLAS": library, **ours}, copies


def quick_time(make, copies, about, turns=3):
    """Microseconds of a call in a graph of as many as take 1.5 ms, 4 at least: the median of ``turns`` replays.

    Shorter than benchmarks/timing.py: a sweep has two thousand contenders.
    """
    import torch

    calls = max(4, min(max(copies, 48), int(1500 / about) + 1))
    thunks = [make(i % copies) for i in range(calls)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for t in thunks[:2]:
            t()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph, kept, samples = torch.cuda.CUDAGraph(), [], []
    with torch.cuda.graph(graph):
        for t in thunks:
            kept.append(t())
    graph.replay()
    for _ in range(turns):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / calls)
    graph.reset()
    return statistics.median(samples)


def measured(dtype, m, n, k, b_t, most, rounds=1):
    """The row of a product: the times of the library and the likely tiles, who take turns."""
    bits = 8 * dtype.itemsize
    tiles = likely(m, n, k, b_t, bits, most)
    ways, copies = ways_of(m, n, k, dtype, b_t, tiles)
    about = expected_time(tiles[0], m, n, k, bits, UNITS, copied_bytes(m, n, k, b_t, bits))
    us: dict[str, list[float]] = {w: [] for w in ways}
    for _ in range(rounds):
        for w, make in ways.items():
            us[w].append(quick_time(make, copies, about))
    found = {w: round(statistics.median(t), 2) for w, t in us.items()}
    return {"t": str(dtype).removeprefix("torch."), "mnk": [m, n, k], "bt": int(b_t), "us": found}


def measure_named():
    import torch

    rows = []
    for bits, shapes in NAMED_SHAPES.items():
        dtype = torch.bfloat16 if bits == 16 else torch.float8_e4m3fn
        for m, n, k in shapes:
            for b_t in (0, 1) if bits == 16 else (1,):
                rows.append(measured(dtype, m, n, k, b_t, 7, rounds=3))
                print(rows[-1], flush=True)
    return {"products": rows}


def sweep(count, seconds, file):
    """Random products, bf16 four of five, else fp8; one line of JSON for each as soon as it is measured."""
    import torch

    from benchmarks.kernels.gemm import random_shape
    from benchmarks.timing import stamp

    rng, until = random.Random(5), time.monotonic() + seconds
    with file.open("w") as f:
        f.write(json.dumps(stamp()) + "\n")
        for i in range(count):
            dtype = torch.float8_e4m3fn if i % 5 == 4 else torch.bfloat16
            m, n, k = random_shape(rng, 16 if dtype.itemsize == 1 else 1)
            if time.monotonic() > until:
                print(f"{i} products in {seconds} s")
                break
            row = measured(dtype, m, n, k, dtype.itemsize == 1 or i % 2, 9)
            f.write(json.dumps(row) + "\n")
            f.flush()


class Model:
    """The chooser with constants of its own, against measured times."""

    def __init__(self, rows):
        self.costs, self.shapes, self.tiles = COSTS, [], {}
        for row in rows:
            (m, n, k), bits = row["mnk"], 8 if "float8" in row["t"] else 16
            ways = {name_of(t, bits): t for t in all_ways(m, n, k, bits)}
            ours = {w: t for w, t in row["us"].items() if w not in OTHERS}
            # A way that was not timed is one that the chooser of the day thought slow; some of them bound the fit.
            others = {w: t for w, t in ways.items() if w not in ours and t.parts in (1, 2, 3, 4, 6, 8, 11, 16)}
            product = m, n, k, bits, copied_bytes(m, n, k, row["bt"], bits)
            self.shapes.append((product, ours, {w: ways[w] for w in ours}, others, row["us"]["cuBLAS"]))
            self.tiles.update({self.base(w): replace(t, parts=1, stream=False) for w, t in ways.items()})

    @staticmethod
    def base(name):
        return name.split("k")[0].removesuffix("s")

    def expected(self, product, ways):
        (m, n, k, bits, copied), found = product, {}
        for w, way in ways.items():
            t = self.tiles[self.base(w)]
            found[w] = expected_time(replace(way, rate=t.rate, step=t.step), m, n, k, bits, UNITS, copied, self.costs)
        return found

    def loss(self, misfit):
        """Time lost by the choice (and more for the worst ones), a share of how far the model is off, and a penalty
        where it prefers what was not timed."""
        total = 0.0
        for product, ours, ways, others, base in self.shapes:
            expected, best = self.expected(product, ways), min(ours.values())
            least = min(expected.values())
            chosen = ours[min(expected, key=expected.get)]
            total += math.log(chosen / best) + 3 * max(0.0, math.log(0.92 * chosen / max(base, best)))
            near = [(abs(math.log(expected[w] / t)), (best / t) ** 2) for w, t in ours.items()]
            total += misfit * sum(e * x for e, x in near) / sum(x for _, x in near)
            if others:
                total += 2 * max(0.0, math.log(1.02 * least / min(self.expected(product, others).values())))
        return total / len(self.shapes)

    def improve(self, seconds, misfit):
        """Change one constant at a time at random, and keep what lessens the loss."""
        rng, until, scale = random.Random(0), time.monotonic() + seconds, 0.3
        names = [(n, f) for n in self.tiles for f in ("rate", "step")] + [("", f.name) for f in fields(COSTS)]
        best = self.loss(misfit)
        while time.monotonic() < until:
            name, field = rng.choice(names)
            before = self.tiles, self.costs
            changed = self.tiles[name] if name else self.costs
            changed = replace(changed, **{field: getattr(changed, field) * math.exp(rng.gauss(0, scale))})
            if name:
                self.tiles = {**self.tiles, name: changed}
            else:
                self.costs = changed
            now = self.loss(misfit)
            if now < best:
                best = now
            else:
                self.tiles, self.costs = before
            scale = max(0.03, scale * 0.999)

    def report(self, title):
        lost, won, strange = [], [], 0
        for product, ours, ways, others, base in self.shapes:
            expected, best = self.expected(product, ways), min(ours, key=ours.__getitem__)
            choice = min(expected, key=expected.get)
            strange += min(self.expected(product, others).values(), default=math.inf) < expected[choice]
            lost.append(ours[best] / ours[choice])
            won.append((base / ours[choice], base / ours[best], product[:4], choice, best, ours[choice]))
        won.sort()
        print(
            f"{title}: {len(won)} products; choice / best contender: mean {statistics.mean(lost):.4f} worst "
            f"{min(lost):.3f}; against cuBLAS: median {statistics.median(w[0] for w in won):.3f} worst {won[0][0]:.3f} "
            f"(best contender {statistics.median(w[1] for w in won):.3f}, {min(w[1] for w in won):.3f}); "
            f"chosen without having been timed: {strange}"
        )
        return won


def stored(folder):
    """The rows of both files."""
    lines = [json.loads(line) for line in (folder / f"{SWEEP}.jsonl").read_text().splitlines()]
    return lines[1:] + json.loads((folder / f"{NAMED}.json").read_text())["products"]


def fit(rows, seconds):
    model = Model(rows)
    model.report("before")
    for misfit in (2.0, 0.3):  # first mostly for the times, then for the choice
        model.improve(seconds / 2, misfit)
    for w in model.report("after")[:15]:
        print("  {:.3f} (best {:.3f}) {} choice {} best {}: {:.1f} us".format(*w))
    print(", ".join(f"{f.name}={getattr(model.costs, f.name):.3g}" for f in fields(COSTS)))
    for name, t in sorted(model.tiles.items()):
        print(f"{name}: rate={t.rate:.0f}, step={t.step:.3f}")


def main():
    from benchmarks.timing import RESULTS, save

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--sweep", type=int, metavar="PRODUCTS")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--seconds", type=float, default=600, help="at most, of the sweep; of the fit")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.check or options.named or options.sweep:
        for bits in NAMED_SHAPES:
            for tile in candidates(bits):
                check(bits, tile)
    if options.named:
        save(NAMED, measure_named(), options.out)
    if options.sweep:
        sweep(options.sweep, options.seconds, options.out / f"{SWEEP}.jsonl")
    if options.fit:
        fit(stored(options.out), options.seconds)


if __name__ == "__main__":
    main()
