# SPDX-License-Identifier: MIT
"""Compilation without a GPU: all stages, all architectures, the JIT's own specialisation, errors in one line."""

import re
import tomllib
import warnings
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

triton = pytest.importorskip("triton")
import triton.language as tl

from cdna import compile as module
from cdna.compile import (
    CompileError,
    SignatureError,
    TritonVersionError,
    check_triton,
    checked_with,
    compile_kernel,
    triton_release,
    unwrap_kernel,
)
from cdna.elf import read_code_object
from cdna.examples.tuning import attention_rows, matmul, scale_rows, tuned_scale_rows
from cdna.occupancy import occupancy

HALF = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
GEMM = [HALF, HALF, HALF, 4096, 4096, 4096]


@triton.jit
def broken(x_ptr, N: tl.constexpr):
    tl.static_assert(N < 0, "N is too large for this kernel")
    tl.store(x_ptr, 0.0)


@triton.jit
def shifted(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def without_locations(text):
    """IR without source locations: a kernel from Triton's cache carries the path that it was first compiled from."""
    return [re.sub(r" loc\(.*", "", line) for line in text.splitlines() if not line.startswith("#loc")]


def loads(kernel):
    return sorted(set(re.findall(r"\b((?:global|buffer)_load_\w+)", kernel.assembly)))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_every_stage_is_there_for_every_architecture(arch):
    k = compile_kernel(matmul, GEMM, {"BM": 64, "BN": 64, "BK": 32}, arch=arch, num_warps=4)
    assert (k.name, k.arch, k.num_warps, k.triton) == ("matmul", arch, 4, triton.__version__)
    assert "tt.dot" in k.ttir and "#ttg" not in k.ttir
    assert f'ttg.target = "hip:{arch}"' in k.ttgir
    assert "amdgpu_kernel" in k.llir and f"gfx{arch[3:]}" in k.assembly and "v_mfma" in k.assembly
    assert k.code_object[:4] == b"\x7fELF" and k.shared > 0
    assert k.constants == {"BM": 64, "BN": 64, "BK": 32, "SPLIT_K": 1, "RELU": False}


def test_options_reach_the_compiler():
    tile = {"BM": 128, "BN": 128, "BK": 64}
    plain = compile_kernel(matmul, GEMM, tile, num_warps=8)
    assert "v_mfma_f32_32x32x8" in plain.assembly and '"amdgpu-waves-per-eu"="2' not in plain.llir
    tuned = compile_kernel(matmul, GEMM, tile, num_warps=8, waves_per_eu=2, matrix_instr_nonkdim=16)
    assert "v_mfma_f32_16x16x16" in tuned.assembly
    assert '"amdgpu-waves-per-eu"="2,2"' in tuned.llir.replace("2, 2", "2,2")
    assert tuned.options["waves_per_eu"] == 2 and tuned.options["matrix_instr_nonkdim"] == 16


def test_types_as_text_equal_example_tensors():
    """The hints that the JIT derives from an ordinary tensor are exactly ``:16:2g``."""
    by_example = compile_kernel(scale_rows, [HALF, HALF, 2.0, 4096], {"BLOCK": 2048})
    by_type = compile_kernel(scale_rows, ["*fp16:16:2g", "*fp16:16:2g", "fp32", "i32:16"], {"BLOCK": 2048})
    assert by_type.signature == by_example.signature
    assert without_locations(by_type.ttir) == without_locations(by_example.ttir)
    assert loads(by_type) == ["buffer_load_dwordx4"]
    large = compile_kernel(shifted, ["*fp16:16", "*fp16:16", "i32:16"], {"B": 2048})
    assert loads(large) == ["global_load_dwordx4"]
    unaligned = compile_kernel(shifted, ["*fp16", "*fp16", "i32"], {"B": 2048})
    assert "dwordx4" not in " ".join(loads(unaligned))


def test_an_unaligned_view_is_specialised_as_the_jit_would():
    data = torch.zeros(5000, dtype=torch.float16)
    assert loads(compile_kernel(shifted, [data[8:], data, 4096], {"B": 2048})) == ["buffer_load_dwordx4"]
    assert "dwordx4" not in " ".join(loads(compile_kernel(shifted, [data[1:], data, 4096], {"B": 2048})))


def test_arguments_by_name_and_value_specialisation():
    named = {"x_ptr": HALF, "y_ptr": HALF, "factor": 1.5, "cols": 1}
    k = compile_kernel(scale_rows, named, {"BLOCK": 256})
    assert k.constants["cols"] == 1, "the JIT turns an argument 1 into a constant"
    fixed = compile_kernel(scale_rows, {"x_ptr": HALF, "y_ptr": HALF, "factor": 1.5}, {"BLOCK": 256, "cols": 512})
    assert fixed.constants["cols"] == 512 and fixed.signature["cols"] == "constexpr"
    assert compile_kernel(scale_rows, [HALF, HALF, 2.0, "i32:1"], {"BLOCK": 256}).constants["cols"] == 1


def test_wrappers_are_looked_through():
    assert unwrap_kernel(tuned_scale_rows) is scale_rows
    assert unwrap_kernel(triton.heuristics({"BLOCK": lambda a: 8})(tuned_scale_rows)) is scale_rows
    assert compile_kernel(tuned_scale_rows, [HALF, HALF, 2.0, 4096], {"BLOCK": 256}).name == "scale_rows"


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: compile_kernel(scale_rows, [HALF], {"BLOCK": 8}), SignatureError, "y_ptr"),
        (lambda: compile_kernel(scale_rows, [HALF] * 5, {"BLOCK": 8}), SignatureError, "5 arguments for 4"),
        (lambda: compile_kernel(scale_rows, {"z": HALF}, {"BLOCK": 8}), SignatureError, "'z'"),
        (lambda: compile_kernel(scale_rows, ["*half"] * 4, {"BLOCK": 8}), SignatureError, r"'\*half'"),
        (lambda: compile_kernel(scale_rows, ["*fp16:8"] * 4, {"BLOCK": 8}), SignatureError, "'8'"),
        (lambda: compile_kernel(print, []), SignatureError, "not a @triton.jit"),
        (lambda: compile_kernel(broken, [HALF], {"N": 1}), CompileError, "N is too large"),
        (
            lambda: compile_kernel(scale_rows, [HALF, HALF, 2.0, 8], {"BLOCK": 8}, num_warps=3),
            CompileError,
            "num_warps=3: use 1, 2, 4",
        ),
        (lambda: compile_kernel(scale_rows, [HALF, HALF, 2.0, 8], {"BLOCK": 8}, waves=3), CompileError, "waves"),
        (lambda: compile_kernel(scale_rows, [HALF, HALF, 2.0, 8], {"BLOCK": 8}, arch="sm_90"), ValueError, "sm_90"),
    ],
)
def test_errors_are_one_line_and_name_the_value(call, error, part):
    with pytest.raises(error, match=part) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_an_older_triton_is_refused_in_one_line(monkeypatch):
    for version in ("2.3.1", "3.5.1", "3.5.0+rocm7.0.git1234"):
        monkeypatch.setattr(triton, "__version__", version)
        with pytest.raises(TritonVersionError, match=re.escape(version)) as caught:
            compile_kernel(scale_rows, [HALF, HALF, 2.0, 8], {"BLOCK": 8})
        assert "\n" not in str(caught.value) and "pip install" in str(caught.value)


def test_every_triton_that_pyproject_allows_compiles_without_a_word(monkeypatch):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (line,) = (x for x in project["optional-dependencies"]["course"] if x.startswith("triton"))
    allowed = Requirement(line).specifier
    for minor in range(30):
        version = f"3.{minor}.0+git1a2b3c.rocm10.1"
        monkeypatch.setattr(triton, "__version__", version)
        assert triton_release() == (3, minor)
        if allowed.contains(f"3.{minor}.0"):
            with warnings.catch_warnings(action="error"):
                assert check_triton() == version
    monkeypatch.undo()
    assert check_triton() == triton.__version__


def test_figures_of_another_release_are_said_to_be_so(monkeypatch, capsys):
    monkeypatch.setattr(triton, "__version__", "3.8.0+git1a2b.rocm10.1")
    assert checked_with("3.8") and not capsys.readouterr().out
    assert not checked_with("3.9")
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "3.8.0+git1a2b.rocm10.1" in said and "checked with 3.9" in said


def test_a_newer_triton_gives_one_warning_and_is_tried(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    with pytest.warns(UserWarning, match=r"triton 3\.10\.0 is newer than 3\.9") as caught:
        for _ in range(3):
            assert check_triton() == "3.10.0"
            assert "s_endpgm" in compile_kernel(scale_rows, [HALF, HALF, 2.0, 8], {"BLOCK": 8}).assembly
    assert len(caught) == 1


def test_interpreted_kernels_are_refused():
    from triton.runtime.interpreter import InterpretedFunction

    with pytest.raises(SignatureError, match="TRITON_INTERPRET"):
        unwrap_kernel(InterpretedFunction(scale_rows.fn))


def test_missing_stages_are_named():
    with pytest.raises(CompileError, match="no ttgir stage"):
        module.compiled_from_triton({"hsaco": b""}, {"name": "k"}, {}, {})


def test_occupancy_equals_llvms_figure_on_real_kernels():
    """LLVM does not see Triton's dynamic LDS, so the comparison is for the registers and static LDS of each kernel."""
    q = torch.empty(4096, 128, dtype=torch.float16, device="meta")
    kernels = [
        compile_kernel(matmul, GEMM, {"BM": m, "BN": n, "BK": k}, num_warps=warps, waves_per_eu=hint)
        for m, n, k in ((32, 32, 32), (64, 64, 32), (128, 64, 32), (128, 128, 32), (256, 128, 32))
        for warps in (2, 4, 8)
        for hint in (0, 2)
    ]
    kernels += [
        compile_kernel(attention_rows, [q, q, q, q, 0.1, 4096], {"D": 128, "BM": m, "BN": 32}, num_stages=stages)
        for m in (32, 64, 128)
        for stages in (1, 2)
    ]
    kernels += [compile_kernel(scale_rows, [HALF, HALF, 2.0, 4096], {"BLOCK": b}) for b in (256, 2048, 8192, 32768)]
    seen = set()
    for k in kernels:
        r = read_code_object(k.code_object).kernels[0].resources
        ours = occupancy(r.vgprs_allocated, r.lds_static, waves_per_workgroup=k.num_warps, sgprs=r.sgprs_allocated)
        llvm = int(re.search(r"^; Occupancy: (\d+)", k.assembly, re.M)[1])
        assert ours.llvm_figure == llvm and ours.waves_per_simd <= llvm, (k.name, k.constants, k.options, r)
        seen.add(llvm)
    assert seen >= {1, 2, 3, 4, 8}, "the comparison should cover the staircase"
