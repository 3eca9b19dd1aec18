# SPDX-License-Identifier: MIT
"""What wrappers check before a launch, and how an architecture's configuration is chosen."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace

import pytest
import torch

from cdna.dry_run.driver import dry_run
from rocm_guide.kernels import arguments as launch
from rocm_guide.kernels.arguments import KernelError, architecture, choose


def test_a_dry_run_is_the_architecture_it_says():
    for arch in ("gfx942", "gfx90a"):
        with dry_run(arch, device="meta"):
            assert architecture(torch.empty(4, device="cuda")) == arch
            assert launch.unit_count(torch.empty(4, device="cuda")) == {"gfx942": 304, "gfx90a": 110}[arch]


def test_another_gpu_than_the_current_one_is_refused(monkeypatch):
    """Triton launches on the current GPU, whatever the tensors' is: an illegal address at best."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "hip", None)

    def on(index):
        return SimpleNamespace(device=torch.device("cuda", index))

    assert architecture(on(0)) == "sm_90"
    with pytest.raises(KernelError, match=r"cuda:1.*cuda:0.*torch.cuda.device\(1\)"):
        architecture(on(1))


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes tensors on the CPU")
def test_the_cpu_needs_the_interpreter():
    with pytest.raises(KernelError, match="TRITON_INTERPRET=1"):
        architecture(torch.ones(3))
    with pytest.raises(KernelError, match="meta"):
        architecture(torch.ones(3, device="meta"))


def test_the_architecture_of_the_device_at_hand(device):
    name = architecture(torch.ones(3, device=device))
    assert name == "interpreter" if device == "cpu" else name.startswith(("sm_", "gfx"))


def test_choose_falls_back_and_says_so():
    table = {"gfx942": 1, "sm_90": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [choose(table, a) for a in ("gfx942", "sm_90", "interpreter")] == [1, 2, 1]
    with pytest.warns(UserWarning, match="sm_80: using that of gfx942"):
        assert choose(table, "sm_80") == 1
    with pytest.raises(KernelError, match="gfx950"):
        choose({"sm_90": 1}, "gfx950")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: launch.check_same_device(x=torch.ones(1), w=torch.ones(1, device="meta")), "w is on meta, x on cpu"),
        (lambda: launch.check_shape("w", torch.ones(2, 3), (None, 4)), r"give \(any, 4\)"),
        (lambda: launch.check_shape("w", torch.ones(2), (2, 1)), r"shape \(2,\)"),
        (lambda: launch.check_contiguous("a", torch.ones(3, 2).t()), r"\(2, 3\) has strides \(1, 2\)"),
        (lambda: launch.check_last_contiguous("a", torch.ones(3, 2).t()), "stride 2"),
        (lambda: launch.check_dtype("a", torch.ones(2), (torch.float16,)), "a is float32: give float16"),
        (lambda: launch.check_number("eps", -1.0, 0.0), "eps=-1.0: give a finite number of 0 or more"),
        (lambda: launch.check_number("eps", float("inf")), "eps=inf"),
        (lambda: launch.check_number("eps", 3.5e38), "eps=3.5e"),
        (lambda: launch.check_number("eps", True), "eps=True"),
        (lambda: launch.check_number("n", 7, 1, 5), "of 1 or more and 5 or less"),
    ],
)
def test_faults_are_named(call, words):
    with pytest.raises(KernelError, match=words):
        call()
    launch.check_same_device(x=torch.ones(1), w=None)
    launch.check_last_contiguous("a", torch.ones(3, 1)[:, :1])


@pytest.mark.parametrize("name", ["matrix_instr_nonkdim", "waves_per_eu", "kpack"])
def test_options_of_the_other_vendor_are_left_out(name):
    """NVIDIA's compiler refuses AMD's options; every AMD architecture takes them."""
    options = {"num_warps": 4, "num_stages": 1, name: 2}
    assert launch.compiler_options("sm_80", options) == {"num_warps": 4, "num_stages": 1}
    assert launch.compiler_options("gfx90a", options) == options


def test_the_allocator_of_another_library_is_put_back():
    from triton.runtime import _allocation

    from rocm_guide.kernels.direct import memory_from

    before = _allocation._allocator.get()
    with pytest.raises(ZeroDivisionError), memory_from(lambda size: torch.empty(size, dtype=torch.int8)):
        assert _allocation._allocator.get()(128, 128, None).numel() == 128
        raise ZeroDivisionError
    assert _allocation._allocator.get() is before


def test_the_matrix_instruction():
    assert launch.compiler_options("gfx942", {"num_warps": 4}, matrix=True)["matrix_instr_nonkdim"] == 16
    assert launch.compiler_options("gfx942", {"matrix_instr_nonkdim": 32}, matrix=True)["matrix_instr_nonkdim"] == 32
    assert launch.compiler_options("sm_90", {"num_warps": 4}, matrix=True) == {"num_warps": 4}
