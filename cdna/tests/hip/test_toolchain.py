# SPDX-License-Identifier: MIT
"""The HIP sources for gfx942 without ROCm: they compile, and the assembly says what was asked of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cdna.arch import ARCHS
from cdna.base import InputError
from cdna.hip import toolchain
from cdna.hip.extension import build_extension, extension_sources, skinny_splits
from cdna.hip.toolchain import HipError, compile_hip, find_clang, sources, write_sources
from cdna.isa.kernel import parse_asm
from cdna.occupancy import occupancy

KERNELS = {"ladder": 9, "rmsnorm_fp8": 12, "skinny_gemm": 4, "swiglu_fp8": 8}


@pytest.fixture(scope="module")
def kernels():
    return {name: {k.name: k for k in parse_asm(compile_hip(name))} for name in sources()}


def ops(kernel) -> Counter:
    return Counter(re.sub("_e(32|64)$", "", i.op) for i in kernel.instructions)


def waves(kernel, threads: int) -> float:
    r = kernel.resources
    return occupancy(r.vgprs_allocated, r.lds_static, waves_per_workgroup=threads // 64).waves_per_simd


def test_every_kernel_is_there_without_spills_or_calls(kernels):
    assert {name: len(found) for name, found in kernels.items()} == KERNELS
    for found in kernels.values():
        for k in found.values():
            r = k.resources
            assert (k.arch, k.calls, r.vgpr_spills, r.sgpr_spills, r.scratch) == ("gfx942", 0, 0, 0, 0), k.name
            assert "@rel32@lo" not in " ".join(i.args for i in k.instructions)
            assert r.lds_static <= 65536


def test_the_fused_kernels_use_wide_accesses_and_packed_conversions(kernels):
    for name in ("rmsnorm_fp8", "swiglu_fp8"):
        for k in kernels[name].values():
            assert set(k.widths("global", "load")) == {128}, k.name
            converted = ops(k)["v_cvt_pk_fp8_f32"]
            assert converted * 2 == 8 * k.widths("global", "store")[64], "two numbers for each conversion"
            assert waves(k, 256 if "rows" not in k.name and name == "swiglu_fp8" else 1024) >= 4
    assert waves(kernels["rmsnorm_fp8"]["rmsnorm_fp8_f16_16k"], 1024) == 8
    assert ops(kernels["rmsnorm_fp8"]["rmsnorm_fp8_f16_16k"])["v_pk_add_f16"] == 8
    # Eight exponentials for eight numbers, and no instruction more to get from e to 2 than the one multiplication.
    k = ops(kernels["swiglu_fp8"]["swiglu_fp8_f16"])
    assert k["v_exp_f32"] == k["v_rcp_f32"] == 8 and k["v_exp_f16"] == 0


def test_the_skinny_gemm_is_what_the_document_describes(kernels):
    for name, k in kernels["skinny_gemm"].items():
        uses = {u.op: u for u in k.matrix_uses()}
        op, count = ("v_smfmac_f32_16x16x64_fp8_fp8", 4) if "sparse" in name else ("v_mfma_f32_16x16x32_fp8_fp8", 8)
        assert set(uses) == {op} and uses[op].count == uses[op].in_loops == count
        loads = k.widths("global", "load", True)
        assert loads[128] >= 10 and k.widths("lds", "load", True)[128] >= 4
        assert 2 * k.resources.lds_static <= 65536 and waves(k, 768) == 6, "two workgroups on a compute unit"


def test_producers_do_not_wait_for_memory_while_they_poll(kernels):
    """Between the weight's eight loads and the first write to LDS, no wait for vector memory but the staggered ones."""
    k = kernels["skinny_gemm"]["skinny_gemm_sparse_f16"]
    body = list(k.instructions)
    loads = [i for i, x in enumerate(body) if x.op == "global_load_dwordx4" and "nt" in x.args.split()]
    assert len(loads) == 8
    after = body[loads[-1] + 1 :]
    first_write = next(i for i, x in enumerate(after) if x.op.startswith("ds_write"))
    polling = after[:first_write]
    assert any(x.op.startswith("ds_read_b32") for x in polling) and any(x.op == "s_sleep" for x in polling)
    waits = [x.args for x in polling if x.op == "s_waitcnt"]
    assert waits[-1] == "vmcnt(7)" and not any("vmcnt" in w for w in waits[:-1])


def test_the_ladder_shows_in_the_assembly(kernels):
    k = kernels["ladder"]
    assert set(k["rung_pointwise"].widths("global", "load")) == {16}
    assert all(set(k[f"rung_{n}"].widths("global", "load")) == {128} for n in ("vectors", "coalesced", "lds"))
    count = {n: sum(k[f"rung_{n}"].widths("global", "load").values()) for n in ("coalesced", "lds", "registers")}
    assert count == {"coalesced": 8, "lds": 6, "registers": 6}
    assert k["rung_lds"].resources.lds_static >= 32768 > k["rung_registers"].resources.lds_static
    assert ops(k["rung_packed"])["v_cvt_pk_fp8_f32"] == 8 and not ops(k["rung_registers"])["v_cvt_pk_fp8_f32"]
    assert len(k["rung_packed"].instructions) < len(k["rung_registers"].instructions) / 2
    sizes = {n: len(k[f"rung_swiglu_{n}"].instructions) for n in ("packed", "exp2")}
    assert sizes["exp2"] < sizes["packed"] / 2
    assert ops(k["rung_swiglu_packed"])["v_exp_f32"] == ops(k["rung_swiglu_exp2"])["v_exp_f32"] == 8


def test_gfx950_compiles_too_with_its_own_maximum():
    text = compile_hip("swiglu_fp8", "gfx950")
    assert "0x43e00000" in text and parse_asm(text)[0].arch == "gfx950"  # 448
    assert "0x43700000" in compile_hip("swiglu_fp8")  # 240


def test_the_launchers_are_valid_host_code(tmp_path):
    for path in (p for name, p in write_sources(tmp_path).items() if name.endswith(".hip")):
        command = [*find_clang(), "-x", "hip", "--cuda-host-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc"]
        toolchain.run_clang(
            [*command, "-DGUIDE_BARE", "-std=c++17", "-fsyntax-only", "-Werror", "-Wall", str(path)], path.name
        )


@pytest.mark.slow
def test_the_binding_compiles_against_torch(tmp_path):
    from torch.utils.cpp_extension import include_paths

    if not shutil.which("g++"):
        pytest.skip("no g++")
    command = ["g++", "-std=c++20", "-fsyntax-only", *(f"-I{p}" for p in include_paths()), str(extension_sources()[0])]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[:2000]


STUB = """#!/bin/sh
echo "$0 $*" >> "$LOG"
while [ $# -gt 0 ]; do
  case "$1" in -o|-MF) mkdir -p "$(dirname "$2")"; : > "$2";; esac
  shift
done
"""
# What a ROCm build of torch says of itself; the compilers are stubs that write down how they are called.
PRETEND = """
import runpy, sys, torch
torch.version.hip, torch.cuda._is_compiled = "7.0.0", lambda: True
sys.argv = ["setup.py", "build_ext", "--build-temp", "temp", "--build-lib", "lib"]
runpy.run_path("setup.py", run_name="__main__")
"""


def test_the_package_compiles_every_source_with_hipcc_below_its_own_folder(tmp_path):
    """torch's build steps for ROCm, with hipcc replaced: nothing is rewritten, nothing lands outside."""
    package, rocm = tmp_path / "deep" / "hip_extension", tmp_path / "rocm"
    shutil.copytree(Path(toolchain.__file__).parents[2] / "hip_extension", package)
    for name in ("bin/hipcc", "cxx"):
        (rocm / name).parent.mkdir(parents=True, exist_ok=True)
        (rocm / name).write_text(STUB)
        (rocm / name).chmod(0o755)
    stub = str(rocm / "cxx")
    settings = {**os.environ, "ROCM_HOME": str(rocm), "LOG": str(tmp_path / "log"), "CXX": stub, "CC": stub}
    settings |= {"LDSHARED": stub, "LDCXXSHARED": stub, "TORCH_DONT_CHECK_COMPILER_ABI": "1"}
    run = subprocess.run([sys.executable, "-c", PRETEND], cwd=package, env=settings, capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]
    lines = (tmp_path / "log").read_text().splitlines()
    compiled = [x for x in lines if "bin/hipcc" in x and " -c " in x]
    names = {word.rsplit("/", 1)[-1] for x in compiled for word in x.split() if word.endswith(".hip")}
    assert names == {"rmsnorm_fp8.hip", "skinny_gemm.hip", "swiglu_fp8.hip"}
    assert all("--offload-arch=gfx942" in x and "-fPIC" in x for x in compiled)
    assert any("binding.cpp" in x for x in lines) and any("-lamdhip64" in x for x in lines)
    objects = [p.relative_to(tmp_path) for p in tmp_path.rglob("*.o")]
    assert len(objects) == 4 and all(str(p).startswith("deep/hip_extension/temp/") for p in objects), objects
    made = [p.name for p in (package / "lib").iterdir()]
    assert len(made) == 1 and made[0].startswith("cdna_hip_kernels"), "the name that cdna_hip.py loads"


def test_errors_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(HipError, match="no such source"):
        compile_hip("softmax")
    bad = tmp_path / "bad.hip"
    bad.write_text('#include "guide.h"\nGUIDE_KERNEL(64) f() { nonsense; }\n')
    with pytest.raises(HipError, match=r"bad.hip for gfx942: .*undeclared identifier 'nonsense'"):
        compile_hip(bad)
    with pytest.raises(HipError, match="not built for ROCm"):
        build_extension()
    for sizes in ((33, 256), (32, 255), (0, 256)):
        with pytest.raises(HipError, match="multiples"):
            skinny_splits(*sizes)
    monkeypatch.setenv("CDNA_CLANG", sys.executable)
    with pytest.raises(HipError, match="CDNA_CLANG"):
        find_clang()
    monkeypatch.delenv("CDNA_CLANG")
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    with pytest.raises(HipError, match="pip install ziglang"):
        find_clang()


def test_grids_fill_the_gpu_at_the_documents_shapes(monkeypatch):
    for columns, depth in ((2304, 16384), (13312, 16384), (16384, 6656)):
        splits = skinny_splits(columns, depth)
        assert columns // 32 * splits >= 304 and depth // 256 % splits == 0
    assert skinny_splits(2304, 16384) == skinny_splits(2304, 16384, units=ARCHS["gfx942"].cus)
    monkeypatch.setitem(ARCHS, "gfx942", replace(ARCHS["gfx942"], cus=38))
    assert skinny_splits(2304, 16384) == 1  # from the table of GPUs
    assert skinny_splits(32, 512) == 2  # never more parts than there are steps


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    """Zig writes to its own cache whatever it does: a temporary folder stands in where ours is read-only or missing."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CDNA_CACHE", str(tmp_path / "file"))
    assert "v_mfma" in compile_hip("skinny_gemm")
    cache = tmp_path / "cache"
    monkeypatch.setenv("CDNA_CACHE", str(cache))
    assert toolchain._zig_cache("spare") == str(cache / "zig")
    monkeypatch.setattr(toolchain.os, "access", lambda *_: False)  # root may write anywhere
    assert toolchain._zig_cache("spare") == "spare"
    cache.chmod(0o777)
    with pytest.raises(InputError, match="other users can write to it"):
        toolchain._zig_cache("spare")
