# SPDX-License-Identifier: MIT
"""The HIP kernels, thread by thread on the CPU: against float64, in many orders of the waves, and broken on purpose."""

from __future__ import annotations

import ctypes

import pytest
import torch

from cdna.hip.cpu_library import open_cpu
from cdna.hip.on_cpu import cpu_rmsnorm_fp8, cpu_skinny_gemm, cpu_swiglu_fp8, load_counts
from cdna.hip.toolchain import HipError, sources
from rocm_guide.kernels.fp8 import FP8, decode_fp8, encode_fp8
from rocm_guide.kernels.rmsnorm_fp8 import reference_rmsnorm_fp8
from rocm_guide.kernels.swiglu_fp8 import reference_swiglu_fp8

FNUZ = FP8["e4m3fnuz"]


def check_fp8(q, wanted, relative):
    got = decode_fp8(q.view(torch.uint8), FNUZ).double()
    assert torch.equal(got.isnan(), wanted.isnan())
    low, high = (decode_fp8(encode_fp8(wanted * (1 + s), FNUZ), FNUZ).double() for s in (-relative, relative))
    low, high = torch.minimum(low, high), torch.maximum(low, high)
    assert bool((wanted.isnan() | ((low <= got) & (got <= high))).all())


def numbers(*shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("scale", [0.05, 1e-3, None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [8, 16, 504, 1000, 8192, 8200, 16384, 20000, 32768])
def test_rmsnorm(columns, dtype, scale):
    x, r = (numbers(2, columns, dtype=dtype, seed=s) for s in (1, 2))
    w = numbers(columns, dtype=dtype, seed=3)
    q, updated, scales = cpu_rmsnorm_fp8(x, r, w, scale)
    y, s = reference_rmsnorm_fp8(x, r, w)
    assert torch.equal(updated, s)
    if scale is None:
        torch.testing.assert_close(scales.double(), y.abs().amax(-1, keepdim=True) / 240, rtol=1e-5, atol=0)
    check_fp8(q, y / (scales.double() if scale is None else scale), 2**-17)


@pytest.mark.parametrize("rung", range(1, 7))
@pytest.mark.parametrize("columns", [8192, 16384])
def test_every_rung_of_the_ladder(rung, columns):
    x, r = (numbers(2, columns, dtype=torch.float16, seed=s) * 3 for s in (4, 5))
    w = numbers(columns, dtype=torch.float16, seed=6)
    x[0, 7], x[1, 9] = 6e4, 1e-7
    y, s = reference_rmsnorm_fp8(x, r, w)
    q, updated, _ = cpu_rmsnorm_fp8(x, r, w, 0.02, rung=rung)
    assert torch.equal(updated, s)
    check_fp8(q, y / 0.02, 2**-17)
    x[0, 11] = float("nan")
    q, _, _ = cpu_rmsnorm_fp8(x, r, w, 0.02, rung=rung)
    assert bool(q[0].float().isnan().all()) and not bool(q[1].float().isnan().any())


def test_the_conversion_by_hand_is_the_instruction(tmp_path):
    """The ladder's conversion by hand and the model of v_cvt_pk_fp8_f32 against the bit-exact model."""
    source = tmp_path / "convert.hip"
    source.write_text(
        '#include "ladder.hip"\n'
        'extern "C" void both(const float* x, u8* hand, u8* chip, int n) {\n'
        "    for (int i = 0; i < n; ++i) { hand[i] = fp8_by_hand(x[i]); chip[i] = cpu::fp8_code(saturate(x[i])); }\n"
        "}\n"
    )
    library = open_cpu(source)
    codes = decode_fp8(torch.arange(0x80, dtype=torch.uint8), FNUZ)
    middles = (codes[1:] + codes[:-1]) / 2
    spread = torch.arange(0, 2**31, 7919, dtype=torch.int64).to(torch.int32).view(torch.float32)
    near = torch.cat([torch.nextafter(t, torch.tensor(v)) for t in (codes, middles) for v in (0.0, 1e9)])
    x = torch.cat([codes, middles, near, spread, torch.tensor([float("inf"), 240.0, 247.9, 248.0, 1e38])])
    x = torch.cat([x, -x]).contiguous()
    hand, hardware = (torch.zeros(len(x), dtype=torch.uint8) for _ in range(2))
    library.both(*(ctypes.c_void_p(t.data_ptr()) for t in (x, hand, hardware)), len(x))
    wanted = encode_fp8(x, FNUZ)
    assert torch.equal(hand, wanted) and torch.equal(hardware, wanted) and len(x) > 500_000


@pytest.mark.parametrize("scale", [0.05, 1e-3, None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [8, 504, 2048, 2056, 8192, 16384, 20000, 32768])
def test_swiglu(columns, dtype, scale):
    x = numbers(2, 2 * columns, dtype=dtype, seed=columns) * 4
    if scale:
        x[0, :3] = torch.tensor([-60000.0, 60000.0, float("nan")])
    q, scales = cpu_swiglu_fp8(x, scale)
    y = reference_swiglu_fp8(x)
    if scale is None:
        torch.testing.assert_close(scales.double(), y.abs().amax(-1, keepdim=True) / 240, rtol=1e-5, atol=0)
    check_fp8(q, y / (scales.double() if scale is None else scale), 2**-16)


@pytest.mark.parametrize("rung", [7, 8, 9])
def test_every_rung_of_the_swiglu_ladder(rung):
    x = numbers(2, 2 * 2056, dtype=torch.float16, seed=rung) * 4
    x[0, :3] = torch.tensor([-60000.0, 60000.0, float("nan")])
    q, _ = cpu_swiglu_fp8(x, 0.05, rung=rung)
    check_fp8(q, reference_swiglu_fp8(x) / 0.05, 2**-16)


def small_fp8(*shape, seed):
    values = torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).float()
    return values.to(torch.float8_e4m3fnuz)  # integers: every order of summation gives the same


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("rows", range(1, 17))
def test_skinny_gemm(rows, dense):
    a, b = small_fp8(rows, 1024, seed=rows), small_fp8(96, 1024, seed=99)
    wanted = (a.double() @ b.double().T * 0.03125).half()
    for splits in (1, 2, 4):
        assert torch.equal(cpu_skinny_gemm(a, b, 0.03125, splits=splits, dense=dense, seed=rows), wanted)


@pytest.mark.parametrize("seed", range(12))
def test_producers_and_consumers_in_many_orders(seed):
    """More turns than the queue has stages and more than there are producers, so that every counter goes round."""
    a, b = small_fp8(8, 256 * 19, seed=1), small_fp8(32, 256 * 19, seed=2)
    wanted = (a.double() @ b.double().T / 64).half()
    assert torch.equal(cpu_skinny_gemm(a, b, 1 / 64, seed=seed * 7919 + 1), wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0xEEEEu : 0x4444u", "0x4444u : 0x4444u"),  # the odd rows' places
        ("values[0] = sum.x + sum.y, values[1]", "values[0] = sum.x, values[1]"),  # one half forgotten
        ("t / QUEUE * CONSUMERS);  // the loads", "0);  // the loads"),  # producers overwrite what is unread
        ("flag_wait(&roles->weight_written[slot], t / QUEUE + 1);", ""),  # consumers read what is not there
        ("t / QUEUE + 1);\n            flag_wait(&roles->input", "1);\n            flag_wait(&roles->input"),
        ("flag_add(&roles->read[slot], lane);", ""),  # nobody frees a stage: deadlock
        ("tickets[block_x()]) == (u32)splits - 1", "tickets[block_x()]) == (u32)splits"),  # nobody adds up
        ("for (int s = 0; s < splits; ++s)", "for (int s = 0; s < splits - 1; ++s)"),
    ],
)
def test_a_broken_skinny_gemm_is_noticed(old, new, tmp_path):
    text = sources()["skinny_gemm"]
    assert text.count(old) == 1
    broken = tmp_path / "skinny_gemm.hip"
    broken.write_text(text.replace(old, new))
    a, b = small_fp8(8, 256 * 18, seed=1), small_fp8(32, 256 * 18, seed=2)
    wanted = (a.double() @ b.double().T / 64).half()

    def is_wrong(seed):
        try:
            return not torch.equal(cpu_skinny_gemm(a, b, 1 / 64, splits=2, seed=seed, source=broken), wanted)
        except HipError as e:
            assert "deadlock" in str(e)
            return True

    assert any(map(is_wrong, range(6))), "in one order or another; the first that is wrong is enough"


def test_the_ladder_counts_loads_and_lines():
    x, r = (numbers(1, 16384, dtype=torch.float16, seed=s) for s in (1, 2))
    w, found = numbers(16384, dtype=torch.float16, seed=3), {}
    load_counts("ladder")
    for rung in range(1, 7):
        cpu_rmsnorm_fp8(x, r, w, 0.05, rung=rung)
        found[rung] = load_counts("ladder")
    assert [found[n].instructions for n in (1, 2, 3, 4, 5)] == [1024, 128, 128, 96, 96]
    assert found[2].used == 0.5 and all(found[n].used == 1 for n in (1, 3, 4, 5, 6))
    assert found[3].bytes == 131072 and found[4].bytes == 98304


def test_what_is_refused():
    x = torch.ones(2, 64, dtype=torch.float16)
    for call, words in (
        (lambda: cpu_rmsnorm_fp8(x.float(), x.float(), x[0].float(), 1.0), "x is float32"),
        (lambda: cpu_rmsnorm_fp8(x, x.bfloat16(), x[0], 1.0), "type of x"),
        (lambda: cpu_rmsnorm_fp8(x, x, x[0, :8], 1.0), "weight has shape"),
        (lambda: cpu_rmsnorm_fp8(x[:, :7].contiguous(), x[:, :7].contiguous(), x[0, :7], 1.0), "sizes"),
        (lambda: cpu_rmsnorm_fp8(x, x, x[0], 1.0, rung=2), "sizes"),
        (lambda: cpu_rmsnorm_fp8(x, x, x[0], rung=2), "ladder"),
        (lambda: cpu_swiglu_fp8(x[:, ::2]), "contiguous"),
        (lambda: cpu_skinny_gemm(small_fp8(17, 256, seed=1), small_fp8(32, 256, seed=1)), "sizes"),
        (lambda: cpu_skinny_gemm(small_fp8(1, 256, seed=1), small_fp8(33, 256, seed=1)), "sizes"),
        (lambda: cpu_skinny_gemm(small_fp8(1, 256, seed=1), small_fp8(32, 512, seed=1)), "depth"),
        (lambda: cpu_skinny_gemm(x, x), "float8_e4m3fnuz"),
    ):
        with pytest.raises(HipError, match=words):
            call()
