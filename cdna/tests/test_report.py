# SPDX-License-Identifier: MIT
"""The report: every figure against an independent reading, and its JSON."""

import json
import re
import shutil
import subprocess

import pytest
import torch

pytest.importorskip("triton")

from cdna.compile import compile_kernel
from cdna.examples.tuning import attention_rows, matmul, scale_rows
from cdna.report import kernel_report, report_table

HALF = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
HEAD = torch.empty(4096, 128, dtype=torch.float16, device="meta")
GEMM = [HALF, HALF, HALF, 4096, 4096, 4096]
ATTENTION = [HEAD, HEAD, HEAD, HEAD, 0.1, 4096]


def kernels(arch="gfx942"):
    yield compile_kernel(matmul, GEMM, {"BM": 128, "BN": 128, "BK": 64}, num_warps=8, arch=arch)
    yield compile_kernel(matmul, GEMM, {"BM": 256, "BN": 128, "BK": 64}, waves_per_eu=3, arch=arch)
    yield compile_kernel(attention_rows, ATTENTION, {"D": 128, "BM": 64, "BN": 32}, waves_per_eu=1, arch=arch)
    yield compile_kernel(scale_rows, [HALF, HALF, 2.0, 4096], {"BLOCK": 2048}, arch=arch)


def run(tool, *arguments):
    program = shutil.which(tool) or next((p for v in range(25, 13, -1) if (p := shutil.which(f"{tool}-{v}"))), None)
    if program is None:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_resources_equal_the_notes_that_llvm_readelf_prints(arch, tmp_path):
    for i, k in enumerate(kernels(arch)):
        path = tmp_path / f"{i}.hsaco"
        path.write_bytes(k.code_object)
        notes = run("llvm-readelf", "--notes", str(path))
        if ".vgpr_count" not in notes:
            pytest.skip("this llvm-readelf does not decode AMD notes")
        r = kernel_report(k).resources
        for key, value in (
            (".vgpr_count", r.vgprs),
            (".agpr_count", r.agprs),
            (".sgpr_count", r.sgprs),
            (".vgpr_spill_count", r.vgpr_spills),
            (".private_segment_fixed_size", r.scratch),
            (".group_segment_fixed_size", r.lds_static),
            (".max_flat_workgroup_size", kernel_report(k).threads),
        ):
            assert int(re.search(rf"\{key}:\s+(\d+)", notes)[1]) == value, key


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_allocation_equals_the_directives_in_the_assembly(arch):
    """The descriptor in the code object against the ``.amdhsa_`` lines that it was assembled from."""
    for k in kernels(arch):
        r = kernel_report(k)
        free = int(re.search(r"\.amdhsa_next_free_vgpr (\d+)", k.assembly)[1])
        assert r.resources.vgprs_allocated == -(-free // 8) * 8 == r.occupancy.vgprs
        assert r.resources.scratch == int(re.search(r"\.amdhsa_private_segment_fixed_size (\d+)", k.assembly)[1])
        assert r.lds == k.metadata["shared"] and r.threads == 64 * k.num_warps


def test_instruction_counts_equal_a_count_by_hand():
    for k in kernels():
        r = kernel_report(k)
        body = k.assembly[k.assembly.index(f"\n{k.name}:") : k.assembly.index(".Lfunc_end0:")]
        ops = re.findall(r"^\s+([a-z]\w+)", body, re.M)
        assert r.isa.mfma == {op: ops.count(op) for op in dict.fromkeys(o for o in ops if o.startswith("v_mfma"))}
        assert r.isa.waits == ops.count("s_waitcnt") and r.isa.barriers == ops.count("s_barrier")
        wide = sum(op in ("buffer_load_dwordx4", "global_load_dwordx4") for op in ops)
        assert r.isa.global_loads.get(128, 0) == wide


def test_waves_per_eu_shows_as_padding():
    r = kernel_report(compile_kernel(attention_rows, ATTENTION, {"D": 128, "BM": 64, "BN": 32}, waves_per_eu=1))
    assert r.resources.vgprs < 256 < r.resources.vgprs_allocated and r.occupancy.waves_per_simd == 1
    assert r.waves_per_eu.helps and "pads" in r.waves_per_eu.reason


def test_json_is_plain_and_complete():
    r = kernel_report(next(kernels()), grid=(32, 4))
    data = json.loads(r.to_json())
    assert data["kernel"] == "matmul" and data["grid"] == [32, 4] and data["launches"] is True
    assert data["resources"]["vgprs"] == r.resources.vgprs and data["occupancy"]["limited_by"]
    assert data["findings"][0].keys() == {"level", "rule", "evidence", "fix"}
    assert data["constants"]["BM"] == 128 and data["isa"]["mfma"]
    assert set(data) == set(r.__dataclass_fields__) | {"launches"}


def test_text():
    r = kernel_report(next(kernels()), grid=(128,))
    text = str(r)
    assert "matmul for gfx942 (MI300X)" in text and "128 workgroups on 304 CUs" in text
    assert f"{r.resources.vgprs} VGPRs used" in text
    table = report_table([r, r]).splitlines()
    assert (
        len(table) == 3 and "warning: grid" in table[1] and len({len(line.split("  ")[0]) for line in table[1:]}) == 1
    )


@pytest.mark.slow
def test_configurations_compiled_from_nothing(tmp_path, monkeypatch):
    """Triton's cache is moved to an empty folder. Each configuration is compiled once, and read without compiling."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled = [
        compile_kernel(matmul, GEMM, {"BM": 64, "BN": n, "BK": 32}, num_warps=warps)
        for n in (64, 128)
        for warps in (4, 8)
    ]
    assert len(list(tmp_path.glob("*/*.hsaco"))) == 4
    assert len({kernel_report(one).resources for one in compiled}) > 1
    assert len(list(tmp_path.glob("*/*.hsaco"))) == 4
