# SPDX-License-Identifier: MIT
"""Wrong and bad solutions, as data: what is changed in a right one, and what the grader must say.

Each row: the class of the mistake, the puzzle, what is replaced in its solution and by what, and words of the verdict
beside those of the class.
"""

from tests.dojo import gluon_rows
from tests.dojo.solutions import SOLUTIONS
from tests.dojo.wrong_models import WRONG_MODELS

#: How the grader names each class; every verdict holds these words, and none of another kind of mistake alone.
CLASSES = {
    "mask": r"mask|other=|outside its tensor",
    "stride": r"stride",
    "overflow": r"32 bits",
    "race": r"a race",
    "accumulator": r"fp16",
    "tile": r"a smaller block|more warps|a tile of 64 x 64 or more|larger tiles|64 queries or more",
    "waves": r"waves",
    "coalescing": r"lines of 128 bytes|bits for each lane",
    "tail": r"past the end|outside its tensor",
    "off by one": r"element|outside its tensor",
    "fixed block": r"not all|as many programs|too few programs|too short a loop",
    "rescale": r"rescale|maximum",
    "merge": r"merge|part",
    "cheat": r"stays the same|no Triton kernel|PyTorch computes|no kernel reads|has kept it|changes its argument",
    "form": r"returns|a return is missing|no kernel has stored|nothing was written|stored nothing|starts at 0",
    "formula": r"element",
    "spread": r"workgroups",
    "traffic": r"times will do",
    "code": r"compiles|registers|LDS|same dtype",
    "layout": r"banks|[Ll]ayout|kWidth",
    "wait": r"wait",
}

SCORES = 'tl.where(j[None, :] < M, tl.dot(query, key) * scale, float("-inf"))'
_GRID = "[(triton.cdiv(x.numel(), 2048),)]"


def _kept(name: str, arguments: str, key: str) -> tuple[str, str]:
    """Return the change that keeps results of a function by the first numbers of its arguments."""
    return (
        f"def {name}({arguments}):\n",
        f"def {name}({arguments}, kept={{}}):\n    key = {key}\n    if key not in kept:\n"
        f"        kept[key] = fresh({arguments})\n    return kept[key]\n\n\ndef fresh({arguments}):\n",
    )


#: Launches of products with a tile, and a grid for it.
MATMUL = (
    "{0}), triton.cdiv(N, {0}))\n    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM={0}, BN={0}"
)
LEAN = "{0}), triton.cdiv(N, {0}))\n    product_kernel[grid](a, b, c, M, N, K, BM={0}, BN={0}"

WRONG = [
    # ---- moving
    ("mask", "add", ", mask=i < n)\n\n", ")\n\n", "tl.store outside its tensor: element 1000 of out.*add a mask"),
    ("formula", "add", "tl.load(y + i", "tl.load(x + i", "4,096 elements: element.*element i of x plus element i of y"),
    ("coalescing", "add", "1024", "256", "loads .*32 bits -> 128 bits for each lane"),
    ("cheat", "add", "    add_kernel[", "    return x + y\n    add_kernel[", "no Triton kernel was launched"),
    ("mask", "copy", "mask=i < n), mask=i < n)", "mask=i < n))", "tl.store outside its tensor: element 1000 of y.*add"),
    ("mask", "copy", "tl.load(x + i, mask=i < n)", "tl.load(x + i)", "tl.load outside its tensor.*mask"),
    ("off by one", "copy", "mask=i < n)", "mask=i <= n)", "line 8 of the cell .*its mask lets it through"),
    ("off by one", "copy", "tl.load(x + i, ", "tl.load(x + i - 1, ", "outside its tensor.*negative"),
    ("form", "copy", "triton.cdiv(x.numel(), 2048)", "x.numel() // 2048", "no kernel has stored anything yet"),
    ("fixed block", "copy", _GRID, "[(2,)]", "100,003 elements.*nothing was written there"),
    ("coalescing", "copy", "2048", "256", "loads .*16 bits -> 128 bits for each lane: more elements"),
    (
        "coalescing",
        "copy",
        "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "tl.program_id(0) + tl.num_programs(0) * tl.arange(0, BLOCK)",
        "loads .*neighbours in the block lie apart in memory",
    ),
    ("cheat", "copy", "copy_kernel[", "return x.clone()\n    copy_kernel[", "no Triton kernel was launched"),
    ("cheat", "copy", "    return y", "    return x + 0", "4,096 elements: the result stays the same"),
    (
        "cheat",
        "copy",
        "    y = torch.empty_like(x)",
        "    if x.numel() % 2048:\n        return x.clone()\n    y = torch.empty_like(x)",
        "1,000 elements, no multiple of any block: no Triton kernel was launched",
    ),
    ("cheat", "copy", "    copy_kernel[", "    x = x.clone()\n    copy_kernel[", r"PyTorch computes.*\(clone\)"),
    ("cheat", "copy", *_kept("copy", "x", "x.numel()"), "something has kept it"),
    (
        "cheat",
        "copy",
        "    copy_kernel[",
        "    x = torch.from_numpy(x.numpy().copy())\n    copy_kernel[",
        "no kernel reads the arguments",
    ),
    ("cheat", "copy", "mask=i < n)\n", "mask=i < n)\n    tl.store(x + i, 0.0, mask=i < n)\n", "changes its argument"),
    ("form", "copy", "    return y", "    return y[None]", r"returns the shape \[1, 4096\]; \[4096\] is wanted"),
    ("form", "copy", "    return y", "    return y.float()", "returns float32; float16 is wanted"),
    ("form", "copy", "    return y", "    pass", "a return is missing"),
    ("form", "copy", "tl.store(y + i", "tl.store(x + i", "nothing was written"),
    ("form", "copy", "    copy_kernel[", "    return y\n    copy_kernel[", "no kernel has stored anything yet"),
    ("formula", "copy", "tl.store(y + i, ", "tl.store(y + i, 1 + ", "which elements does program 1"),
    ("stride", "strided_copy", "row * row_stride", "row * cols", "rows of 100 in a matrix of 128.*row stride"),
    ("stride", "strided_copy", "j * col_stride", "j", "every second column.*column stride"),
    ("overflow", "strided_copy", ".to(tl.int64)", "", "rows 2.30 elements apart"),
    (
        "overflow",
        "strided_copy",
        "y + row * cols",
        "y + tl.program_id(0) * cols",
        "an output beyond 2.31 elements.*tl.store outside",
    ),
    ("mask", "strided_copy", "mask=j < cols)\n    tl.store", "mask=j < 64)\n    tl.store", "5 x 100.*a load without"),
    (
        "fixed block",
        "strided_copy",
        "triton.cdiv(cols, 2048))",
        "1)",
        "rows as long as the true ones.*nothing was written there",
    ),
    ("cheat", "strided_copy", "    rows, cols", "    x = x.contiguous()\n    rows, cols", r"PyTorch computes"),
    ("mask", "transpose", "tl.trans(inside)", "inside", "33 x 70.*transposed too"),
    ("formula", "transpose", "tl.trans(tile)", "tile", "64 x 64: element.*exchanged"),
    ("formula", "transpose", "* rows + i", "* cols + i", "64 x 128.*as many columns as x has rows|stride"),
    ("overflow", "transpose", ".to(tl.int64) * row_stride", " * row_stride", "rows 2.30 elements apart"),
    ("overflow", "transpose", "j[:, None].to(tl.int64)", "j[:, None]", "an output beyond 2.31 elements"),
    ("stride", "transpose", "* row_stride", "* cols", "rows of 40 in a matrix of 64.*row stride"),
    ("off by one", "transpose", "j[None, :] < cols", "j[None, :] <= cols", "mask"),
    (
        "coalescing",
        "transpose",
        "rows, 64), triton.cdiv(cols, 64))\n    transpose_kernel[grid](x, y, rows, cols, *x.stride(), BLOCK=64)",
        "rows, 8), triton.cdiv(cols, 8))\n    transpose_kernel[grid](x, y, rows, cols, *x.stride(), BLOCK=8)",
        "bits for each lane|lines",
    ),
    (
        "formula",
        "quantise",
        "    v = tl.clamp(v, -240.0, 240.0, propagate_nan=tl.PropagateNan.ALL)\n",
        "",
        "the kernel computed the NaN.*clamp before",
    ),
    ("formula", "quantise", ", propagate_nan=tl.PropagateNan.ALL", "", "infinities and a NaN.*propagate_nan"),
    (
        "accumulator",
        "quantise",
        ".to(tl.float32) / tl.load(scale)",
        " / tl.load(scale).to(tl.float16)",
        "divide in fp32",
    ),
    ("formula", "quantise", "240.0, ", "224.0, ", "the largest float8_e4m3fnuz is 240"),
    ("formula", "quantise", " / tl.load(scale)", " * tl.load(scale)", "divide by the scale, do not multiply"),
    ("race", "copy", "tl.store(y + i,", "tl.store(y + i % BLOCK,", "programs 0 and 1 write different values"),
    ("race", "strided_copy", "y + row * cols + j", "y + row // 2 * cols + j", "programs 0 and 1 write different"),
    ("mask", "quantise", "tl.load(x + i, mask=i < n)", "tl.load(x + i)", "tl.load outside its tensor.*add a mask"),
    (
        "fixed block",
        "quantise",
        "triton.cdiv(x.numel(), 2048)",
        "4",
        "rows as long as the true ones.*not all of a long row",
    ),
    ("coalescing", "quantise", "2048", "256", "8 bits -> 64 bits for each lane"),
    (
        "off by one",
        "add",
        "tl.load(x + i, mask=i < n)",
        "tl.load(x + i + 1, mask=i < n - 1)",
        "element i of x plus element i of y",
    ),
    ("fixed block", "add", "triton.cdiv(x.numel(), 1024)", "64", "100,003 elements.*nothing was written there"),
    (
        "cheat",
        "quantise",
        "    return y",
        "    return (x.float() / scale).clamp(-240, 240).to(y.dtype)",
        "stays the same",
    ),
    (
        "cheat",
        "transpose",
        "    rows, cols = x.shape",
        "    x = x.T.contiguous().T\n    rows, cols = x.shape",
        "PyTorch computes with the arguments \\(contiguous\\)",
    ),
    ("stride", "transpose", "j[None, :] * col_stride", "j[None, :]", "column stride is taken for 1"),
    (
        "mask",
        "strided_copy",
        "y + row * cols + j, v, mask=j < cols",
        "y + row * cols + j, v",
        "tl.store outside its tensor.*add a mask",
    ),
    # ---- rows
    ("accumulator", "row_sum", "v.to(tl.float32)", "v", "a sum or product runs in fp16"),
    ("mask", "row_sum", ", other=0.0", "", "a load without other="),
    ("mask", "row_sum", ", mask=j < cols, other=0.0", "", "8 x 64.*add a mask -> a mask is missing"),
    ("overflow", "row_sum", ".to(tl.int64)", "", "rows 2.30 elements apart"),
    ("stride", "row_sum", "row * row_stride", "row * cols", "rows of 40.*row stride"),
    (
        "fixed block",
        "row_sum",
        "range(0, cols, BLOCK)",
        "range(0, BLOCK, BLOCK)",
        "long as the true ones.*not all of a long row",
    ),
    ("formula", "row_sum", "tl.store(y + row, total)", "tl.store(y + row, total / cols)", "this is the mean"),
    (
        "cheat",
        "row_sum",
        "    return y",
        "    return x.float().sum(1)",
        "stays the same when the kernels store nothing",
    ),
    (
        "cheat",
        "row_sum",
        "    sum_kernel[",
        "    x = x.float().sum(1, keepdim=True)\n    sum_kernel[",
        r"PyTorch computes with the arguments \(sum\)",
    ),
    ("formula", "softmax", " - tl.max(v, 0)", "", "values near 1,000.*computed the NaN.*subtract the row's maximum"),
    ("mask", "softmax", 'other=float("-inf")', "other=0.0", "3 x 1,000.*-inf for a maximum"),
    ("stride", "softmax", "row * row_stride", "row * cols", "rows of 100.*row stride"),
    ("overflow", "softmax", ".to(tl.int64)", "", "rows 2.30 elements apart"),
    ("overflow", "softmax", "y + row * cols", "y + tl.program_id(0) * cols", "an output beyond 2.31 elements"),
    ("waves", "softmax", "num_warps=8", "num_warps=1", "waves .*more warps"),
    ("fixed block", "softmax", "triton.next_power_of_2(cols)", "1024", "2 x 8,192, rows as long as the true ones"),
    (
        "accumulator",
        "softmax",
        "(v - tl.max(v, 0))",
        "((v - tl.max(v, 0)).to(tl.float16).to(tl.float32)).to(tl.float16)",
        "a sum or product runs in fp16|sums in fp16",
    ),
    ("formula", "softmax", "e / tl.sum(e, 0)", "e", "divide by the sum"),
    ("cheat", "softmax", "    return y", "    return torch.softmax(x, 1)", "stays the same"),
    ("rescale", "softmax_online", "total * tl.exp(top - shift) +", "total +", "the running sum is rescaled"),
    ("rescale", "softmax_online", 'float("-inf"), 0.0\n', "0.0, 0.0\n", "values near -1,000.*maximum"),
    ("formula", "softmax_online", 'tl.where(new == float("-inf"), 0.0, new)', "0.0", "element .* is"),
    ("fixed block", "rms_norm", "triton.next_power_of_2(cols)", "1024", "2 x 8,192, rows as long as the true ones"),
    ("formula", "rms_norm", "/ cols + eps", "/ BLOCK + eps", "3 x 100.*not by the block"),
    ("accumulator", "rms_norm", "other=0.0).to(tl.float32)", "other=0.0)", "squares overflow fp16"),
    ("formula", "rms_norm", " * weight)", ")", "multiply by w"),
    (
        "formula",
        "rms_norm",
        "tl.rsqrt(tl.sum(v * v, 0) / cols + eps)",
        "1 / (tl.sqrt(tl.sum(v * v, 0) / cols) + eps)",
        "eps belongs under the root",
    ),
    ("formula", "rms_norm_backward", "tl.sum(g * v, 0) / cols)", "tl.sum(g * v, 0) / BLOCK)", "3 x 100.*not by the"),
    ("stride", "rms_norm_backward", "dy + row * dy_stride", "dy + row * x_stride", "x and dy have one each"),
    ("formula", "rms_norm_backward", "r * r * tl.sum", "r * tl.sum", "4 x 512.*two sums|large eps|values near"),
    ("overflow", "rms_norm_backward", ".to(tl.int64)", "", "rows 2.30 elements apart"),
    (
        "race",
        "row_sum",
        "tl.store(y + row, total)",
        "tl.store(y + row // 2, total)",
        "programs 0 and 1 write different",
    ),
    (
        "off by one",
        "row_sum",
        "range(0, cols, BLOCK)",
        "range(0, cols - 1, BLOCK)",
        "3 x 1: element.*the loop ends at the length",
    ),
    (
        "off by one",
        "softmax_online",
        "range(0, cols, BLOCK)",
        "range(0, cols - 1, BLOCK)",
        "3 x 1.*does its loop reach the end",
    ),
    ("off by one", "rms_norm", "mask=j < cols, other=0.0)", "mask=j < cols - 1, other=0.0)", "4 x 512"),
    (
        "mask",
        "rms_norm",
        "mask=j < cols, other=0.0).to(tl.float32)\n    scale",
        "mask=j < cols).to(tl.float32)\n    scale",
        "3 x 100.*a load without other=",
    ),
    (
        "cheat",
        "rms_norm",
        "    return y",
        "    return x * (x.float().square().mean(1, keepdim=True) + eps).rsqrt().half() * w",
        "stays the same",
    ),
    (
        "cheat",
        "rms_norm_backward",
        "    return dx",
        "    r = (x.float().square().mean(1, keepdim=True) + eps).rsqrt()\n"
        "    g = dy.float() * w.float()\n"
        "    return (r * (g - x * r * r * (g * x).mean(1, keepdim=True))).half()",
        "stays the same",
    ),
    ("fixed block", "rms_norm_backward", "triton.next_power_of_2(cols)", "2048", "not all of a long row"),
    (
        "fixed block",
        "softmax_online",
        "range(0, cols, BLOCK)",
        "range(0, 8 * BLOCK, BLOCK)",
        "2 x 65,536.*not all of a long row",
    ),
    (
        "traffic",
        "rms_norm",
        "weight = tl.load(w + j, mask=j < cols)",
        "v = tl.load(x + row * row_stride + j, mask=j < cols, other=0.0).to(tl.float32) + 0 * "
        "scale\n    v += 0 * tl.load(x + row * row_stride + j, mask=j < cols, other=0.0)\n"
        "    weight = tl.load(w + j, mask=j < cols)",
        "2.22 times the floor",
    ),
    # ---- products
    ("tail", "matmul", " & (k[None, :] < K)", "", "32 x 32 x 50"),
    ("tail", "matmul", "(k[:, None] < K) & ", "", "K reaches past the end"),
    ("stride", "matmul", "*b.stride()", "N, 1", "b is a transposed view.*both of its strides"),
    ("stride", "matmul", "*a.stride()", "K, 1", "a is a transposed view.*both of its strides"),
    ("overflow", "matmul", "i[:, None].to(tl.int64) * sam", "i[:, None] * sam", "rows of a 2.30 elements apart"),
    ("overflow", "matmul", "k[:, None].to(tl.int64) * sbk", "k[:, None] * sbk", "rows of b 2.30 elements apart"),
    ("overflow", "matmul", "c + i[:, None].to(tl.int64) * N", "c + i[:, None] * N", "an output beyond 2.31.*c's too"),
    (
        "accumulator",
        "matmul",
        "total = tl.dot(x, y, total)",
        "total = tl.dot(x, y, total).to(tl.float16).to(tl.float32)",
        "almost right",
    ),
    ("fixed block", "matmul", "range(0, K, BK)", "range(0, 8 * BK, BK)", "16 x 16 x 4,096, a long K.*not all of K"),
    ("waves", "matmul", MATMUL.format(128), MATMUL.format(256), "waves .*a smaller block"),
    ("tile", "matmul", "128", "16", "bytes .*a tile of 64 x 64 or more"),
    ("cheat", "matmul", "    return c", "    return a.float() @ b.float()", "stays the same"),
    ("off by one", "matmul", "range(0, K, BK)", "range(0, K - BK, BK)", "64 x 64 x 64: element"),
    (
        "tile",
        "naive_matmul",
        "32), triton.cdiv(N, 64))\n    naive_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=32, BN=64)",
        "16), triton.cdiv(N, 16))\n    naive_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=16, BN=16)",
        "a tile of 64 x 64",
    ),
    ("race", "split_k", "tl.atomic_add(", "tl.store(", "a race: programs 0 and 1 write different values to element"),
    ("form", "split_k", "torch.zeros(M", "torch.empty(M", "is nan.*what was in memory before.*the result starts at 0"),
    ("merge", "split_k", "(2) * part", "(2) * part // 2", "its own part of K, none twice"),
    ("spread", "split_k", "cdiv(K, 304)", "cdiv(K, 4)", "workgroups .*304 or more"),
    ("fixed block", "split_k", "triton.cdiv(K, part))", "64)", "K as long as the true one.*not all of K"),
    ("cheat", "split_k", "    return c", "    return a.float() @ b.float()", "stays the same"),
    ("mask", "skinny_gemv", "mask=i < N)", "mask=i <= N)", "outside its tensor"),
    ("tail", "skinny_gemv", " & (k[None, :] < K), other=0.0", ", other=0.0", "7 x 300"),
    ("overflow", "skinny_gemv", ".to(tl.int64) * stride", " * stride", "rows 2.30 elements apart"),
    ("stride", "skinny_gemv", "x + k * step", "x + k", "x is every second element.*x.stride"),
    ("coalescing", "matmul", "BM=128, BN=128, BK=32", "BM=128, BN=128, BK=32, num_warps=16", "64 bits -> 128 bits"),
    (
        "accumulator",
        "naive_matmul",
        "total += column[:, None] * row[None, :]",
        "total = (total + column[:, None] * row[None, :]).to(tl.float16).to(tl.float32)",
        "almost right",
    ),
    (
        "accumulator",
        "skinny_gemv",
        "total += weights.to(tl.float32) * token.to(tl.float32)[None, :]",
        "total += weights * token[None, :]",
        "almost right",
    ),
    (
        "off by one",
        "skinny_gemv",
        "range(0, K, BLOCK)",
        "range(0, K - 1, BLOCK)",
        "3 x 1: element.*the loop ends at the length",
    ),
    (
        "off by one",
        "split_k",
        "tl.minimum(first + part, K)",
        "tl.minimum(first + part, K - 1)",
        "each program adds its own part",
    ),
    (
        "off by one",
        "split_k",
        "range(first, last, BK)",
        "range(first, last - 1, BK)",
        "16 x 16 x 1: element.*missing at the end",
    ),
    ("fixed block", "skinny_gemv", "range(0, K, BLOCK)", "range(0, 4 * BLOCK, BLOCK)", "3 x 8,192.*not all of K"),
    ("fixed block", "naive_matmul", "range(K)", "range(min(K, 512))", "16 x 16 x 1,024.*not all of K"),
    (
        "tile",
        "split_k",
        "(triton.cdiv(M, 64), triton.cdiv(N, 32), triton.cdiv(K, part))\n"
        "    split_kernel[grid](a, b, c, M, N, K, part, *a.stride(), *b.stride(), BM=64, "
        "BN=32, BK=64)",
        "(triton.cdiv(M, 16), triton.cdiv(N, 16), triton.cdiv(K, part))\n"
        "    split_kernel[grid](a, b, c, M, N, K, part, *a.stride(), *b.stride(), BM=16, "
        "BN=16, BK=64)",
        "larger tiles",
    ),
    ("cheat", "skinny_gemv", "    return y", "    return w.float() @ x.float()", "stays the same"),
    (
        "mask",
        "naive_matmul",
        "inside = (i[:, None] < M) & (j[None, :] < N)",
        "inside = (i[:, None] <= M) & (j[None, :] < N)",
        "tl.store outside its tensor",
    ),
    ("stride", "split_k", "*b.stride()", "N, 1", "b is a transposed view"),
    ("stride", "naive_matmul", "*a.stride()", "K, 1", "a is a transposed view"),
    ("overflow", "split_k", "k[:, None].to(tl.int64) * sbk", "k[:, None] * sbk", "rows of b 2.30"),
    ("overflow", "naive_matmul", "i.to(tl.int64) * sam", "i * sam", "rows of a 2.30"),
    ("tail", "split_k", "(i[:, None] < M) & (k[None, :] < last)", "(i[:, None] < M)", "K reaches past the end"),
    (
        "spread",
        "skinny_gemv",
        "(triton.cdiv(N, 8),)](w, x, y, N, K, w.stride(0), x.stride(0), ROWS=8, BLOCK=512)",
        "(triton.cdiv(N, 32),)](w, x, y, N, K, w.stride(0), x.stride(0), ROWS=32, BLOCK=128)",
        "256 -> 304 or more",
    ),
    # ---- attention
    ("mask", "attention", SCORES, "tl.dot(query, key) * scale", "50 tokens.*-inf, not 0"),
    ("rescale", "attention", "result * shrink[:, None])", "result)", "rescale sum and output alike"),
    ("formula", "attention", "D**-0.5", "1.0", "square root of the head"),
    ("rescale", "attention", "tl.maximum(top, tl.max(score, 1))", "tl.zeros((BM,), tl.float32)", "large scores"),
    ("stride", "attention", "head * vh + j[:, None] * vn", "(head * M + j[:, None]) * D", "heads side by side"),
    ("stride", "attention", "*v.stride()[:2]", "*k.stride()[:2]", "laid out differently.*strides of its own"),
    ("overflow", "attention", "head = tl.program_id(1).to(tl.int64)", "head = tl.program_id(1)", "2.30 elements apart"),
    ("fixed block", "attention", "range(0, M, BN)", "range(0, 512, BN)", "4,096 tokens.*not all keys"),
    ("code", "attention", "weight.to(tl.float16)", "weight", "Both operands|dtype"),
    (
        "tile",
        "attention",
        "64), heads)\n    attention_kernel[grid](q, k, v, out, N, k.shape[1], *strides, D**-0.5, D=D, BM=64, BN=64)",
        "16), heads)\n    attention_kernel[grid](q, k, v, out, N, k.shape[1], *strides, D**-0.5, D=D, BM=16, BN=32)",
        "64 queries or more",
    ),
    (
        "off by one",
        "causal_attention",
        "j[None, :] <= i[:, None]",
        "j[None, :] < i[:, None]",
        "token i sees itself too",
    ),
    ("off by one", "causal_attention", "j[None, :] <= i[:, None]", "j[None, :] <= i[:, None] + 1", "one key too many"),
    ("formula", "causal_attention", "seen = j[None, :] <= i[:, None]", "seen = j[None, :] < M", "no mask: token i"),
    (
        "traffic",
        "causal_attention",
        "tl.minimum((tl.program_id(0) + 1) * BM, M)",
        "M",
        "3.2 times will do: keys behind",
    ),
    ("waves", "causal_attention", "BN=32", "BN=64", "1 for each SIMD.*2 are possible"),
    ("merge", "decode", "tl.load(sums + head * PARTS + p) * weight", "tl.load(sums + head * PARTS + p)", "the merge"),
    ("merge", "decode", "tl.where(j < last", "tl.where(j < M", "2 heads, 256 tokens.*each token"),
    ("merge", "decode", 'score = tl.where(j < last, score, float("-inf"))', "pass", "element .* is"),
    ("race", "decode", "parts + place * D", "parts + head * D", "a race: program"),
    ("spread", "decode", "16\n", "1\n", "workgroups .*304 or more|split"),
    ("formula", "decode", "D**-0.5", "1.0", "square root of the head"),
    ("formula", "paged_decode", "j // P,", "j // P // 2,", "table.t // P"),
    (
        "formula",
        "paged_decode",
        "page = tl.load(table + j // P, mask=j < last, other=0)",
        "page = (j // P)",
        "table.t //",
    ),
    ("formula", "paged_decode", "j % P * token_stride", "j * token_stride", "outside its tensor|table.t // P"),
    ("overflow", "paged_decode", "other=0).to(tl.int64)", "other=0)", "pages 2.30 elements apart"),
    ("rescale", "paged_decode", "tl.exp(top - new)", "1.0", "element .* is|is nan"),
    (
        "mask",
        "paged_decode",
        "d[None, :], mask=inside, other=0.0)\n        result",
        "d[None, :])\n        result",
        "nan|out",
    ),
    (
        "accumulator",
        "attention",
        "result * shrink[:, None])",
        "result * shrink[:, None]).to(tl.float16).to(tl.float32)",
        "4,096 tokens.*almost right: a sum or product runs in fp16",
    ),
    (
        "cheat",
        "attention",
        "    return out",
        "    return torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        "stays the same",
    ),
    (
        "off by one",
        "attention",
        "tl.where(j[None, :] < M, tl.dot",
        "tl.where(j[None, :] <= M, tl.dot",
        "50 tokens.*keys past the end must weigh nothing",
    ),
    (
        "off by one",
        "decode",
        "tl.minimum((part + 1) * PART, M)",
        "tl.minimum((part + 1) * PART, M - 1)",
        "each token belongs to one part",
    ),
    (
        "race",
        "causal_attention",
        "(head * N + i[:, None]) * D + d[None, :]\n",
        "(i[:, None]) * D + d[None, :]\n",
        "write different values",
    ),
    (
        "fixed block",
        "decode",
        "last = tl.minimum((part + 1) * PART, M)",
        "last = tl.minimum(tl.minimum((part + 1) * PART, M), part * PART + 256)",
        "16,384 tokens.*not all keys",
    ),
    (
        "fixed block",
        "paged_decode",
        "last = tl.minimum((part + 1) * PART, M)",
        "last = tl.minimum(tl.minimum((part + 1) * PART, M), part * PART + 256)",
        "16,384 tokens.*not all keys",
    ),
    ("stride", "decode", "*v.stride()[:2]", "*k.stride()[:2]", "k and v have strides of their own"),
    (
        "stride",
        "paged_decode",
        "k.stride()[:3]",
        "(P * k.shape[2] * D, k.shape[2] * D, D)",
        "pages with room between them.*strides",
    ),
    (
        "overflow",
        "decode",
        "head, part = tl.program_id(1).to(tl.int64)",
        "head, part = tl.program_id(1)",
        "heads of k 2.30",
    ),
    ("overflow", "causal_attention", "tl.program_id(1).to(tl.int64)", "tl.program_id(1)", "heads of q 2.30"),
    ("rescale", "causal_attention", "result * shrink[:, None]", "result", "rescale sum and output alike"),
    (
        "merge",
        "paged_decode",
        "(tl.sum(tile * weight[:, None], 0) / total)",
        "(tl.sum(tile, 0) / total)",
        "check the merge",
    ),
    (
        "mask",
        "decode",
        "k + head * kh + j[:, None] * kn + d[None, :], mask=inside, other=0.0",
        "k + head * kh + j[:, None] * kn + d[None, :]",
        "tl.load outside its tensor.*add a mask",
    ),
    # ---- repairs
    ("formula", "pair_sums", "even + odd", "even", "the second of each pair is missing"),
    ("mask", "pair_sums", "mask=i < m", "mask=i <= m", "outside its tensor"),
    ("formula", "pair_sums", "tl.program_id(0) * 2 * BLOCK", "tl.program_id(0) * BLOCK", "element .* is"),
    ("fixed block", "pair_sums", "triton.cdiv(y.numel(), 1024)", "4", "100,002 elements"),
    ("tail", "lean_matmul", " & (k[None, :] < K)", "", "32 x 32 x 50"),
    ("waves", "lean_matmul", LEAN.format(128), LEAN.format(256) + ", num_warps=4", "spilled|waves .*a smaller block"),
    ("fixed block", "lean_matmul", "range(0, K, BK)", "range(0, 8 * BK, BK)", "not all of K"),
    ("overflow", "lean_matmul", "c + i[:, None].to(tl.int64) * N", "c + i[:, None] * N", "an output beyond 2.31"),
    ("tile", "lean_matmul", "128", "32", "a tile of 64 x 64 or more"),
    ("formula", "scale_columns", "scales[None, :]", "scales[None, :] + 1", "element .* is"),
    ("mask", "scale_columns", " & (j[None, :] < N)", "", "outside its tensor|different values"),
    (
        "coalescing",
        "scale_columns",
        "32), triton.cdiv(N, 64))](x, s, y, M, N, BM=32, BN=64)",
        "256), triton.cdiv(N, 8))](x, s, y, M, N, BM=256, BN=8)",
        "lines of 128 bytes",
    ),
    ("overflow", "scale_columns", ".to(tl.int64)", "", "an output beyond 2.31"),
    ("cheat", "scale_columns", "    return y", "    return x * s", "stays the same"),
    ("race", "pair_sums", "tl.store(y + i,", "tl.store(y + i % BLOCK,", "write different values"),
    ("race", "scale_columns", "tl.store(y + place", "tl.store(y + place % (BM * N)", "write different values"),
    ("off by one", "pair_sums", "mask=j < 2 * m", "mask=j <= 2 * m", "1,002 elements"),
    (
        "accumulator",
        "lean_matmul",
        "total = tl.dot(x, y, total)",
        "total = tl.dot(x, y, total).to(tl.float16).to(tl.float32)",
        "almost right",
    ),
    ("cheat", "pair_sums", "    return y", "    return x[0::2] + x[1::2]", "stays the same"),
    ("cheat", "lean_matmul", "    return c", "    return a.float() @ b.float()", "stays the same"),
    ("off by one", "lean_matmul", "range(0, K, BK)", "range(0, K - 1, BK)", "missing at the end"),
    ("fixed block", "scale_columns", "triton.cdiv(N, 64)", "64", "2 x 8,192.*nothing was written there"),
    *WRONG_MODELS,
    *gluon_rows.WRONG,
]

STRIDED_TALL = """
@triton.jit
def tall_kernel(x, y, rows, cols, row_stride, col_stride, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (i < rows) & (j < cols)
    v = tl.load(x + i * row_stride + j * col_stride, mask=inside)
    tl.store(y + i * cols + j, v, mask=inside)


def strided_copy(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    tall_kernel[(triton.cdiv(rows, {BM}), triton.cdiv(cols, {BN}))](x, y, rows, cols, *x.stride(), BM={BM}, BN={BN})
    return y
"""

HALF_SOFTMAX = """
@triton.jit
def softmax_kernel(x, y, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf"))
    e = tl.exp((v - tl.max(v, 0).to(tl.float16)).to(tl.float32)).to(tl.float16)
    tl.store(y + row * cols + j, e / tl.sum(e, 0), mask=j < cols)


def softmax(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    softmax_kernel[(rows,)](x, y, cols, x.stride(0), BLOCK=triton.next_power_of_2(cols), num_warps=8)
    return y
"""

NUMPY_PRODUCT = """
@triton.jit
def move_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def naive_matmul(a, b):
    done = a.float() @ b.float()
    c = torch.empty_like(done)
    move_kernel[(triton.cdiv(c.numel(), 1024),)](done, c, c.numel(), BLOCK=1024)
    return c
"""

THREE_PASSES = """
@triton.jit
def passes_kernel(x, y, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tops = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf")).to(tl.float32)
        tops = tl.maximum(tops, v, propagate_nan=tl.PropagateNan.ALL)
    top = tl.reduce(tops, 0, larger)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf")).to(tl.float32)
        sums += tl.exp(v - top)
    total = tl.sum(sums, 0)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf")).to(tl.float32)
        tl.store(y + row * cols + j, (tl.exp(v - top) / total).to(tl.float16), mask=j < cols)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


def softmax_online(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    passes_kernel[(rows,)](x, y, cols, x.stride(0), BLOCK=2048)
    return y
"""

NO_OP = (
    SOLUTIONS["naive_matmul"]
    .replace("total, mask=inside", "total, mask=inside & False")
    .replace("    return c", "    return a.float() @ b.float()")
)

#: Whole solutions: class, puzzle, code, words.
WHOLE = [
    (
        "coalescing",
        "strided_copy",
        STRIDED_TALL.format(BM=256, BN=8),
        "lines of 128 bytes that the bytes fill -> 2 times",
    ),
    ("traffic", "softmax_online", THREE_PASSES, "2.00 times the floor.*1.5 times will do"),
    ("cheat", "naive_matmul", NO_OP, "stays the same when the kernels store nothing"),
    ("accumulator", "softmax", HALF_SOFTMAX, "sums in fp16|runs in fp16"),
    ("cheat", "naive_matmul", NUMPY_PRODUCT, r"PyTorch computes with the arguments \(|no kernel reads"),
    *gluon_rows.WHOLE,
]
