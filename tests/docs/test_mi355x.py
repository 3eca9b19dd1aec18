# SPDX-License-Identifier: MIT
"""docs/mi355x.md against the specifications that the course computes with, and against code compiled now."""

import re
import warnings
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from cdna.dry_run import dry_run
from cdna.predict import gpu

PAGE = (Path(__file__).parents[2] / "docs/mi355x.md").read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [c.strip() for c in line.strip("|").split("|")]) in (3, 4)
}
CODE_ROWS = {name: cells for name, cells in ROWS.items() if len(cells) == 2}
#: What stands in the page was read off this release's code.
WRITTEN_WITH = tuple(map(int, triton.__version__.split(".")[:2])) == (3, 9)


def peak(card, *kinds):
    return next((round(card.peak_tflops(kind), 1) for kind in kinds if kind in card.flops), None)


SPECS = {
    "compute units": lambda g: g.units,
    "memory, GB of the data sheet": lambda g: g.memory_gib,
    "bandwidth, TB/s": lambda g: g.bandwidth_tb_s,
    "LDS of a compute unit, KiB": lambda g: g.lds_kib,
    "peak bf16, TFLOPS": lambda g: peak(g, "bf16"),
    "peak FP8, TFLOPS": lambda g: peak(g, "fp8"),
    "peak FP4, TFLOPS": lambda g: peak(g, "fp4"),
    "peak TF32 on the matrix cores, TFLOPS": lambda g: peak(g, "tf32"),
    "peak FP64 on the matrix cores, TFLOPS": lambda g: peak(g, "fp64-matrix"),
    "operations for each byte, bf16": lambda g: round(g.peak_tflops("bf16") / g.bandwidth_tb_s),
}


def test_the_specifications():
    told = {name: cells for name, cells in ROWS.items() if len(cells) == 3 and name != ""}
    assert set(told) == set(SPECS)
    for name, read in SPECS.items():
        ours = [read(gpu(card)) for card in ("MI300X", "MI355X")]
        wanted = ["-" if x is None else f"{x:,}" for x in ours]
        wanted.append("-" if None in ours else f"{ours[1] / ours[0]:.2f}")
        assert told[name] == wanted, name


@triton.jit
def one_tile(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        y = tl.load(b + n[None, :] * K + start + k[:, None])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def scaled_tile(a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2), tl.arange(0, K // 32)
    x, y = tl.load(a + m[:, None] * (K // 2) + k[None, :]), tl.load(b + n[None, :] * (K // 2) + k[:, None])
    xs, ys = tl.load(sa + m[:, None] * (K // 32) + g[None, :]), tl.load(sb + n[:, None] * (K // 32) + g[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot_scaled(x, xs, "e2m1", y, ys, "e2m1"))


def compiled_for(arch, launch):
    kept = []
    with dry_run(arch, on_launch=lambda compiled, grid, arguments: kept.append(compiled)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of FP8 that is raised: the page says it
        launch()
    return kept[0]


def gemm(arch, dtype, stages=2):
    operands = [torch.empty(128, 4096, dtype=dtype) for _ in "ab"]
    sizes = {"M": 128, "N": 128, "BLOCK": 64, "num_warps": 8, "num_stages": stages}
    return compiled_for(arch, lambda: one_tile[(1,)](*operands, torch.empty(128, 128), 4096, **sizes))


def instructions(compiled):
    return set(re.findall(r"^\s+((?:v_mfma|ds_|buffer_load)\w*)", compiled.assembly, re.M))


@pytest.mark.skipif(not WRITTEN_WITH, reason="the page says what Triton 3.9 writes")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_code(arch):
    at = ("gfx942", "gfx950").index(arch)
    told = {name: cells[at] for name, cells in CODE_ROWS.items() if name != ""}
    matrix = {
        "fp16: matrix instruction": torch.float16,
        "FP8 of OCP (`float8_e4m3fn`)": torch.float8_e4m3fn,
        "FP8 of MI300X (`float8_e4m3fnuz`)": torch.float8_e4m3fnuz,
    }
    for row, dtype in matrix.items():
        (used,) = {i for i in instructions(gemm(arch, dtype)) if i.startswith("v_mfma")}
        assert f"`{used}`" in told[row] or ("raised to fp16, with" in told[row] and used.endswith("x16_f16")), row
    half = gemm(arch, torch.float16)
    direct = bool(re.search(r"buffer_load_dwordx4 .* lds$", half.assembly, re.M))
    writes = any(i.startswith("ds_write") for i in instructions(half))
    assert direct is ("direct" in told["fp16: from memory to LDS"]) is not writes
    assert told["fp16: from LDS"].strip("`") in instructions(half)
    lds = " and ".join(f"{gemm(arch, torch.float16, stages).shared:,}" for stages in (2, 3))
    assert told["fp16: LDS with two and three stages, bytes"] == lds
    bits = [torch.empty(64, n, dtype=torch.uint8) for n in (64, 4, 64, 4)]
    scaled = compiled_for(arch, lambda: scaled_tile[(1,)](*bits, torch.empty(64, 64), M=64, N=64, K=128))
    (used,) = {i for i in instructions(scaled) if i.startswith("v_mfma")}
    assert f"`{used}`" in told["MXFP4 (`tl.dot_scaled`, e2m1)"]
