# SPDX-License-Identifier: MIT
"""Dry runs: our kernels, and other people's operators from the package index, compiled and not launched."""

import contextlib
import threading
import warnings

import pytest
import torch

triton = pytest.importorskip("triton")
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from cdna.dry_run.driver import DryRunError, dry_run
from cdna.examples.tuning import matmul, scale_rows, tuned_scale_rows

# Before the first test: an import may add warning filters, and the tests compare the world before and after.
with contextlib.suppress(ImportError):
    pass


@triton.jit
def picky(x_ptr, N: tl.constexpr):
    tl.static_assert(N < 32, "N must be below 32")
    tl.store(x_ptr, 1.0)


picky_tuned = triton.autotune([triton.Config({"N": n}) for n in (64, 8, 16)], key=[], cache_results=True)(picky)
greedy_tuned = triton.autotune(
    [
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=32),
        triton.Config({"BM": 256, "BN": 256, "BK": 128}),
        triton.Config({"BM": 64, "BN": 64, "BK": 32}),
    ],
    key=["M"],
    reset_to_zero=["c_ptr"],
)(matmul)


def world():
    """Everything that a dry run touches, to be compared before and after."""
    names = [n for n in dir(torch.cuda) if not n.startswith("__")]
    return {
        "driver": triton.runtime.driver._active,
        "cuda": {n: getattr(torch.cuda, n) for n in names},
        "versions": (torch.version.hip, torch.version.cuda),
        "tuner": (Autotuner.run, Autotuner._bench),
        "bench": (triton.testing.do_bench, triton.testing.do_bench_cudagraph),
        "shared": triton.compiler.compiler.max_shared_mem,
        "engine": torch.autograd._engine_run_backward,
        "hooks": list(triton.knobs.runtime.kernel_load_start_hook.calls),
        "filters": list(warnings.filters),
        "modes": torch._C._len_torch_function_stack(),
    }


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = world()
    yield
    assert world() == before


def test_a_launch_is_recorded_and_not_run():
    x, y = torch.ones(1216, 4096, dtype=torch.float16), torch.full((1216, 4096), 7.0, dtype=torch.float16)
    with dry_run("gfx942") as run:
        scale_rows[(1216,)](x, y, 2.0, 4096, BLOCK=2048, num_warps=8)
        scale_rows[lambda meta: (meta["BLOCK"], 2)](x, y, 2.0, 4096, BLOCK=1024)
    assert (y == 7.0).all()
    first, second = run.launches
    assert (first.kernel, first.grid, second.grid) == ("scale_rows", (1216, 1, 1), (1024, 2, 1))
    assert first.compiled.num_warps == 8 and first.report.threads == 512 and not first.tuning
    assert first.compiled.constants["BLOCK"] == 2048 and first.report.grid == (1216, 1, 1)
    assert first.compiled.arch == "gfx942" and "gfx942" in first.compiled.assembly
    assert "scale_rows" in str(run) and run.kernels == ["scale_rows"]


def test_specialisation_is_the_jits_own():
    data = torch.zeros(4100, dtype=torch.float16)
    with dry_run() as run:
        scale_rows[(1,)](data[4:], data, 2.0, 4096, BLOCK=2048)
        scale_rows[(1,)](data[:4096], data, 2.0, 4096, BLOCK=2048)
    narrow, wide = run.reports
    assert 128 not in narrow.isa.global_loads and 128 in wide.isa.global_loads


@pytest.mark.parametrize("arch", ["gfx90a", "gfx950"])
def test_other_architectures(arch):
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="meta")
    with dry_run(arch, device="meta") as run:
        matmul[(64 * 64, 1)](a, a, a, 8192, 8192, 8192, BM=128, BN=128, BK=64, num_warps=8)
    (launch,) = run.launches
    assert launch.report.arch == arch and f'"hip:{arch}"' in launch.compiled.ttgir and launch.report.isa.mfma


def test_autotuned_kernels_report_every_configuration_and_choose_the_first_good_one():
    x = torch.ones(8, 4096)
    with dry_run() as run:
        tuned_scale_rows[(8,)](x, x, 2.0, 4096)
        tuned_scale_rows[(8,)](x, x, 2.0, 4096)
    assert [launch.tuning for launch in run.launches] == [True] * 9 + [False] * 2
    assert len({launch.config for launch in run.launches if launch.tuning}) == 9
    chosen = run.launches[-1].compiled
    assert (chosen.constants["BLOCK"], chosen.num_warps) == (1024, 2) and run.launches[-1].config == ""
    assert not tuned_scale_rows.cache, "the choice of a dry run must not reach a real run"
    with dry_run() as again:
        tuned_scale_rows[(8,)](x, x, 2.0, 4096)
    assert sum(launch.tuning for launch in again.launches) == 9


def test_the_chosen_configuration_respects_the_hardware():
    a, c = torch.ones(256, 256, dtype=torch.float16), torch.ones(256, 256, dtype=torch.float16)
    with dry_run() as run:
        greedy_tuned[(16, 1)](a, a, c, 256, 256, 256)
    assert [launch.report.launches for launch in run.launches] == [False, False, True, True]
    assert [launch.report.findings[0].rule for launch in run.launches[:2]] == ["threads", "lds"]
    assert run.launches[-1].compiled.constants["BM"] == 64 and run.launches[-1].compiled.num_warps == 4


def test_configurations_that_do_not_compile_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with dry_run() as run:
        picky_tuned[(1,)](torch.zeros(8))
    assert run.launches[-1].compiled.constants["N"] == 8
    assert [(f.kernel, f.config.startswith("N: 64")) for f in run.failures] == [("picky", True)]
    assert "below 32" in run.failures[0].error
    assert not list(tmp_path.rglob("*.autotune.json")), "no invented timing may reach Triton's disk cache"


def test_heuristics():
    kernel = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})(scale_rows)
    with dry_run() as run:
        kernel[(4,)](torch.zeros(4, 3000), torch.zeros(4, 3000), 2.0, 3000)
    assert run.launches[0].compiled.constants["BLOCK"] == 4096


def test_what_hardware_refuses_is_recorded_and_goes_on():
    x = torch.zeros(4096)
    with dry_run() as run:
        scale_rows[(1,)](x, x, 2.0, 4096, BLOCK=4096, num_warps=32)
    assert run.launches[0].report.findings[0].rule == "threads" and not run.launches[0].report.launches


def test_libraries_are_told_about_the_gpu():
    x, w, there = torch.zeros(4, 8), torch.nn.Linear(8, 8), torch.cuda.is_available()
    with dry_run("gfx942"):
        properties = torch.cuda.get_device_properties(x.device)
        assert (properties.multi_processor_count, properties.gcnArchName[:6]) == (304, "gfx942")
        assert torch.cuda.is_available() and torch.version.hip and x.is_cuda and x.device.type == "cuda"
        assert triton.runtime.driver.active.get_current_target().arch == "gfx942"
        assert triton.runtime.driver.active.utils.get_device_properties(0)["max_shared_mem"] == 65_536
        assert torch.cuda.current_stream().cuda_stream == 0 and x.get_device() == 0 and not x.is_cpu
        made = [torch.empty(3, device=x.device), torch.ones(3, device="cuda:0"), x.cuda(), x.to("cuda"), x.pin_memory()]
        made += [
            torch.empty(2, device="cuda", pin_memory=True),
            torch.zeros(2, device=0),
            x.new_zeros(3, device="cuda"),
            w.to("cuda").weight,
        ]
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.current_stream()):
            assert all(t.is_cuda for t in made)
        assert torch.equal(x + 1, torch.ones(4, 8)), "ordinary arithmetic still works"
        assert "cuda" in repr(x.device) and len(repr(x)) > 10
    assert all(t.device.type == "cpu" for t in made) and torch.cuda.is_available() is there


def test_meta_tensors_keep_true_sizes():
    a = torch.empty(1 << 17, 1 << 14, dtype=torch.float16, device="meta")  # 4 GiB: beyond 32-bit buffer offsets
    with dry_run(device="meta") as run:
        out = torch.empty_like(a, device="cuda")
        scale_rows[(1 << 17,)](a, out, 2.0, 1 << 14, BLOCK=2048)
        assert a.is_cuda
    assert "global_load_dwordx4" in run.launches[0].compiled.assembly and out.is_meta


def test_everything_is_put_back_after_an_exception(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # what is there already is not compiled
    x = torch.zeros(16)
    with pytest.raises(ZeroDivisionError), dry_run():
        scale_rows[(1,)](x, x, 2.0, 16, BLOCK=16)
        raise ZeroDivisionError
    with pytest.raises(triton.compiler.errors.CompilationError), dry_run():
        picky[(1,)](x, N=99)
    assert all(key in (0,) or not hasattr(key, "serial") for key in scale_rows.device_caches)


def test_a_kernel_kept_from_a_dry_run_cannot_be_launched_later():
    x = torch.zeros(16)
    with dry_run():
        kept = scale_rows[(1,)](x, x, 2.0, 16, BLOCK=16)
    with pytest.raises(DryRunError, match="has ended"):
        kept.run(1, 1, 1, 0, kept.function, None, None, None, None)


def test_nesting_and_bad_requests():
    x = torch.zeros(16)
    with dry_run("gfx942") as outer:
        with dry_run("gfx90a") as inner:
            scale_rows[(1,)](x, x, 2.0, 16, BLOCK=16)
        scale_rows[(2,)](x, x, 2.0, 16, BLOCK=16)
    assert [r.arch for r in inner.reports] == ["gfx90a"] and [r.arch for r in outer.reports] == ["gfx942"]
    with pytest.raises(DryRunError, match="device='cuda'"), dry_run(device="cuda"):
        pass
    with pytest.raises(ValueError, match="arch='gfx1100'"), dry_run("gfx1100"):
        pass


def test_the_interpreter_is_refused(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(DryRunError, match="TRITON_INTERPRET"), dry_run():
        pass


def test_a_second_thread_waits_for_the_first_block():
    order = []

    def other():
        with dry_run("gfx90a") as run:
            order.append("second")
            scale_rows[(1,)](torch.zeros(16), torch.zeros(16), 2.0, 16, BLOCK=16)
        order.append(run.reports[0].arch)

    with dry_run("gfx942") as run:
        thread = threading.Thread(target=other)
        thread.start()
        scale_rows[(1,)](torch.zeros(16), torch.zeros(16), 2.0, 16, BLOCK=16)
        thread.join(0.2)
        order.append(run.reports[0].arch)
    thread.join(60)
    assert order == ["gfx942", "second", "gfx90a"]


# ---------------------------------------------------------------- operators from the package index

B, T, H, V = 2, 8, 1024, 4096


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


def liger_operators():
    from liger_kernel.ops import (
        cross_entropy,
        dyt,
        fused_add_rms_norm,
        fused_linear_cross_entropy,
        geglu,
        group_norm,
        jsd,
        kl_div,
        layer_norm,
        poly_norm,
        relu_squared,
        rms_norm,
        rope,
        softmax,
        sparsemax,
        swiglu,
        tvd,
    )

    plain = torch.randn
    target = torch.randint(0, V, (B * T,))
    return {
        "rms_norm": lambda: rms_norm.LigerRMSNormFunction.apply(grad(B, T, H), grad(H), 1e-6),
        "layer_norm": lambda: layer_norm.LigerLayerNormFunction.apply(grad(B, T, H), grad(H), grad(H), 1e-6),
        "group_norm": lambda: group_norm.LigerGroupNormFunction.apply(grad(B, 32, 64), grad(32), grad(32), 32, 4, 1e-6),
        "swiglu": lambda: swiglu.LigerSiLUMulFunction.apply(grad(B, T, H), grad(B, T, H)),
        "geglu": lambda: geglu.LigerGELUMulFunction.apply(grad(B, T, H), grad(B, T, H)),
        "rope": lambda: rope.LigerRopeFunction.apply(
            grad(B, 8, T, 128), grad(B, 2, T, 128), plain(1, T, 128), plain(1, T, 128)
        ),
        "softmax": lambda: softmax.LigerSoftmaxFunction.apply(grad(B * T, V)),
        "sparsemax": lambda: sparsemax.LigerSparsemaxFunction.apply(grad(B * T, V), -1),
        "kl_div": lambda: kl_div.LigerKLDivLossFunction.apply(grad(B * T, V), plain(B * T, V)),
        "tvd": lambda: tvd.LigerTVDLossFunction.apply(grad(B * T, V), plain(B * T, V)),
        "jsd": lambda: jsd.LigerJSDFunction.apply(grad(B * T, V), plain(B * T, V)),
        "cross_entropy": lambda: cross_entropy.LigerCrossEntropyFunction.apply(grad(B * T, V), target, None),
        "fused_linear_cross_entropy": lambda: fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction.apply(
            grad(B * T, H), grad(V, H), target
        ),
        "fused_add_rms_norm": lambda: fused_add_rms_norm.LigerFusedAddRMSNormFunction.apply(
            grad(B, T, H), grad(B, T, H), grad(H), 1e-6
        ),
        "relu_squared": lambda: relu_squared.LigerReLUSquaredFunction.apply(grad(B, T, H)),
        "poly_norm": lambda: poly_norm.LigerPolyNormFunction.apply(
            grad(B, T, H), grad(3), torch.tensor(0.5, requires_grad=True)
        ),
        "dyt": lambda: dyt.LigerDyTFunction.apply(grad(B, T, H), grad(1), grad(H), grad(H)),
    }


# Imported before the first test: an import may add warning filters, and every test compares the world before and after.
OPERATORS = {}
with contextlib.suppress(ImportError):
    OPERATORS = liger_operators()

# Losses compute their gradient in the forward kernel, so their backward pass launches nothing when it is scaled by 1.
IN_FORWARD = {"tvd", "jsd", "cross_entropy", "fused_linear_cross_entropy"}
NAMES = [
    "rms_norm",
    "layer_norm",
    "group_norm",
    "swiglu",
    "geglu",
    "rope",
    "softmax",
    "sparsemax",
    "kl_div",
    "tvd",
    "jsd",
    "cross_entropy",
    "fused_linear_cross_entropy",
    "fused_add_rms_norm",
    "relu_squared",
    "poly_norm",
    "dyt",
]


@pytest.mark.parametrize("name", NAMES)
def test_operators_from_the_package_index_forward_and_backward(name):
    if not OPERATORS:
        pytest.skip("liger-kernel is not installed")
    call = OPERATORS[name]
    with dry_run("gfx942") as run:
        out = call()
        forward = len(run.launches)
        outputs = [t for t in (out if isinstance(out, tuple) else (out,)) if torch.is_tensor(t) and t.requires_grad]
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    assert forward >= 1 and (len(run.launches) > forward or name in IN_FORWARD)
    for launch in run.launches:
        r = launch.report
        assert "gfx942" in launch.compiled.assembly and r.isa.instructions > 10 and min(launch.grid) >= 1
        assert r.resources.vgprs_allocated == r.occupancy.vgprs and 1 <= r.occupancy.waves_per_simd <= 8
        assert r.launches and not r.resources.vgpr_spills
    if name == "dyt":  # autotuned: 18 configurations in each direction, then the chosen one
        assert sum(launch.tuning for launch in run.launches) == 36 and len(run.launches) == 38
    if name == "rms_norm":  # its backward grid is one program per CU: the library was told that there are 304
        assert run.launches[-1].grid == (304, 1, 1)


def test_all_operators_are_listed():
    assert (not OPERATORS or sorted(NAMES) == sorted(OPERATORS)) and len(NAMES) >= 10
