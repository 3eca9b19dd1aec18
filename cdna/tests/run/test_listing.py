# SPDX-License-Identifier: MIT
"""What ``llvm-objdump -d`` (LLVM 19) printed is executed, with the code object that it was made from."""

import re
from pathlib import Path

import numpy as np
import pytest

from cdna.elf import ElfError
from cdna.run import RunError, prepare, run
from cdna.run.program import load_listing, load_program

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
LISTING, OBJECT = (SAMPLES / "gemm_t39.objdump").read_text(), (SAMPLES / "gemm_t39.hsaco").read_bytes()


def product(text, **options):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((128, 64), (64, 128)))
    c = np.zeros((128, 128), np.float16)
    result = run(text, 1, [a, b, c, 128, 128, 64, 64, 128, 128], shared=16384, count=False, **options)
    return result, c, a.astype(float) @ b.astype(float)


def test_a_listing_equals_its_assembly():
    result, c, want = product(LISTING, code_object=OBJECT)
    written, expected, _ = product((SAMPLES / "gemm_t39.amdgcn").read_text())
    np.testing.assert_allclose(c, want, rtol=2e-3, atol=2e-2)
    assert np.array_equal(c, expected)
    assert result.executed == written.executed > 1000
    assert result.counters.instructions == written.counters.instructions


def test_the_descriptor_says_what_the_directives_say():
    text = (SAMPLES / "hip_clang22.s").read_text()
    for name in re.findall(r"\.amdhsa_kernel (\w+)", text):
        listing = (SAMPLES / "hip_clang22.objdump").read_text()
        objects = {"code_object": (SAMPLES / "hip_clang22.co").read_bytes()}
        programs = []
        for source, more in ((text, {}), (listing, objects)):
            parameters = _program(source, name, **more).parameters
            arguments = [
                None if p.kind == "global_buffer" else bytes(p.size) for p in parameters if "hidden" not in p.kind
            ]
            programs.append(prepare(source, 1, arguments, name=name, shared=64, **more).machine.program)
        one, other = (p.settings for p in programs)
        fields = (
            "lds",
            "scratch",
            "kernarg",
            "user",
            "user_count",
            "preload",
            "ids",
            "info",
            "id_dims",
            "mode",
            "threads",
        )
        assert {f: getattr(one, f) for f in fields} == {f: getattr(other, f) for f in fields}
        assert [p[:3] for p in programs[0].parameters] == [p[:3] for p in programs[1].parameters]


def test_a_function_comes_with_the_kernel_that_calls_it_alone():
    text = (SAMPLES / "hip_clang22.s").read_text()
    listing, data = (SAMPLES / "hip_clang22.objdump").read_text(), (SAMPLES / "hip_clang22.co").read_bytes()
    for name in re.findall(r"\.amdhsa_kernel (\w+)", text):
        for program in (_program(text, name), _program(listing, name, data)):
            calls = any(raw.op == "s_swappc_b64" for raw in program.body)
            assert ("_Z6helperfi" in program.labels) == calls == (name == "calls")


def _program(source, name, code_object=None):
    return load_listing(source, name, code_object) if code_object else load_program(source, name)


@pytest.mark.parametrize(
    "code_object, error, message",
    [
        (None, RunError, "does not say what the kernel is given at its start"),
        ("gemm.hsaco", RunError, "give the bytes of the file"),
        ((SAMPLES / "hip_clang22.co").read_bytes(), RunError, "no kernel 'gemm'; it has"),
        (OBJECT[:200], ElfError, ""),
        (b"", ElfError, ""),
    ],
)
def test_a_listing_alone_is_refused(code_object, error, message):
    with pytest.raises(error, match=message):
        product(LISTING, code_object=code_object)
