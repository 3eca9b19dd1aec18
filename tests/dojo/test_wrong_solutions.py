# SPDX-License-Identifier: MIT
"""Every solution passes, and every usual mistake is caught with a line that names it."""

from __future__ import annotations

import re

import pytest

from cdna.testing import HEAD, run_cell
from rocm_guide.dojo import PUZZLES, grade
from tests.dojo.solutions import SOLUTIONS


@pytest.mark.parametrize("name", PUZZLES)
def test_the_solution_passes(name):
    result = grade(run_cell(HEAD + SOLUTIONS[name])[name], name)
    assert result.passed, str(result)
    for times in re.findall(r"([\d.]+) times the floor", str(result)):
        assert float(times) >= 1, "nothing beats the floor: it counts what has to be read, pages of others not"


SCORES = 'tl.where(j[None, :] < M, tl.dot(query, key) * scale, float("-inf"))'
# Puzzle, what is replaced in its solution and by what, and what the grader must say.
WRONG = [
    ("add", ", mask=i < n)\n\n", ")\n\n", "tl.store outside its tensor: element 1000 of out.*add a mask"),
    ("add", "tl.load(y + i", "tl.load(x + i", "4,096 elements: element.*element i of x plus element i of y"),
    ("add", "1024", "256", "loads .*32 bits -> 128 bits for each lane"),
    ("add", "    add_kernel[", "    return x + y\n    add_kernel[", "no Triton kernel was launched"),
    ("copy", "mask=i < n), mask=i < n)", "mask=i < n))", "tl.store outside its tensor: element 1000 of y.*add a mask"),
    ("copy", "tl.load(x + i, mask=i < n)", "tl.load(x + i)", "tl.load outside its tensor.*mask"),
    ("copy", "mask=i < n)", "mask=i <= n)", "line 8 of the cell .*its mask lets it through"),
    ("copy", "triton.cdiv(x.numel(), 2048)", "x.numel() // 2048", "is nan.*no kernel has stored anything yet"),
    ("copy", "2048", "256", "loads .*16 bits -> 128 bits for each lane"),
    ("copy", "copy_kernel[", "return x.clone()\n    copy_kernel[", "no Triton kernel was launched"),
    ("copy", "    return y", "    return y[None]", r"returns the shape \[1, 4096\]; \[4096\] is wanted"),
    ("copy", "    return y", "    return y.float()", "returns float32; float16 is wanted"),
    ("copy", "    return y", "    pass", "a return is missing"),
    ("copy", "tl.store(y + i", "tl.store(x + i", "nothing was written"),
    ("copy", "    copy_kernel[", "    return y\n    copy_kernel[", "no kernel has stored anything yet"),
    ("copy", "tl.store(y + i, ", "tl.store(y + i, 1 + ", "which elements does program 1"),
    ("strided_copy", "row * row_stride", "row * cols", "rows of 100 in a matrix of 128.*row stride"),
    ("strided_copy", "j * col_stride", "j", "every second column.*column stride"),
    ("strided_copy", ".to(tl.int64)", "", "rows 2.30 elements apart.*32 bits"),
    ("strided_copy", "mask=j < cols)\n    tl.store", "mask=j < 64)\n    tl.store", "5 x 100.*a load without other="),
    ("transpose", "tl.trans(inside)", "inside", "33 x 70.*transposed too"),
    ("transpose", "tl.trans(tile)", "tile", "64 x 64: element.*exchanged"),
    ("transpose", "* rows + i", "* cols + i", "64 x 128.*as many columns as x has rows"),
    ("transpose", ".to(tl.int64) * row_stride", " * row_stride", "rows 2.30 elements apart.*32 bits"),
    ("transpose", "* row_stride", "* cols", "rows of 40 in a matrix of 64.*row stride"),
    ("transpose", "j[None, :] < cols", "j[None, :] <= cols", "mask"),
    ("quantise", "    v = tl.clamp(v, -240.0, 240.0, propagate_nan=tl.PropagateNan.ALL)\n", "", "clamp before"),
    ("quantise", ", propagate_nan=tl.PropagateNan.ALL", "", "infinities and a NaN.*propagate_nan"),
    ("quantise", ".to(tl.float32) / tl.load(scale)", " / tl.load(scale).to(tl.float16)", "divide in fp32|fp16"),
    ("quantise", "240.0, ", "224.0, ", "element .* is"),
    ("row_sum", "v.to(tl.float32)", "v", "a sum or product runs in fp16"),
    ("row_sum", ", other=0.0", "", "a load without other="),
    ("row_sum", ".to(tl.int64)", "", "rows 2.30 elements apart.*32 bits"),
    ("row_sum", "row * row_stride", "row * cols", "rows of 40.*row stride"),
    ("softmax", " - tl.max(v, 0)", "", "values near 1,000.*subtract the row's maximum"),
    ("softmax", 'other=float("-inf")', "other=0.0", "3 x 1,000.*-inf for a maximum"),
    ("softmax", "row * row_stride", "row * cols", "rows of 100.*row stride"),
    ("softmax", ".to(tl.int64)", "", "rows 2.30 elements apart.*32 bits"),
    ("softmax", "num_warps=8", "num_warps=1", "waves .*more warps"),
    ("softmax_online", "total * tl.exp(top - shift) +", "total +", "element .* is"),
    ("softmax_online", 'top, total = float("-inf"), 0.0', "top, total = 0.0, 0.0", "values near -1,000"),
    ("softmax_online", 'tl.where(new == float("-inf"), 0.0, new)', "0.0", "element .* is"),
    ("rms_norm", "/ cols + eps", "/ BLOCK + eps", "3 x 100.*not by the block"),
    ("rms_norm", "other=0.0).to(tl.float32)", "other=0.0)", "squares overflow fp16"),
    ("rms_norm", " * weight)", ")", "multiply by w"),
    ("rms_norm", "tl.rsqrt(tl.sum(v * v, 0) / cols + eps)", "1 / (tl.sqrt(tl.sum(v * v, 0) / cols) + eps)", "eps"),
    ("matmul", " & (k[None, :] < K)", "", "K reaches past the end|tl.load outside"),
    ("matmul", "(k[:, None] < K) & ", "", "K reaches past the end"),
    ("matmul", "*b.stride()", "N, 1", "b is a transposed view.*both of its strides"),
    ("matmul", "*a.stride()", "K, 1", "a is a transposed view.*both of its strides"),
    ("matmul", "i[:, None].to(tl.int64) * sam", "i[:, None] * sam", "rows of a 2.30 elements apart.*32 bits"),
    ("matmul", "total = tl.dot(x, y, total)", "total = tl.dot(x, y, total).to(tl.float16).to(tl.float32)", "almost"),
    ("matmul", "BM=128, BN=128", "BM=256, BN=256", "waves .*a smaller block"),
    ("split_k", "tl.atomic_add(", "tl.store(", "a race: programs 0 and 1 write different values to element"),
    ("split_k", "torch.zeros(M", "torch.empty(M", "is nan.*the result starts at 0"),
    ("split_k", "(2) * part", "(2) * part // 2", "its own part of K, none twice"),
    ("split_k", "cdiv(K, 304)", "cdiv(K, 4)", "workgroups .*304 or more"),
    ("skinny_gemv", "mask=i < N)", "mask=i <= N)", "outside its tensor"),
    ("skinny_gemv", " & (k[None, :] < K), other=0.0", ", other=0.0", "7 x 300|outside"),
    ("skinny_gemv", ".to(tl.int64) * stride", " * stride", "rows 2.30 elements apart.*32 bits"),
    ("attention", SCORES, "tl.dot(query, key) * scale", "50 tokens.*-inf, not 0"),
    ("attention", "result * shrink[:, None])", "result)", "several blocks of keys"),
    ("attention", "D**-0.5", "1.0", "square root of the head"),
    ("attention", "tl.maximum(top, tl.max(score, 1))", "tl.zeros((BM,), tl.float32)", "large scores|overflows"),
    ("attention", "head * vh + j[:, None] * vn", "(head * M + j[:, None]) * D", "heads side by side.*strides"),
    ("attention", "weight.to(tl.float16)", "weight", "compiles .*causal|compiles|Both operands|dtype"),
    ("causal_attention", "j[None, :] <= i[:, None]", "j[None, :] < i[:, None]", "element .* is"),
    ("causal_attention", "tl.minimum((tl.program_id(0) + 1) * BM, M)", "M", "bytes .*3.2 times will do"),
    ("decode", "tl.load(sums + head * PARTS + p) * weight", "tl.load(sums + head * PARTS + p)", "check the merge"),
    ("decode", "tl.where(j < last", "tl.where(j < M", "2 heads, 256 tokens.*each token"),
    ("decode", 'score = tl.where(j < last, score, float("-inf"))', "pass", "element .* is"),
    ("decode", "parts + place * D", "parts + head * D", "a race: program"),
    ("rms_norm_backward", "tl.sum(g * v, 0) / cols)", "tl.sum(g * v, 0) / BLOCK)", "3 x 100.*not by the block"),
    ("rms_norm_backward", "dy + row * dy_stride", "dy + row * x_stride", "x and dy have one each|outside its tensor"),
    ("rms_norm_backward", "r * r * tl.sum", "r * tl.sum", "4 x 512.*two sums|large eps|values near"),
    ("rms_norm_backward", ".to(tl.int64)", "", "rows 2.30 elements apart.*32 bits"),
    ("paged_decode", "j // P,", "j // P // 2,", "table.t // P"),
    ("paged_decode", "page = tl.load(table + j // P, mask=j < last, other=0)", "page = (j // P)", "table.t // P"),
    ("paged_decode", "j % P * token_stride", "j * token_stride", "outside its tensor|table.t // P"),
    ("paged_decode", "other=0).to(tl.int64)", "other=0)", "pages 2.30 elements apart.*32 bits"),
    ("paged_decode", "tl.exp(top - new)", "1.0", "element .* is|is nan"),
    (
        "paged_decode",
        "d[None, :], mask=inside, other=0.0)\n        result",
        "d[None, :])\n        result",
        "nan|outside",
    ),
    ("pair_sums", "even + odd", "even", "element .* is"),
    ("pair_sums", "mask=i < m", "mask=i <= m", "outside its tensor"),
    ("pair_sums", "tl.program_id(0) * 2 * BLOCK", "tl.program_id(0) * BLOCK", "element .* is"),
    ("lean_matmul", " & (k[None, :] < K)", "", "K reaches past the end|outside"),
    ("lean_matmul", "BM=128, BN=128", "BM=256, BN=256, num_warps=4", "spilled|waves .*a smaller block"),
    ("scale_columns", "scales[None, :]", "scales[None, :] + 1", "element .* is"),
    ("scale_columns", " & (j[None, :] < N)", "", "outside its tensor|different values"),
    ("decode", "16\n", "1\n", "workgroups .*304 or more|split"),
]


@pytest.mark.parametrize(("name", "old", "new", "said"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_mistake_is_named(name, old, new, said):
    code = SOLUTIONS[name]
    assert old in code
    changed = code.replace(old, new)
    result = grade(run_cell(HEAD + changed)[name], name)
    assert not result.passed
    assert re.search(said, str(result)), str(result)
    assert "Traceback" not in str(result) and "site-packages" not in str(result)


@pytest.mark.parametrize("name", [n for n, p in PUZZLES.items() if p.starter])
def test_a_starter_is_right_and_its_code_is_not(name):
    result = grade(run_cell(HEAD + PUZZLES[name].starter)[name], name)
    assert [c.status for c in result.checks if c.name == "result"] == ["OK"] and not result.passed, str(result)


CHEATS = {
    "a result of PyTorch": ("row_sum", "    return y", "    return x.float().sum(1)"),
    "a result of PyTorch beside a scratch tensor": ("copy", "    return y", "    return x + 0"),
    "atomic additions that nobody reads": ("split_k", "    return c", "    return a.float() @ b.float()"),
}


@pytest.mark.parametrize("how", CHEATS)
def test_a_result_that_no_kernel_has_stored_is_refused(how):
    name, old, new = CHEATS[how]
    result = grade(run_cell(HEAD + SOLUTIONS[name].replace(old, new))[name], name)
    assert not result.passed and "stays the same when the kernels store nothing" in str(result), str(result)


def test_what_pytorch_does_after_the_kernel_is_no_cheat():
    """The parts of a sum may be added by PyTorch: the result still comes from what the kernel stored."""
    code = SOLUTIONS["row_sum"].replace("    return y", "    return y.clone() * 1")
    assert grade(run_cell(HEAD + code)["row_sum"], "row_sum").passed
