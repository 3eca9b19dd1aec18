# SPDX-License-Identifier: MIT
"""Right solutions in styles other than the course's, as data: each is accepted."""

from tests.dojo import gluon_rows

PERSISTENT_COPY = """
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[(1216,)](x, y, x.numel(), BLOCK=4096)
    return y
"""

TILED_COPY = """
@triton.jit
def tile_kernel(x, y, rows, cols, row_stride, col_stride, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (i < rows) & (j < cols)
    tl.store(y + i * cols + j, tl.load(x + i * row_stride + j * col_stride, mask=inside), mask=inside)


def strided_copy(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tile_kernel[lambda meta: (triton.cdiv(x.shape[0], meta["BM"]), triton.cdiv(x.shape[1], meta["BN"]))](
        x, y, *x.shape, *x.stride(), BM=8, BN=256)
    return y
"""

POINTER_MATMUL = """
@triton.jit
def matmul_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr):
    tiles = tl.cdiv(N, BN)
    pid, rows = tl.program_id(0), tl.cdiv(M, BM)
    first = pid // (GROUP * tiles) * GROUP
    height = tl.minimum(rows - first, GROUP)
    i = (first + pid % (GROUP * tiles) % height) * BM + tl.arange(0, BM)
    j = pid % (GROUP * tiles) // height * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + i[:, None].to(tl.int64) * sam + k[None, :].to(tl.int64) * sak
    right = b + k[:, None].to(tl.int64) * sbk + j[None, :].to(tl.int64) * sbn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=(i[:, None] < M) & (k[None, :] < K - start * BK), other=0.0)
        y = tl.load(right, mask=(k[:, None] < K - start * BK) & (j[None, :] < N), other=0.0)
        total += tl.dot(x, y)
        left += BK * sak
        right += BK * sbk
    tl.store(c + i[:, None].to(tl.int64) * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(a.shape[0], 128) * triton.cdiv(b.shape[1], 64),)
    matmul_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), BM=128, BN=64, BK=64,
                        GROUP=8)
    return c
"""

ROW_BLOCKS = """
@triton.jit
def sums_kernel(x, y, rows, cols, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = (i[:, None] < rows) & (j[None, :] < cols)
        total += tl.load(x + i[:, None].to(tl.int64) * stride + j[None, :], mask=inside, other=0.0)
    tl.store(y + i, tl.sum(total, 1), mask=i < rows)


def row_sum(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    sums_kernel[(triton.cdiv(x.shape[0], 4),)](x, y, *x.shape, x.stride(0), ROWS=4, BLOCK=512)
    return y
"""

LINE_SCALE = """
@triton.jit
def line_kernel(x, s, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * N + j, mask=j < N, other=0.0) * tl.load(s + j, mask=j < N, other=0.0)
    tl.store(y + row * N + j, v, mask=j < N)


def scale_columns(x, s):
    y = torch.empty_like(x)
    line_kernel[(x.shape[0], triton.cdiv(x.shape[1], 2048))](x, s, y, x.shape[1], BLOCK=2048)
    return y
"""

#: Puzzle and a whole solution.
WHOLE = [
    ("copy", PERSISTENT_COPY),
    ("strided_copy", TILED_COPY),
    ("row_sum", ROW_BLOCKS),
    ("matmul", POINTER_MATMUL),
    ("scale_columns", LINE_SCALE),
    *gluon_rows.RIGHT,
]

#: Puzzle, and what is replaced in the course's solution by what.
CHANGED = [
    ("copy", [("2048", "8192"), ("mask=i < n), ", "mask=i < n, other=0.0), ")]),
    (
        "transpose",
        [
            ("mask=inside)\n    tl.store", "mask=inside, other=0.0)\n    tl.store"),
            ("BLOCK=64", "BLOCK=128"),
            ("rows, 64), triton.cdiv(cols, 64)", "rows, 128), triton.cdiv(cols, 128)"),
        ],
    ),
    ("quantise", [("2048", "4096")]),
    ("row_sum", [("    return y", "    return y.clone() * 1")]),
    ("softmax", [("tl.exp(v - tl.max(v, 0))", "tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)")]),
    ("softmax", [("num_warps=8", "num_warps=16")]),
    ("softmax_online", [("BLOCK=2048", "BLOCK=4096, num_warps=8")]),
    ("rms_norm", [("tl.rsqrt(tl.sum(v * v, 0) / cols + eps)", "1.0 / tl.sqrt(tl.sum(v * v, 0) / cols + eps)")]),
    ("matmul", [("BK=32", "BK=64")]),
    ("matmul", [("total = tl.dot(x, y, total)", "total += tl.dot(x, y)")]),
    ("naive_matmul", [("32), triton.cdiv(N, 64)", "64), triton.cdiv(N, 64)"), ("BM=32", "BM=64")]),
    ("skinny_gemv", [("ROWS=8, BLOCK=512", "ROWS=4, BLOCK=1024"), ("triton.cdiv(N, 8)", "triton.cdiv(N, 4)")]),
    ("attention", [("BM=64, BN=64", "BM=64, BN=32")]),
    ("attention", [("BM=64, BN=64", "BM=128, BN=32, num_warps=8"), ("triton.cdiv(N, 64)", "triton.cdiv(N, 128)")]),
    (
        "attention",
        [
            ("tl.exp(score", "tl.exp2(1.4426950408889634 * (score"),
            ("new[:, None])\n        shrink", "new[:, None]))\n        shrink"),
        ],
    ),
    (
        "causal_attention",
        [("BM=64, BN=32", "BM=128, BN=32, num_warps=8"), ("triton.cdiv(N, 64)", "triton.cdiv(N, 128)")],
    ),
    ("decode", [("M, count = q.shape, k.shape[1], 16", "M, count = q.shape, k.shape[1], 32")]),
    ("pair_sums", [("BLOCK=1024", "BLOCK=2048"), ("(y.numel(), 1024)", "(y.numel(), 2048)")]),
    (
        "pair_sums",
        [
            ("even, odd = tl.split(tl.reshape(both, (BLOCK, 2)))", "added = tl.sum(tl.reshape(both, (BLOCK, 2)), 1)"),
            ("even + odd", "added"),
        ],
    ),
    ("lean_matmul", [("N, 128))", "N, 64))"), ("BN=128", "BN=64")]),
    (
        "transpose",  # which lane stores what, the compiler decides
        [
            ("j[:, None].to(tl.int64) * rows + i[None, :]", "j[None, :].to(tl.int64) * rows + i[:, None]"),
            ("tl.trans(tile), mask=tl.trans(inside)", "tile, mask=inside"),
        ],
    ),
    ("block_scaled_matmul", [("tl.dot(x, y)", "tl.dot(x.to(tl.float16), y.to(tl.float16))")]),
    ("block_scaled_matmul", [("rows[:, None] * columns[None, :]", "(rows[:, None] * columns[None, :])")]),
    (
        "grouped_matmul",
        [
            ("BM=64, BN=128, BK=32", "BM=128, BN=64, BK=64"),
            ("(N, 128), triton.cdiv(T, 64)", "(N, 64), triton.cdiv(T, 128)"),
        ],
    ),
    (
        "rope_cache",
        [("high * c + low * s", "tl.fma(low, s, high * c)"), ("*strides, *sizes)", "*strides, *sizes, num_warps=2)")],
    ),
    ("linear_cross_entropy", [("BM=128, BN=64, BK=64", "BM=64, BN=128, BK=64"), ("(T, 128), parts", "(T, 64), parts")]),
    (
        "linear_cross_entropy",
        [
            ("score = tl.dot(a, b, score)", "score += tl.dot(a, b)"),
            ("(V, 16), 64) * 64, 256", "(V, 32), 64) * 64, 128"),
        ],
    ),
    *gluon_rows.RIGHT_CHANGED,
]
