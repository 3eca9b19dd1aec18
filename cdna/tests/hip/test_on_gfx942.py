# SPDX-License-Identifier: MIT
"""The HIP kernels as gfx942 machine code, executed here: bit for bit what the same source computes on the CPU.

``on_cpu`` runs the source with models of the instructions; here the compiled instructions run. Both must agree.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from cdna.hip.on_cpu import cpu_rmsnorm_fp8, cpu_skinny_gemm, cpu_swiglu_fp8
from cdna.hip.toolchain import compile_hip
from cdna.isa.kernel import parse_asm
from cdna.run import run

F16, BF16, F8 = torch.float16, torch.bfloat16, torch.float8_e4m3fnuz
NAMES = {F16: "f16", BF16: "bf16"}
STEPS = "pointwise vectors coalesced lds registers packed swiglu_pointwise swiglu_packed swiglu_exp2"
RUNGS = tuple(f"rung_{step}" for step in STEPS.split())
SIZES = ("8k", "16k", "32k")  # columns that a thread block keeps
TESTED = {
    *RUNGS,
    *(f"rmsnorm_fp8{rows}_{kind}_{size}" for rows in ("", "_rows") for kind in NAMES.values() for size in SIZES),
    *(f"swiglu_fp8_rows_{kind}_{size}" for kind in NAMES.values() for size in SIZES),
    *(f"swiglu_fp8_{kind}" for kind in NAMES.values()),
    *(f"skinny_gemm_{way}_{kind}" for way in ("sparse", "dense") for kind in NAMES.values()),
}


@lru_cache(maxsize=8)
def assembly(source):
    return compile_hip(source)


def execute(source, name, grid, *arguments, **options):
    assert name in TESTED
    return run(assembly(source), grid, list(arguments), name=name, count=False, **options)


def numbers(*shape, dtype, seed=0, size=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * size).to(dtype)


def empty8(*shape):
    return torch.full(shape, 0x7F, dtype=torch.uint8)


def same_fp8(got, wanted, most=0):
    """Equal codes; ``most`` of them may be the neighbour, where an instruction is an approximation."""
    a, b = got.view(torch.uint8).int(), wanted.view(torch.uint8).int()
    assert bool(((a - b).abs() <= 1).all()) and int((a != b).sum()) <= most, f"{int((a != b).sum())} codes differ"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [0.05, None])
@pytest.mark.parametrize(("dtype", "columns"), [(F16, 1032), (BF16, 8)])
def test_rmsnorm_fp8(dtype, columns, scale, size):
    x, r, w = (numbers(*s, dtype=dtype, seed=i) for i, s in enumerate([(1, columns), (1, columns), (columns,)]))
    q, updated = empty8(1, columns), torch.full_like(x, float("nan"))
    scales = None if scale else torch.full((1, 1), float("nan"))
    name = f"rmsnorm_fp8{'' if scale else '_rows'}_{NAMES[dtype]}_{size}"
    execute("rmsnorm_fp8", name, 1, x, r, w, updated, q, scales, columns, 1e-6, 1 / (scale or 1.0), order=1)
    wanted, added, factors = cpu_rmsnorm_fp8(x, r, w, scale)
    assert torch.equal(updated, added)
    same_fp8(q, wanted, columns // 500)
    if scales is not None:
        torch.testing.assert_close(scales, factors, rtol=2**-20, atol=0)


@pytest.mark.parametrize(("dtype", "columns"), [(F16, 520), (BF16, 2056)])
@pytest.mark.parametrize("scale", [0.05, None])
def test_swiglu_fp8(dtype, scale, columns):
    x, q = numbers(1, 2 * columns, dtype=dtype, size=4), empty8(1, columns)
    if scale:
        grid = (-(-columns // 8 // 256), 1)
        execute("swiglu_fp8", f"swiglu_fp8_{NAMES[dtype]}", grid, x, q, columns, 1 / scale)
    else:
        scales = torch.full((1, 1), float("nan"))
        for size in SIZES:
            q.fill_(0x7F)
            execute("swiglu_fp8", f"swiglu_fp8_rows_{NAMES[dtype]}_{size}", 1, x, q, scales, columns)
            same_fp8(q, cpu_swiglu_fp8(x, scale)[0], columns // 250)
    wanted, factors = cpu_swiglu_fp8(x, scale)
    same_fp8(q, wanted, columns // 250)
    if scale is None:
        torch.testing.assert_close(scales, factors, rtol=2**-18, atol=0)


@pytest.mark.parametrize("rung", range(1, 10))
def test_every_rung_of_the_ladder(rung):
    if rung < 7:
        columns = 8192
        x, r, w = (numbers(*s, dtype=F16, seed=i) for i, s in enumerate([(1, columns), (1, columns), (columns,)]))
        q, updated = empty8(1, columns), torch.full_like(x, float("nan"))
        execute("ladder", RUNGS[rung - 1], 1, x, r, w, updated, q, columns, 1e-6, 20.0)
        wanted, added, _ = cpu_rmsnorm_fp8(x, r, w, 0.05, rung=rung)
        assert torch.equal(updated, added)
    else:
        columns = 520
        x, q = numbers(1, 2 * columns, dtype=F16, size=4), empty8(1, columns)
        x[0, :3] = torch.tensor([-60000.0, 60000.0, float("nan")])
        execute("ladder", RUNGS[rung - 1], 1, x, q, columns, 20.0)
        wanted, _ = cpu_swiglu_fp8(x, 0.05, rung=rung)
    same_fp8(q, wanted, columns // 500)


@pytest.mark.parametrize(("rows", "dense", "splits"), [(8, False, 1), (5, False, 2), (8, True, 1), (16, True, 2)])
def test_skinny_gemm(rows, dense, splits):
    """Integers: every order of summation gives the same."""
    columns, depth = 64, 1024
    a, b = (
        torch.randint(-8, 9, s, generator=torch.Generator().manual_seed(rows)).float().to(F8)
        for s in ((rows, depth), (columns, depth))
    )
    for dtype in (F16, BF16):
        c, partial = (
            torch.full(s, float("nan"), dtype=t)
            for s, t in (((rows, columns), dtype), ((splits, rows, columns), torch.float32))
        )
        tickets = torch.zeros(columns // 32, dtype=torch.int32)
        name = f"skinny_gemm_{'dense' if dense else 'sparse'}_{NAMES[dtype]}"
        execute(
            "skinny_gemm",
            name,
            (columns // 32, splits),
            a,
            b,
            c,
            partial,
            tickets,
            rows,
            columns,
            depth,
            splits,
            0.03125,
            order="round_robin",
        )
        assert torch.equal(c, (a.double() @ b.double().T * 0.03125).to(dtype)) and not tickets.any()
        if dtype == F16:
            assert torch.equal(c, cpu_skinny_gemm(a, b, 0.03125, splits=splits, dense=dense))


def test_every_kernel_of_the_sources():
    """What the tests above execute is all that there is."""
    found = {k.name for s in ("rmsnorm_fp8", "swiglu_fp8", "ladder", "skinny_gemm") for k in parse_asm(assembly(s))}
    assert found == TESTED
