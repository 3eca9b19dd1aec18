# SPDX-License-Identifier: MIT
"""Whole kernels, compiled for gfx942 and run here: Triton's against float64, HIP's against their run on the CPU."""

import dataclasses
import re

import pytest
import torch
import triton
import triton.language as tl

from cdna.compile import compile_kernel
from cdna.hip.on_cpu import cpu_rmsnorm_fp8
from cdna.hip.toolchain import compile_hip
from cdna.run import RunError, prepare, run


@triton.jit
def softmax_rows(x, y, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * n + i, v / tl.sum(v, 0), mask=i < n)


@triton.jit
def rms_norm_rows(x, w, y, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(y + row * n + i, (v * r * tl.load(w + i, mask=i < n)).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, P: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), ACC)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=P, out_dtype=ACC)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@pytest.mark.parametrize("order", ["alone", "round_robin", 1])
def test_softmax(order):
    x, y = torch.randn(3, 1000), torch.full((3, 1000), 7.0)
    k = compile_kernel(softmax_rows, [x, y, 1000], {"BLOCK": 1024})
    run(k, 3, [x, y, 1000], order=order)
    torch.testing.assert_close(y.double(), x.double().softmax(1), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_rms_norm(dtype):
    x, w, y = torch.randn(2, 1500).to(dtype), torch.randn(1500), torch.full((2, 1500), 7.0, dtype=dtype)
    k = compile_kernel(rms_norm_rows, [x, w, y, 1500, 1e-6], {"BLOCK": 2048})
    run(k, 2, {"x": x, "w": w, "y": y, "n": 1500, "eps": 1e-6})
    want = x.double() * torch.rsqrt(x.double().square().mean(1, keepdim=True) + 1e-6) * w.double()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), want, rtol=max(eps, 1e-6), atol=1e-7)


TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int8]


def operands(dtype, m, n, k):
    if dtype == torch.int8:
        return torch.randint(-128, 128, (m, k), dtype=dtype), torch.randint(-128, 128, (k, n), dtype=dtype), torch.int32
    return torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.float32


@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gemm_of_every_type(dtype, nonkdim):
    m, n, k = 48, 40, 96
    a, b, out = operands(dtype, m, n, k)
    c = torch.full((m, n), 7, dtype=out)
    meta = {"BM": 64, "BN": 64, "BK": 64, "ACC": tl.int32 if out == torch.int32 else tl.float32, "P": "ieee"}
    kernel = compile_kernel(matmul, [a, b, c, m, n, k], meta, matrix_instr_nonkdim=nonkdim)
    result = run(kernel, 1, [a, b, c, m, n, k])
    want = a.double() @ b.double()
    torch.testing.assert_close(c.double(), want, rtol=1e-5, atol=0 if out == torch.int32 else 1e-4)
    assert result.counters.mfma_flops == 2 * 64 * 64 * 128


def test_tf32_uses_xf32():
    a, b, _ = operands(torch.float32, 64, 64, 64)
    c = torch.zeros(64, 64)
    meta = {"BM": 64, "BN": 64, "BK": 32, "ACC": tl.float32, "P": "tf32"}
    kernel = compile_kernel(matmul, [a, b, c, 64, 64, 64], meta)
    assert "xf32" in kernel.assembly
    run(kernel, 1, [a, b, c, 64, 64, 64])
    error = (c.double() - a.double() @ b.double()).abs().max()
    assert 1e-4 < error < 5e-2


def test_every_removed_wait_and_barrier_is_caught():
    m, n, k = 32, 32, 160
    a, b, _ = operands(torch.float16, m, n, k)
    meta = {"BM": 32, "BN": 32, "BK": 32, "ACC": tl.float32, "P": "ieee"}
    kernel = compile_kernel(matmul, [a, b, torch.zeros(m, n), m, n, k], meta)
    session = prepare(kernel, 1, [a, b, torch.zeros(m, n), m, n, k])
    session.machine.run()
    executed = {o.line for o, n in zip(session.machine.code, session.machine.counts, strict=True) if n}
    lines = kernel.assembly.split("\n")
    caught, redundant = 0, []
    for number in sorted(executed):
        if re.match(r"\s*s_(waitcnt|barrier)", lines[number - 1]):
            broken = "\n".join([*lines[: number - 1], "  s_nop 0", *lines[number:]])
            try:
                c = torch.zeros(m, n)
                run(dataclasses.replace(kernel, assembly=broken), 1, [a, b, c, m, n, k])
                torch.testing.assert_close(c, a.float() @ b.float())
                redundant.append((number, lines[number - 1].strip()))
            except RunError as e:
                assert e.rule in ("wait", "race", "undefined")
                caught += 1
    # Triton 3.6 and 3.7 ask for two waits twice; 3.8 and 3.9 write none that is not needed.
    assert caught > 15 and len(redundant) <= 2 * triton.__version__.startswith(("3.6", "3.7")), redundant


def test_a_hip_kernel_equals_its_run_on_the_cpu():
    x, residual, w = (torch.randn(2, 8192).half(), torch.randn(2, 8192).half(), torch.randn(8192).half())
    updated, q, scales = torch.zeros_like(x), torch.zeros(2, 8192, dtype=torch.uint8), torch.zeros(2)
    args = [x, residual, w, updated, q, scales, 8192, 1e-6, 1 / 0.05]
    run(compile_hip("rmsnorm_fp8"), 2, args, name="rmsnorm_fp8_f16_8k")
    want_q, want_updated, _ = cpu_rmsnorm_fp8(x, residual, w, 0.05)
    assert torch.equal(updated, want_updated) and torch.equal(q, want_q.view(torch.uint8))


def test_stepping_shows_everything():
    x, y = torch.randn(1, 64), torch.zeros(1, 64)
    kernel = compile_kernel(softmax_rows, [x, y, 64], {"BLOCK": 64}, num_warps=1)
    seen = []
    session = prepare(kernel, 1, [x, y, 64], observer=lambda w, o: seen.append(o.text))
    machine = session.machine
    (wave,) = machine.start_group().waves
    under_way = 0
    while wave.status != "ended":
        machine.step(wave)
        under_way = max(under_way, len(wave.in_flight))
    session.finish()
    assert under_way >= 1 and seen[-1].startswith("s_endpgm") and len(seen) == wave.executed
    torch.testing.assert_close(y, x.softmax(1), rtol=1e-5, atol=1e-8)
