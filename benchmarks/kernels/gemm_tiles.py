# SPDX-License-Identifier: MIT
"""Which tiles does a GEMM want on an MI300X, by its machine code and a model?

    python -m benchmarks.kernels.gemm_tiles [--sizes]

Each tile of ``CONFIGS["gfx942"]`` (``rocm_guide/kernels/gemm.py``, ``int8_gemm.py``) is compiled for gfx942, one
workgroup of it is executed with two lengths of K, and the model of `cdna.predict` says how many cycles a compute unit
takes for one such workgroup, for two at once, and so on. Printed are the cycles beside the loop and of 64 elements of
K, as the table has them, with a mark where they differ from what stands there: three minutes of one core. `--sizes`
goes through the layers of four models with the tiles that are chosen, beside aiter's, into results/gemm_tiles.json; a
size that is there for these versions with its tile is kept. Nothing is measured on a GPU.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

from benchmarks.kernels.peers_cases import BF16, FLOATS, FP8, INT8, draw, gemm_operations, gemm_tile
from benchmarks.kernels.peers_mi300x import ROOT, measure, versions
from cdna.step.steady import events_of
from cdna.step.timeline import timeline
from rocm_guide.common.base import write_text
from rocm_guide.kernels.gemm import CONFIGS, gemm
from rocm_guide.kernels.int8_gemm import CONFIGS as INT8_TILES
from rocm_guide.kernels.int8_gemm import linear_scaled
from rocm_guide.observe.predict import launches_of, with_memory

#: What the tables' cycles are of.
TABLES: dict[torch.dtype, Any] = {
    **{dtype: CONFIGS["gfx942"][8 * dtype.itemsize] for dtype in (torch.float32, BF16, FP8)},
    torch.int8: INT8_TILES["gfx942"],
}
#: Layer -> columns and K of its products: Llama 3 8B, its 70B on eight GPUs, Qwen 2.5 32B, DeepSeek-V3.
LAYERS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Llama 3 70B, one of 8": ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),
    "Qwen 2.5 32B": ((7168, 5120), (5120, 5120), (55296, 5120), (5120, 27648)),
    "DeepSeek-V3": ((24576, 1536), (7168, 16384), (36864, 7168), (7168, 18432)),
}
SIZES = tuple((m, n, k) for m in (4096, 1024, 256) for layers in LAYERS.values() for n, k in layers)
TYPES = FLOATS | INT8
RESULTS = ROOT / "benchmarks/results/gemm_tiles.json"
_SHORT, _LONG = 512, 1024


def cycles(tile: Any, dtype: torch.dtype) -> tuple[tuple[int, int], ...]:
    """Return cycles beside the loop and of 64 elements of K, with 1, 2, ... workgroups on a compute unit."""

    def product(k: int) -> torch.Tensor:
        a, b = (draw(4096, k, dtype=dtype) for _ in range(2))
        if dtype != torch.int8:
            return gemm(a, b.T, tile=tile)
        scales = (draw(4096, dtype=torch.float32) for _ in range(2))
        return linear_scaled(a, b.T, *scales, out_dtype=BF16, tile=tile)

    found = []
    for k in (_SHORT, _LONG):
        ((compiled, grid, arguments, report),) = launches_of(lambda k=k: product(k))
        events = events_of(compiled, grid, {n: with_memory(v) for n, v in arguments.items()}, 0, 20_000_000)
        together = range(1, report.occupancy.workgroups_per_cu + 1)
        found.append([float(timeline(events, groups=n).cycles) for n in together])
    steps = [(long - short) / ((_LONG - _SHORT) / 64) for short, long in zip(*found, strict=True)]
    return tuple((round(short - _SHORT / 64 * step), round(step)) for short, step in zip(found[0], steps, strict=True))


def chosen(m: int, n: int, k: int) -> dict[str, str]:
    """Return the tile that is picked for each type of a product with a weight."""
    tiles = {name: gemm_tile(m, n, k, dtype) for name, dtype in TYPES.items()}
    return {f"GEMM {name} {m} x {n} x {k}": f"{tile.bm} x {tile.bn} x {tile.bk}" for name, tile in tiles.items()}


def sizes() -> None:
    """Work out ours and aiter's likely time of every layer; print and store them."""
    about = {"question": str(__doc__).split("\n")[0], "versions": versions()}
    stored = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    kept = stored.get("us", {}) if stored.get("versions") == about["versions"] else {}
    rows: dict[str, Any] = {}
    tiles = {name: tile for size in SIZES for name, tile in chosen(*size).items()}
    for op in gemm_operations(SIZES, TYPES):
        name, tile = op.name, tiles[op.name]
        rows[name] = kept.get(name, {})
        if rows[name].get("tile") != tile:
            likely = {library: measure(op, library, call)["likely_us"] for library, call in op.calls.items()}
            rows[name] = {"tile": tile, **likely}
            write_text(RESULTS, json.dumps({**about, "us": kept | rows}, indent=1) + "\n")
        print(f"{name}: {rows[name]}, {rows[name]['ours'] / rows[name]['aiter']:.2f}", flush=True)
    write_text(RESULTS, json.dumps({**about, "us": rows}, indent=1) + "\n")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", action="store_true", help="models' layers beside aiter")
    torch.set_num_threads(1)
    if parser.parse_args().sizes:
        sizes()
        return
    for dtype, tiles in TABLES.items():
        for tile in tiles:
            now = cycles(tile, dtype)
            print(f"{dtype} {tile.bm} x {tile.bn} x {tile.bk}: {now}{' changed' * (now != tile.cycles)}", flush=True)


if __name__ == "__main__":
    main()
