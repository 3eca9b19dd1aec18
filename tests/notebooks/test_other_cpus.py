# SPDX-License-Identifier: MIT
"""What depends on numbers, on the narrowest paths that can be forced on this CPU: no AVX, sums in another order.

Of the notebooks one runs in every second run, in turn.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest imports tests by their path

from tests.in_turn import in_turn
from tests.notebooks.other_cpu import CPUS, environment

ROOT = Path(__file__).parent.parent.parent
LEVEL = {"default": "x86-64-v2", "avx2": "x86-64-v3"}


def run(cpu: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment(cpu), capture_output=True, text=True)


@pytest.fixture(params=CPUS)
def cpu(request):
    """A CPU that was really forced upon a child process; skipped where this one is narrower still."""
    done = run(request.param, str(Path(__file__).parent / "other_cpu.py"))
    if done.returncode:
        pytest.skip(f"this CPU or this build of PyTorch has no such path: {done.stdout}{done.stderr[-300:]}")
    print(done.stdout)
    if "C library: x86-64" in done.stdout:
        assert f"C library: {LEVEL[request.param]}" in done.stdout, "glibc still sees wider instructions"
    if "MKL_VERBOSE SGEMM" in done.stdout:
        assert f"CNR:{CPUS[request.param]['MKL_CBWR']}" in done.stdout, "MKL still uses wider instructions"
    return request.param


@pytest.mark.slow
def test_kernels_and_exercises(cpu):
    """The HIP kernels against float64, and the checks of the exercises that compare numbers."""
    chosen = [f"tests/exercises/test_{n}.py" for n in ("flash_attention", "lora_exercises")]
    chosen += [
        "cdna/tests/hip/test_cpu_library.py",
        "tests/cdna/test_hip_on_cpu.py",
        "tests/tune/ck/test_compiled.py::test_the_model_computes_the_product",
    ]
    some = "not hip or rung or refused or 1000 or conver or arithmetic"  # the rest varies sizes, not arithmetic
    done = run(cpu, "-m", "pytest", "-p", "no:cacheprovider", "-k", some, *chosen)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=in_turn(2 * n, 6)) for n, number in enumerate(("30", "33", "14"))]
)
def test_a_notebook_whose_assertions_depend_on_numbers(number, tmp_path):
    """Row kernels, fused FP8 against float64, HIP built for the oldest CPU; INT8 sums, which saturate without VNNI."""
    done = run("default", "-m", "rocm_guide.cli.main", "run", number, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "report.json").read_text())["notebooks"][number]["status"] == "ok"
