# SPDX-License-Identifier: MIT
"""`cdna inspect` as a user runs it: Python files, dumps, JSON, HTML, and every mistake in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent.parent / "samples"
FILE = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((512, 4), (2048, 8))], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


def double(x):
    y = torch.empty_like(x)
    tuned[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, y, x.numel())
    return y
"""
EXAMPLE = """

def example():
    print("user output")
    x = torch.ones(1 << 20, dtype=torch.float16)
    add_one[(1024,)](x, torch.empty_like(x), x.numel(), BLOCK=1024)
"""

# Runs the command once for each list of words, and prints exit code, stdout and stderr of each.
ONE_PROCESS = """
import contextlib, io, json, sys
from cdna.cli.main import main
said = []
for words in json.loads(sys.argv[1]):
    out, err, sys.argv = io.StringIO(), io.StringIO(), ["cdna", "inspect", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as e:
            code = e.code or 0
    said.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(said))
"""


def run(*args, cwd=None):
    command = [sys.executable, "-W", "ignore", "-m", "cdna.cli.main", "inspect", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def kernels(tmp_path):
    (tmp_path / "plain.py").write_text(FILE)
    (tmp_path / "withexample.py").write_text(FILE + EXAMPLE)
    return tmp_path


def test_example_of_the_file(kernels):
    out = run("withexample.py", "--html", "page.html", cwd=kernels)
    assert out.returncode == 0, out.stderr
    assert "add_one for gfx942 (compiled here with triton" in out.stdout
    assert "grid 1024 x 1 x 1" in out.stdout
    assert "global load" in out.stdout
    assert "user output" not in out.stdout
    assert "\x1b[" not in out.stdout
    page = (kernels / "page.html").read_text()
    assert page.count("<svg") == 3
    assert "Your code, line by line" in page
    assert "tl.store(y + o, tl.load(x + o, mask=o &lt; n) + 1, mask=o &lt; n)" in page


def test_a_call_compiles_every_configuration_of_an_autotuned_kernel_and_json_is_only_json(kernels):
    out = run("plain.py", "--call", "double(torch.ones(1 << 20))", "--json", cwd=kernels)
    found = json.loads(out.stdout)
    assert [(one["name"], one["options"]["BLOCK"], one["threads"]) for one in found] == [
        ("tuned", 512, 256),
        ("tuned", 2048, 512),
    ]
    assert found[0]["isa"]["widths"]["global_load"]["all"]
    assert found[0]["occupancy"]["waves_per_simd"] == 8


def test_types_make_the_difference_between_narrow_and_wide_loads(kernels):
    def widths(n):
        args = ("--arg", "x=*fp16:16", "--arg", "y=*fp16:16", "--arg", f"n={n}", "--const", "BLOCK=2048")
        one = json.loads(run("plain.py::add_one", *args, "--warps", "4", "--json", cwd=kernels).stdout)[0]
        return one["isa"]["widths"]["global_load"]["all"], {s["rule"] for s in one["suggestions"]}

    assert widths("i32:16") == ({"128": 1}, set())
    narrow, rules = widths("i32")
    assert narrow == {"16": 8}
    assert "narrow-load" in rules


def test_tensors_as_arguments_and_autotuned_configurations_by_type(kernels):
    args = ("--arg", "x=fp16[4096,4096]", "--arg", "y=fp16[4096,4096]", "--arg", "n=16777216")
    found = json.loads(run("plain.py::tuned", *args, "--json", cwd=kernels).stdout)
    assert [one["options"]["BLOCK"] for one in found] == [512, 2048]
    assert all(list(one["isa"]["widths"]["global_load"]["all"]) in (["64"], ["32"], ["128"]) for one in found)


MISTAKES = [
    (("plain.py",), "--call"),
    (("plain.py::add_one",), "--arg x=… --arg y=… --arg n=… --const BLOCK=…"),
    (("plain.py::nothing",), "the file has add_one, tuned"),
    (("withexample.py::tuned",), "was not launched; launched: add_one"),
    (("plain.py", "--call", "1/0"), "ZeroDivisionError"),
    (("plain.py::add_one", "--arg", "x=*fp7", "--arg", "y=*fp16", "--arg", "n=i32", "--const", "BLOCK=64"), "*fp7"),
    (("plain.py::add_one", "--arg", "x"), "NAME=VALUE"),
    (("plain.py::add_one", "--arg", "n=i32", "--const", "BLOCK=64"), "x, y"),
    (("missing.py",), "cannot be read"),
    (("broken.py",), "SyntaxError"),
    (("plain.py", "--arch", "gfx000", "--call", "1"), "gfx000"),
    (("empty.s",), "no AMDGCN kernel"),
    (("empty.ttgir",), "no TTIR"),
    (("cut.hsaco",), "not a readable AMD GPU code object"),
    ((SAMPLES / "hip_clang22.s",), ""),
    ((f"{SAMPLES / 'hip_clang22.s'}::nope",), "copy16, mfma_tile, calls"),
]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    """What every command line of MISTAKES says, in one process: each would import PyTorch and Triton again."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "plain.py").write_text(FILE)
    (folder / "withexample.py").write_text(FILE + EXAMPLE)
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "empty.s").write_text("hello\n")
    (folder / "empty.ttgir").write_text("module {}\n")
    (folder / "cut.hsaco").write_bytes((SAMPLES / "gemm_t39.hsaco").read_bytes()[:300])
    lines = [[str(word) for word in args] for args, _ in MISTAKES]
    command = [sys.executable, "-W", "ignore", "-c", ONE_PROCESS, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("number", "said"), [(i, said) for i, (_, said) in enumerate(MISTAKES)])
def test_mistakes_are_one_line_and_exit_code_2(mistakes, number, said):
    code, stdout, stderr = mistakes[number]
    if not said:
        assert code == 0
        return
    assert code == 2
    assert stdout == ""
    assert said in stderr
    assert "Traceback" not in stderr
    assert len(stderr.replace("user output\n", "").strip().split("\n")) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemm_t39.amdgcn", ["140 VGPRs used", "144 allocated", "48 x 32x32x8 f16, 16 in loops", "give --lds BYTES"]),
        ("gemm_spill_t36.amdgcn", ["spill or reload registers"]),
        ("gemm_t39.objdump", ["48 x 32x32x8 f16, 16 in loops"]),
        ("gemm_t39.hsaco", ["140 VGPRs used", "llvm-objdump -d FILE"]),
        ("hip_clang22.co", ["copy16", "mfma_tile", "1,024 B of LDS per workgroup of 128 threads"]),
        ("int4kv_t31.ttgir", ["transpose + dot operand", "layout change"]),
        ("softmax_t39.ttgir", ["reduction"]),
        ("nested_t39.ttir", ["This is TTIR"]),
    ],
)
def test_dumps(name, words):
    out = run(SAMPLES / name)
    assert out.returncode == 0, out.stderr
    assert "None" not in out.stdout
    for word in words:
        assert word in " ".join(out.stdout.split())


def test_lds_and_warps_of_a_dump_change_the_occupancy():
    plain, given = (
        json.loads(run(SAMPLES / "gemm_t39.amdgcn", "--json", *more).stdout)[0]["occupancy"]
        for more in ((), ("--lds", "40000", "--warps", "4"))
    )
    assert plain["waves_per_simd"] == 3
    assert (given["waves_per_simd"], given["limited_by"]) == (1, ["lds"])
