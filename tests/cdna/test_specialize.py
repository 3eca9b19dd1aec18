# SPDX-License-Identifier: MIT
"""A kernel's source with its branches decided says what the compiler makes of the kernel, and stays readable."""

import importlib.util
import runpy

import pytest
import torch

from cdna.compile import compile_kernel
from cdna.explain import specialized_source
from cdna.explain.specialize import SpecializeError
from rocm_guide.kernels.decode import _decode_part, hint_multiple
from rocm_guide.kernels.gemm import tile_dot


def every_shape(x, y, MODE, KIND, rest=None, *, last=1):
    """All that can stand in a function."""
    if MODE == "a":
        # said of a
        x += 1
    elif MODE == "b":
        x += 2  # said of b

    elif y > 0:
        x += 3
    else:
        x += 4
    z = -x if rest is None else x - rest
    if rest is not None and y:
        z = rest
    for i in range(3):
        if MODE != "a":
            continue
        z += i if KIND.is_integer() else 0.5
    if not (MODE == "b" or y):
        return z * (x if MODE == "c" else x + 1)
    kind = rest
    return z, kind, last


CASES = [{"MODE": m} | r for m in "abc" for r in ({}, {"rest": None}, {"rest": None, "kind": None}, {"KIND": 2.0})]


@pytest.mark.parametrize("known", CASES, ids=str)
def test_the_text_does_what_the_function_does(known, tmp_path):
    text = specialized_source(every_shape, **known)
    (tmp_path / "shown.py").write_text(text + "\n")
    # A local name that is known has no assignment left: it is a global of the text.
    new = runpy.run_path(str(tmp_path / "shown.py"), {"kind": None})["every_shape"]
    taken = new.__code__.co_varnames[: new.__code__.co_argcount]
    for y in (-1, 0, 5):
        given = {"x": 7, "y": y, "MODE": "a", "KIND": 2.0, "rest": None} | known
        given.pop("kind", None)
        assert new(**{k: v for k, v in given.items() if k in taken}) == every_shape(**given)
    assert "if MODE" not in text and "elif" not in text.replace("elif y", "")


def test_comments_of_the_branch_stay_and_those_of_the_others_go():
    text = specialized_source(every_shape, MODE="a")
    assert "    # said of a\n    x += 1\n" in text and "said of b" not in text and "elif" not in text
    text = specialized_source(every_shape, MODE="b", docstring=False)
    assert "    x += 2  # said of b\n" in text and "All that" not in text
    assert "    if y > 0:\n        x += 3\n    else:\n" in specialized_source(every_shape, MODE="c")


def test_a_name_that_is_not_there_and_a_function_without_source_are_refused():
    with pytest.raises(SpecializeError, match=r"^TMA: every_shape has no such name; it has .*MODE"):
        specialized_source(every_shape, TMA=False)
    with pytest.raises(SpecializeError, match="len: its source is not at hand"):
        specialized_source(len)


SIZES = {"GROUP": 4, "D": 128, "BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_D": 128, "UNIT": 1}


def test_the_text_compiles_to_the_same_instructions(tmp_path):
    part = specialized_source(_decode_part, length_ptr=None)
    head = "import triton\nimport triton.language as tl\n\n\n" + specialized_source(hint_multiple)
    (tmp_path / "shown.py").write_text(f"{head}\n\n\n{part}\n")
    spec = importlib.util.spec_from_file_location("shown", tmp_path / "shown.py")
    shown = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shown)
    assert "length_ptr" not in part and "tl.minimum(tl.load" not in part

    half, full = (torch.empty(1 << 16, dtype=t, device="meta") for t in (torch.float16, torch.float32))
    given = {"q_ptr": half, "k_ptr": half, "v_ptr": half, "out_ptr": full, "lse_ptr": full, "tokens": 4096}
    given |= {"qk_scale": 0.5, "stride_batch": 1 << 20, "stride_token": 1024, "stride_head": 128}
    listings = []
    for kernel, more in ((_decode_part, {"length_ptr": None}), (shown._decode_part, {})):
        compiled = compile_kernel(kernel, given, SIZES | more)
        listings.append(
            [line for line in compiled.assembly.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
        )
    assert listings[0] == listings[1] and len(listings[0]) > 200


def test_the_tile_without_hopper_has_one_path():
    text = specialized_source(tile_dot, docstring=False, A_DESC=0, B_DESC=0, INT=False)
    assert "DESC" not in text and ".load([" not in text and "if " not in text.replace(" if EVEN_K", "")
    assert text.count("tl.load(") == 2 and "One 64-bit address per tile" in text
