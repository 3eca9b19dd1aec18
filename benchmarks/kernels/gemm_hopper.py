# SPDX-License-Identifier: MIT
"""How the constants were measured by which Hopper's GEMM chooses its tile (rocm_guide/kernels/gemm/hopper/times.py).

Random products, drawn as benchmarks/kernels/gemm.py draws them, are timed on the tiles that the chooser thinks best,
each also with K in parts, and on the library. From these times the constants are fitted. Before a tile is timed it has
to be right on products of awkward sizes, with the same bits each time.

    python -m benchmarks.kernels.gemm_hopper --check               # only that
    python -m benchmarks.kernels.gemm_hopper --sweep 300           # into results/gemm_hopper_sweep.jsonl
    python -m benchmarks.kernels.gemm_hopper --sweep 400 --seed 1 --add  # others, after those in the file
    python -m benchmarks.kernels.gemm_hopper --named               # known shapes, into results/gemm_hopper_named.json
    python -m benchmarks.kernels.gemm_hopper --fit --seconds 900   # print constants for both files; no GPU needed
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rocm_guide.kernels.gemm.hopper.configs import candidates, in_parts, likely_tiles
from rocm_guide.kernels.gemm.hopper.tiles import HOPPER_TILES
from rocm_guide.kernels.gemm.hopper.times import (
    ACROSS,
    COSTS,
    IN_LINES,
    IN_SECTORS,
    ODD,
    Operands,
    asked_for,
    at_once,
    expected_time,
    is_scattered,
    tiles_of,
    together,
)
from rocm_guide.kernels.gluon import CLUSTERS

UNITS = 132
SWEEP, NAMED = "gemm_hopper_sweep", "gemm_hopper_named"
#: M, N, K, and whether B is transposed: shapes that were asked for, and some that were slow.
NAMED_SHAPES = {
    16: (
        ((1000, 3000, 5000), (False, True)),
        ((2688, 5464, 4968), (True,)),
        ((10447, 472, 1752), (True,)),
        ((14080, 320, 13312), (True,)),
        ((13880, 9600, 936), (True,)),
        ((1912, 5568, 728), (True,)),
        ((3328, 504, 4736), (False,)),
        ((3800, 384, 9472), (True,)),
        ((5504, 1096, 9472), (False,)),
        ((16384, 4096, 4096), (False, True)),
        ((4096, 11008, 4096), (False, True)),
    ),
    8: (((8192, 8192, 8192), (True,)), ((1858, 256, 8240), (True,)), ((3712, 1440, 3744), (True,))),
}
#: gemm() leaves smaller products to the general kernel (rocm_guide/kernels/gemm/tiled.py).
LEAST_WORK = 4e8
#: TFLOPS of an H100 by bits (dense, NVIDIA's data sheet): no rate is higher.
PEAK = {16: 989, 8: 1979}
#: What is fitted of a tile.
FITTED = ("rate", "step")
#: By programs of a cluster, and how many are beside each other.
CLUSTER_NAMES = {(1, 1): "", (2, 1): "c", (2, 2): "w", (4, 1): "q", (4, 2): "d", (8, 2): "e", (8, 4): "h"}
#: Ways that a sweep times of each product.
MOST = 16


def name_of(tile, bits):
    """b: 16 bits, f: 8; o: 128 rows of one warpgroup; p: programs of a multiprocessor; c, q: in clusters of two, four;
    w, d, e, h: of two, four and eight in two columns, of eight in four; t: flipped; s: stream; k: parts of K; +: copied
    """
    name = f"{'f' if bits == 8 else 'b'}{tile.bm}x{tile.bn}{'o' * tile.alone}{f'p{tile.per}' if tile.per > 1 else ''}"
    name += CLUSTER_NAMES[tile.ctas, tile.across] + "t" * tile.flip
    name += "s" if tile.stream else f"k{tile.parts}" if tile.parts > 1 else ""
    return name + (f"+{tile.copied}" if tile.copied else "")


def operands_of(m, n, k, b_t, bits):
    """How contiguous operands lie in memory; with B transposed, its rows are along K."""

    def way(columns):
        pitch = columns * bits // 8
        return ODD if pitch % 16 else ACROSS if pitch % 32 else IN_SECTORS if pitch % 128 else IN_LINES

    return Operands(way(k), way(k if b_t else n), ODD if n % 8 else IN_LINES, True, bool(b_t))


def all_ways(m, n, k, bits, operands):
    return [w for t in candidates(bits, operands, True) for w in (t, *in_parts(t, m, n, k, UNITS))]


def likely(m, n, k, b_t, bits, most, slack=2.0):
    return likely_tiles(m, n, k, bits, UNITS, operands_of(m, n, k, b_t, bits), most, slack, CLUSTERS)


def torch_type(bits):
    import torch

    return torch.float8_e4m3fn if bits == 8 else torch.bfloat16


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

    from rocm_guide.kernels.gemm.hopper.launch import gemm_hopper

    torch.backends.cuda.matmul.allow_tf32 = False
    # (M, N, K), A and B transposed, parts, epilogue.
    cases = [((300, 520, 200), 0, 1, 1, 0), ((3000, 3304, 1040), 0, 1, 1, 0), ((515, 1032, 1032), 0, 1, 1, 1)]
    if not tile.stream:
        cases += [((300, 520, 4112), 0, 1, 5, 0), ((130, 264, 1032), 0, 1, 3, 1)]
    if bits == 16:
        cases += [((3000, 3304, 1040), 0, 0, 1, 0), ((777, 1001, 333), 0, 0, 1, 0), ((777, 1001, 333), 0, 1, 1, 0)]
        cases += [((1000, 264, 776), 1, 1, 1, 0)] + [((301, 703, 2333), 0, 0, 4, 0)] * (not tile.stream)
    dtype, worst = torch_type(bits), 0.0
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


def check_chain():
    """Products of products, each of which starts while the one before it is still finishing: a kernel that reads too
    early reads what is not there yet. Small ones (the general kernel), larger ones, some with copies, and one too long
    to overlap; in a graph.
    """
    import torch

    from rocm_guide.kernels.gemm.tiled import gemm

    for size in (192, 253, 640, 1000, 1001, 1400, 2048):
        x, y = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) / size**0.5 for _ in range(2))
        found = [x]
        for _ in range(3):  # compile, and then know the kind of call
            gemm(x, y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(20):
                found.append(gemm(found[-1], y) + x)
                found.append(gemm(found[-1], y))
        for _ in range(3):
            for c in found[1:]:
                c.fill_(math.nan)
            graph.replay()
            torch.cuda.synchronize()
            for i, (a, c) in enumerate(pairwise(found)):
                want = a.float() @ y.float() + (0 if i % 2 else x.float())
                if not (error := float((c.float() - want).norm() / want.norm())) < 1e-2:
                    raise SystemExit(f"{size} cubed, product {i} of a chain: off by {error:.3g} of the norm")
    print("chains of products: right", flush=True)


def every_way():
    """(bits, tile): all tiles, one of them with copies."""
    found = []
    for bits in NAMED_SHAPES:
        first = HOPPER_TILES[bits][0]
        tiles = candidates(bits, Operands(ACROSS, ACROSS), CLUSTERS)
        found += [(bits, t) for t in tiles if not t.copied or replace(t, copied="") == first]
    return found


def in_processes(do, arguments, processes=16):
    """``do`` each of ``arguments``, several at a time; the first error ends all."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(do, *zip(*arguments, strict=True)):
            pass


def compile_kind(kind):
    """Launch a tile once, so that Triton has it ready for another process."""
    from rocm_guide.kernels.gemm.hopper.launch import gemm_hopper

    dtype, tile, b_t, odd, long = kind
    m, n, k = 300, 521 if odd else 528, 528
    while long and tile.overlaps(2.0 * m * n * k):
        k *= 2
    (a,), (b,) = matrices(m, n, k, dtype, 0, b_t)
    gemm_hopper(a, b, tile=tile)


def compile_for(products, most):
    """Compile the tiles that are likely for (m, n, k, whether B is transposed, type), several processes at a time."""
    kinds: dict[Any, None] = {}
    for m, n, k, b_t, dtype in products:
        for t in likely(m, n, k, b_t, 8 * dtype.itemsize, most):
            long = not t.stream and not t.overlaps(2.0 * m * n * k)
            few = replace(t, parts=min(t.parts, 2), copied="")
            kinds[dtype, few, bool(b_t), bool(n % 8) and t.parts == 1, long] = None
    in_processes(compile_kind, [(kind,) for kind in kinds])


def ways_of(m, n, k, dtype, b_t, tiles):
    """name -> make(i), and how many copies of the operands there are."""
    import torch

    from benchmarks.timing import copies_past_cache
    from rocm_guide.kernels.gemm.hopper.launch import gemm_hopper

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
    about = expected_time(tiles[0], m, n, k, bits, UNITS, operands_of(m, n, k, b_t, bits))
    us: dict[str, list[float]] = {w: [] for w in ways}
    for _ in range(rounds):
        for w, make in ways.items():
            us[w].append(quick_time(make, copies, about))
    found = {w: round(statistics.median(t), 2) for w, t in us.items()}
    return {"t": str(dtype).removeprefix("torch."), "mnk": [m, n, k], "bt": int(b_t), "us": found}


def measure_named():
    rows = []
    compile_for(
        [(*s, b_t, torch_type(bits)) for bits, shapes in NAMED_SHAPES.items() for s, ways in shapes for b_t in ways], 8
    )
    for bits, shapes in NAMED_SHAPES.items():
        dtype = torch_type(bits)
        for (m, n, k), ways in shapes:
            for b_t in ways:
                rows.append(measured(dtype, m, n, k, b_t, 8, rounds=2))
                print(rows[-1], flush=True)
    return {"products": rows}


def sweep(count, seconds, seed, file, add):
    """Random products that are large enough for this kernel, bf16 four of five, else fp8; one line of JSON for each as
    soon as it is measured, in a new file or (``add``) after what is in it."""
    from benchmarks.kernels.gemm import random_shape
    from benchmarks.timing import stamp

    rng, products = random.Random(6 + seed), []
    for i in range(count):
        bits, (m, n, k) = 8 if i % 5 == 4 else 16, (1, 1, 1)
        while 2 * m * n * k < LEAST_WORK:
            m, n, k = random_shape(rng, 16 if bits == 8 else 1)
        products.append((m, n, k, bits == 8 or i % 2, bits))
    compile_for([(*p[:4], torch_type(p[4])) for p in products], MOST)
    until = time.monotonic() + seconds
    with file.open("a" if add else "w") as f:
        if not add:
            f.write(json.dumps(stamp()) + "\n")
        for i, (m, n, k, b_t, bits) in enumerate(products):
            if time.monotonic() > until:
                print(f"{i} products in {seconds} s")
                break
            f.write(json.dumps(measured(torch_type(bits), m, n, k, b_t, MOST)) + "\n")
            f.flush()


def base_of(name):
    """The tile in a name, without the ways to share out K and to read A and B."""
    return re.sub(r"t?(s|k\d+)?(\+\w+)?$", "", name)


class Model:
    """The chooser with constants of its own, against measured times: one entry for each product and way.

    A way that was not timed is one that the chooser of the day thought slow; some of them bound the fit.
    """

    def __init__(self, rows):
        self.costs, self.tiles = COSTS, {}
        self.entries: list[Any] = []
        self.names: list[str] = []
        self.starts: list[int] = []
        us = []
        for row in rows:
            (m, n, k), bits = row["mnk"], 8 if "float8" in row["t"] else 16
            product = m, n, k, bits, operands_of(m, n, k, row["bt"], bits)
            ways = {name_of(t, bits): t for t in all_ways(*product)}
            timed = {w: t for w, t in row["us"].items() if w in ways}
            self.starts.append(len(self.entries))
            for w, t in ways.items():
                if w in timed or t.parts in (1, 2, 3, 4, 6, 8, 11, 16):
                    self.entries.append((product, t))
                    self.names.append(w)
                    us.append(timed.get(w, math.nan))
            self.tiles.update({base_of(name_of(t, bits)): t for t in HOPPER_TILES[bits]})
        bases = [base_of(w) for w in self.names]
        self.us, self.timed = np.array(us), ~np.isnan(us)
        self.library = np.array([row["us"]["cuBLAS"] for row in rows])
        self.lengths = np.diff([*self.starts, len(us)])
        self.best = np.minimum.reduceat(np.where(self.timed, self.us, np.inf), self.starts)
        # How much an entry counts: the slower a way is, the less it matters by how much.
        self.weight = np.where(self.timed, (np.repeat(self.best, self.lengths) / self.us) ** 2, 0)
        self.weight /= np.repeat(np.add.reduceat(self.weight, self.starts), self.lengths)
        self.names_of_tiles = sorted(self.tiles)
        self.rates, self.steps = (np.array([getattr(self.tiles[t], f) for t in self.names_of_tiles]) for f in FITTED)
        self.first = self.rates.copy(), self.steps.copy()
        self.most = np.array([PEAK[8 if name.startswith("f") else 16] for name in self.names_of_tiles])
        entries = zip(self.entries, bases, strict=True)
        facts = [self.facts(product, t, base) for (product, t), base in entries]
        self.columns = {name: np.array([f[name] for f in facts]) for name in facts[0]}
        self.rows_of = [np.flatnonzero(self.columns["tile"] == i) for i in range(len(self.names_of_tiles))]
        self.expected = self.times()
        some = range(0, len(facts), 1 + len(facts) // 1000)
        alike = [expected_time(t, m, n, k, bits, UNITS, o) for (m, n, k, bits, o), t in (self.entries[i] for i in some)]
        np.testing.assert_allclose(self.expected[:: some.step], alike)

    def leave_out(self, slower=1.2):
        """Leave out what was not timed and is expected to take ``slower`` times as long as the best: only what is near
        it can be chosen in its place, and the fit is then some ten times as fast."""
        least = np.repeat(np.minimum.reduceat(self.expected, self.starts), self.lengths)
        kept = np.flatnonzero(self.timed | (self.expected < slower * least))
        of = np.repeat(np.arange(len(self.starts)), self.lengths)[kept]
        self.lengths = np.bincount(of, minlength=len(self.starts))
        self.starts = np.cumsum([0, *self.lengths[:-1]]).tolist()
        self.entries, self.names = ([values[i] for i in kept] for values in (self.entries, self.names))
        self.us, self.timed, self.weight = self.us[kept], self.timed[kept], self.weight[kept]
        self.columns = {name: values[kept] for name, values in self.columns.items()}
        self.rows_of = [np.flatnonzero(self.columns["tile"] == i) for i in range(len(self.names_of_tiles))]
        self.expected = self.times()

    def facts(self, case, t, base):
        """What the expected time of a product by a tile depends on, the constants aside."""
        m, n, k, bits, operands = case
        ways = operands.as_read(t.copied)
        along = operands.a_along if t.flip else operands.b_along
        pieces, top = asked_for(t, ways[not t.flip], along)
        return {
            "tile": self.names_of_tiles.index(base), "flip": t.flip, "stream": t.stream, "parts": t.parts, "per": t.per,
            "ctas": t.ctas, "sets": at_once(t, UNITS) // t.per, "tiles": tiles_of(t, m, n), "steps": -(-k // t.bk),
            "rows": t.parties * t.rows, "width": t.width, "across": t.across,
            "bk": t.bk, "to_odd": operands.c == ODD and t.parts == 1,
            "narrow": not along and t.blocks[-1] < 64, "left": ways[t.flip], "top": top, "pieces": pieces,
            "kept": bits // 8 * k * (m if t.flip else n), "read": bits // 8 * k * (n if t.flip else m),
            "work": 2e-6 * tiles_of(t, m, n) * t.bm * t.bn * -(-k // t.bk) * t.bk * bits / 16,
            "scattered": is_scattered(t, m, n), "area": m * n, "size": bits // 8,
            "copied": operands.copied(t.copied, m, n, k),
        }  # fmt: skip

    def times(self, rows=slice(None)):
        """:func:`expected_time` of the entries ``rows``, of all of them at once."""
        e = {name: values[rows] for name, values in self.columns.items()}
        c, rate, step = self.costs, self.rates[e["tile"]], self.steps[e["tile"]]
        store = np.where(
            e["flip"],
            np.where(e["to_odd"], c.odd_flipped, c.flipped),
            np.where(e["to_odd"], c.odd_upright, c.upright),
        )
        store = c.store + 1e-4 * e["rows"] * e["width"] * store
        row = np.array([c.line, c.sector, c.across])
        across = e["across"]
        fetched = e["rows"] * row[e["left"]] / across + e["pieces"] * row[e["top"]] * across / e["ctas"]
        multiplied = 2e-6 * e["rows"] * e["width"] * e["bk"] * UNITS / rate * np.where(e["narrow"], c.crossed, 1)

        def step_of(clusters):
            return together(multiplied, fetched * (c.alone + (1 - c.alone) * clusters * e["ctas"] / UNITS))

        passed = c.stream * np.maximum(1, UNITS / e["tiles"]) + store * -(-e["tiles"] // UNITS)
        sets, each = e["sets"], -(-e["steps"] // e["parts"])
        work = step_of(sets)
        whole = np.maximum(work, step)
        stream = c.streamed * (passed + whole * np.maximum(e["tiles"] * e["steps"] / UNITS, 4))
        rounds, rest = np.divmod(e["tiles"] * e["parts"], sets * e["per"])
        last = -(-rest // sets)
        time = rounds * (e["per"] * store + each * np.maximum(e["per"] * work, step))
        time += np.where(rest > 0, last * store + each * np.maximum(last * step_of(np.minimum(rest, sets)), step), 0)
        read = e["kept"] + e["read"] * np.where(e["scattered"], c.scattered, 1)
        least = read * 1e-3 / c.read + 2e-3 * e["area"] / c.written
        time = together(np.where(e["stream"], stream, time), least)
        time = c.start + together(time, e["work"] / c.sustained)
        time += np.where(e["ctas"] > 1, c.cluster, 0) + np.where(e["stream"], c.late, 0)
        time += np.where(e["parts"] > 1, c.add + 4e-3 * e["parts"] * e["area"] / c.written, 0)
        return time + np.where(e["copied"] > 0, c.copy + 2e-3 * e["size"] * e["copied"] / c.copied, 0)

    def choice(self, expected):
        """Of each product: the least expected time of the ways that were timed, of the others, and which of the timed
        ways it is."""
        least = np.minimum.reduceat(np.where(self.timed, expected, np.inf), self.starts)
        others = np.minimum.reduceat(np.where(self.timed, np.inf, expected), self.starts)
        chosen = self.timed & (expected == np.repeat(least, self.lengths))
        first = np.maximum.reduceat(np.where(chosen, np.arange(len(expected), 0, -1), 0), self.starts)
        return least, others, len(expected) - first

    def loss(self, expected, misfit):
        """Time lost by the choice (and more for the worst ones), a share of how far the model is off, a penalty where
        it prefers what was not timed, and one for leaving the constants of before: some tiles are in few rows. An error
        that all ways of a product share counts little."""
        least, others, chosen = self.choice(expected)
        took = self.us[chosen]
        total = np.log(took / self.best) + 3 * np.maximum(0, np.log(0.92 * took / np.maximum(self.library, self.best)))
        total += 2 * np.maximum(0, np.log(1.02 * least / np.minimum(others, 2 * least)))
        off = np.log(np.where(self.timed, expected / self.us, 1))
        mean = np.add.reduceat(off * self.weight, self.starts)
        off = np.abs(off - np.repeat(mean, self.lengths)) * self.weight
        moved = sum(np.square(np.log(x / y)).mean() for x, y in zip((self.rates, self.steps), self.first, strict=True))
        return (total.sum() + misfit * (off.sum() + 0.2 * np.abs(mean).sum())) / len(self.starts) + 0.3 * moved

    def improve(self, seconds, misfit, seed):
        """Change one constant at a time at random, and keep what lessens the loss."""
        rng, until, scale = random.Random(seed), time.monotonic() + seconds, 0.3
        best, costs = self.loss(self.expected, misfit), [f.name for f in fields(COSTS) if f.name != "apart"]
        while time.monotonic() < until:
            before, factor, expected = self.costs, math.exp(rng.gauss(0, scale)), self.expected
            tile, values = rng.randrange(len(self.names_of_tiles)), rng.choice((self.rates, self.steps))
            kept = values[tile]
            if rng.random() < 0.8:
                values[tile] *= factor
                self.rates[tile] = min(self.rates[tile], self.most[tile])
                expected = expected.copy()
                expected[self.rows_of[tile]] = self.times(self.rows_of[tile])
            else:
                name = rng.choice(costs)
                self.costs = replace(before, **{name: getattr(before, name) * factor})
                expected = self.times()
            now = self.loss(expected, misfit)
            if now < best:
                best, self.expected = now, expected
            else:
                self.costs, values[tile] = before, kept
            scale = max(0.03, scale * 0.9995)

    def report(self, title):
        least, others, chosen = self.choice(self.expected)
        took = self.us[chosen]
        lost, won, most = self.best / took, self.library / took, self.library / self.best
        print(
            f"{title}: {len(won)} products; choice / best contender: mean {lost.mean():.4f} worst {lost.min():.3f}; "
            f"against cuBLAS: median {np.median(won):.3f} worst {won.min():.3f} (best contender {np.median(most):.3f}, "
            f"{most.min():.3f}); chosen without having been timed: {(others < least).sum()}"
        )
        return [(won[i], most[i], self.entries[chosen[i]][0], self.names[chosen[i]], took[i]) for i in np.argsort(won)]


def stored(folder):
    """The rows of both files."""
    rows = [json.loads(s) for s in (folder / f"{SWEEP}.jsonl").read_text().splitlines()[1:]]
    return rows + json.loads((folder / f"{NAMED}.json").read_text())["products"]


def fit(rows, seconds, seed):
    model = Model(rows)
    model.leave_out()
    model.report("before")
    for misfit in (1.0, 0.4, 0.2):  # first mostly for the times, then for the choice
        model.improve(seconds / 3, misfit, seed)
    for won, most, case, choice, us in model.report("after")[:15]:
        print(f"  {won:.3f} (best contender {most:.3f}) {case[:4]} {choice}: {us:.1f} us")
    print(", ".join(f"{f.name}={getattr(model.costs, f.name):.3g}" for f in fields(COSTS)))
    for name, rate, step in zip(model.names_of_tiles, model.rates, model.steps, strict=True):
        print(f"{name}: rate={rate:.0f}, step={step:.3f}")


def main():
    from benchmarks.timing import RESULTS, save

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--sweep", type=int, metavar="PRODUCTS")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--seconds", type=float, default=600, help="at most, of the sweep; of the fit")
    parser.add_argument("--seed", type=int, default=0, help="of the sweep's products; of the fit")
    parser.add_argument("--add", action="store_true", help="to the sweep that is stored")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.check:
        check_chain()
        in_processes(check, every_way())
    if options.named:
        save(NAMED, measure_named(), options.out)
    if options.sweep:
        sweep(options.sweep, options.seconds, options.seed, options.out / f"{SWEEP}.jsonl", options.add)
    if options.fit:
        fit(stored(options.out), options.seconds, options.seed)


if __name__ == "__main__":
    main()
