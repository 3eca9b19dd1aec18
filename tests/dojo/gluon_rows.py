# SPDX-License-Identifier: MIT
"""Solutions of the Gluon puzzle, as data: right ones in other styles, wrong and bad ones; see good.py and wrong.py."""

from rocm_guide.dojo.gluon import GLUON_IMPORTS
from tests.dojo.solutions import SOLUTIONS

PIPED = (
    GLUON_IMPORTS
    + """

@gluon.jit
def tile(pointer, first, rows, K, stride, step, LAYOUT: gl.constexpr, B: gl.constexpr, BK: gl.constexpr):
    i = gl.arange(0, B, layout=gl.SliceLayout(1, LAYOUT))[:, None]
    k = gl.arange(0, BK, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    return gl.load(pointer + (first + i) * stride + step + k, mask=(first + i < rows) & (step + k < K), other=0.0)


@gluon.jit
def piped_kernel(x, w, y, M, N, K, xs, ws, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    WAVES: gl.constexpr = gl.num_warps()
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [512 // BK, BK // 8], [WAVES, 1], [1, 0])
    LDS: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BK, 4]], [BM, BK], [1, 0])
    MM: gl.constexpr = AMDMFMALayout(3, [32, 32, 8], True, [WAVES // 2, 2])
    m, n = gl.program_id(0).to(gl.int64) * BM, gl.program_id(1).to(gl.int64) * BN
    x_lds = gl.allocate_shared_memory(gl.float16, [BM, BK], LDS)
    w_lds = gl.allocate_shared_memory(gl.float16, [BN, BK], LDS)
    total = gl.zeros([BM, BN], gl.float32, layout=MM)
    x_next = tile(x, m, M, K, xs, 0, ROWS, BM, BK)
    w_next = tile(w, n, N, K, ws, 0, ROWS, BN, BK)
    for step in range(BK, K + BK, BK):
        x_lds.store(x_next)
        w_lds.store(w_next)
        x_next = tile(x, m, M, K, xs, step, ROWS, BM, BK)
        w_next = tile(w, n, N, K, ws, step, ROWS, BN, BK)
        left = x_lds.load(gl.DotOperandLayout(0, MM, 4))
        total = cdna3.mfma(left, w_lds.permute([1, 0]).load(gl.DotOperandLayout(1, MM, 4)), total)
    i = m + gl.arange(0, BM, layout=gl.SliceLayout(1, MM))[:, None]
    j = n + gl.arange(0, BN, layout=gl.SliceLayout(0, MM))[None, :]
    gl.store(y + i * N + j, total, mask=(i < M) & (j < N))


def gluon_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    piped_kernel[(triton.cdiv(M, 128), triton.cdiv(N, 128))](x, w, y, M, N, K, x.stride(0), w.stride(0), 128, 128, 32)
    return y
"""
)

WRAP = (
    GLUON_IMPORTS
    + """

@gluon.jit
def wrapped_kernel(x, w, y, M, N, K, xs, ws, tiles, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [512 // BK, BK // 8], [4, 1], [1, 0])
    LDS: gl.constexpr = gl.SwizzledSharedLayout(4, 2, 8, [1, 0])
    MM: gl.constexpr = AMDMFMALayout(3, [16, 16, 16], True, [4, 1])
    OUT: gl.constexpr = gl.BlockedLayout([1, 4], [4, 16], [4, 1], [1, 0])
    x_lds = gl.allocate_shared_memory(gl.float16, [BM, BK], LDS)
    w_lds = gl.allocate_shared_memory(gl.float16, [BN, BK], LDS)
    k = gl.arange(0, BK, layout=gl.SliceLayout(0, ROWS))[None, :]
    m = (gl.program_id(0) // tiles).to(gl.int64) * BM
    n = (gl.program_id(0) % tiles).to(gl.int64) * BN
    x_at = x + (m + gl.arange(0, BM, layout=gl.SliceLayout(1, ROWS))[:, None]) % M * xs + k
    w_at = w + (n + gl.arange(0, BN, layout=gl.SliceLayout(1, ROWS))[:, None]) % N * ws + k
    total = gl.zeros([BM, BN], gl.float32, layout=MM)
    for step in range(0, K, BK):
        x_lds.store(gl.load(x_at + step, mask=k < K - step, other=0.0))
        w_lds.store(gl.load(w_at + step, mask=k < K - step, other=0.0))
        right = w_lds.permute([1, 0]).load(gl.DotOperandLayout(1, MM, 4))
        total = cdna3.mfma(x_lds.load(gl.DotOperandLayout(0, MM, 4)), right, total)
    total = gl.convert_layout(total, OUT)
    i = m + gl.arange(0, BM, layout=gl.SliceLayout(1, OUT))[:, None]
    j = n + gl.arange(0, BN, layout=gl.SliceLayout(0, OUT))[None, :]
    gl.store(y + i * N + j, total, mask=(i < M) & (j < N))


def gluon_linear(x, w):
    (M, K), N = x.shape, w.shape[0]
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    tiles = triton.cdiv(N, 64)
    wrapped_kernel[(triton.cdiv(M, 64) * tiles,)](x, w, y, M, N, K, x.stride(0), w.stride(0), tiles, 64, 64, 32)
    return y
"""
)


def _changed(code, *pairs):
    for old, new in pairs:
        assert old in code, old
        code = code.replace(old, new)
    return code


_DIRECT = _changed(
    SOLUTIONS["gluon_linear"],
    (
        "AMDMFMALayout, cdna3\n",
        "AMDMFMALayout, cdna3\nfrom triton.experimental.gluon.language.amd.cdna4 import async_copy\n",
    ),
    ("[1, 8], [512 // BK, BK // 8]", "[1, 2], [128 // BK, BK // 2]"),
    ("x_lds.store(gl.load(x + i", "async_copy.global_load_to_shared(x_lds, x + i"),
    ("w_lds.store(gl.load(w + j", "async_copy.global_load_to_shared(w_lds, w + j"),
    ("mask=(i < M) & inside, other=0.0))", "(i < M) & inside, other=0.0)"),
    (
        "mask=(j < N) & inside, other=0.0))",
        "(j < N) & inside, other=0.0)\n        async_copy.commit_group()\n        async_copy.wait_group(0)",
    ),
)

_ROWS = "[1, 8], [512 // BK, BK // 8], [4, 1], [1, 0])"
_GRID, _LAUNCH = "(triton.cdiv(M, 128), triton.cdiv(N, 128))", "BM=128, BN=128, BK=32)"
_LARGE = _GRID.replace("128", "256")
_MFMA = "total = cdna3.mfma(left, right, total)"
_WAIT = "        async_copy.wait_group(0)\n"


#: As good.WHOLE.
RIGHT = [
    ("gluon_linear", PIPED),
    ("gluon_linear", WRAP),
]

#: As good.CHANGED.
RIGHT_CHANGED = [
    ("gluon_linear", [("BK=32", "BK=64"), ("SwizzledSharedLayout(4, 2, 8", "SwizzledSharedLayout(4, 1, 16")]),
    (
        "gluon_linear",
        [
            (_GRID, _LARGE),
            (_LAUNCH, "BM=256, BN=256, BK=32, num_warps=8)"),
            ("[4, 1], [1, 0])", "[8, 1], [1, 0])"),
            ("True, [2, 2]", "True, [2, 4]"),
        ],
    ),
]

#: As wrong.WRONG.
WRONG = [
    (
        "mask",
        "gluon_linear",
        "mask=(row < M) & (column < N)",
        "mask=row < M",
        r"linear_kernel, line \d+ of the cell.*outside its tensor: .*writes 16 bytes at byte \d+ of y",
    ),
    (
        "mask",
        "gluon_linear",
        "mask=(i < M) & inside",
        "mask=inside",
        r"linear_kernel, line \d+ of the cell.*outside its tensor: .*reads 16 bytes at byte \d+ of x",
    ),
    (
        "tail",
        "gluon_linear",
        "mask=(j < N) & inside",
        "mask=j < N",
        "32 x 32 x 48: .*reads .* of w.* -> the last block of K",
    ),
    (
        "stride",
        "gluon_linear",
        "x.stride(0), w",
        "K, w",
        "x: rows of 64 in a matrix of 96 columns: element.*use x.stride",
    ),
    ("stride", "gluon_linear", "x.stride(0), w.stride(0)", "x.stride(0), K", "w: rows of 64 .*use w.stride"),
    (
        "overflow",
        "gluon_linear",
        "gl.program_id(0).to(gl.int64)",
        "gl.program_id(0)",
        "2.30 elements apart: .*gl.int64",
    ),
    (
        "overflow",
        "gluon_linear",
        "gl.program_id(1).to(gl.int64)",
        "gl.program_id(1)",
        "2.30 elements apart: .*gl.int64",
    ),
    ("overflow", "gluon_linear", "y + row * N", "y + row.to(gl.int32) * N", "an output beyond 2.31 .*the result's too"),
    ("accumulator", "gluon_linear", _MFMA, f"{_MFMA}.to(gl.float16).to(gl.float32)", "almost right: .*gl.float32"),
    (
        "fixed block",
        "gluon_linear",
        "range(0, K, BK)",
        "range(0, 64, BK)",
        "K as long as the true one: element.*not all of K",
    ),
    (
        "off by one",
        "gluon_linear",
        "range(0, K, BK)",
        "range(0, K - BK, BK)",
        "64 x 64 x 64: element .*one block of K is missing",
    ),
    ("off by one", "gluon_linear", "column < N", "column <= N", "outside its tensor"),
    (
        "formula",
        "gluon_linear",
        "(w + j * w_stride + step + k",
        "(w + j * w_stride + k",
        "the same block of w for all of K",
    ),
    (
        "formula",
        "gluon_linear",
        "y + row * N + column",
        "y + column * N + row",
        "the result is stored with rows and columns exchanged",
    ),
    (
        "layout",
        "gluon_linear",
        "SwizzledSharedLayout(4, 2, 8",
        "SwizzledSharedLayout(1, 1, 1",
        "banks .*swizzle or pad",
    ),
    (
        "layout",
        "gluon_linear",
        "SwizzledSharedLayout(4, 2, 8",
        "SwizzledSharedLayout(8, 2, 4",
        "banks .*without conflicts",
    ),
    (
        "layout",
        "gluon_linear",
        _ROWS,
        _ROWS.replace("4, 1", "2, 1"),
        r"compiles .*linear_kernel, line \d+ of the cell.*Layout has 2 warps per CTA",
    ),
    ("layout", "gluon_linear", "DotOperandLayout(1, MM, 4)", "DotOperandLayout(1, MM, 8)", "compiles .*kWidth"),
    (
        "coalescing",
        "gluon_linear",
        _ROWS,
        "[1, 2], [128 // BK, BK // 2], [4, 1], [1, 0])",
        "32 bits -> 128 bits .*size_per_thread",
    ),
    ("coalescing", "gluon_linear", "[16, 16, 16], True", "[16, 16, 16], False", "stores .*32 bits -> 128 bits"),
    (
        "cheat",
        "gluon_linear",
        "    return y",
        "    return x.float() @ w.float().T",
        "stays the same when the kernels store nothing",
    ),
    (
        "cheat",
        "gluon_linear",
        "    grid =",
        "    return x.float() @ w.float().T\n    grid =",
        "no Triton kernel was launched",
    ),
    (
        "cheat",
        "gluon_linear",
        "    grid =",
        "    x = x * 1\n    grid =",
        r"PyTorch computes with the arguments \(mul\)",
    ),
    (
        "cheat",
        "gluon_linear",
        "    grid =",
        "    x, w = (torch.from_numpy(t.numpy().copy()) for t in (x, w))\n    grid =",
        "no kernel reads",
    ),
    (
        "cheat",
        "gluon_linear",
        "    total = gl",
        "    gl.store(x + i * x_stride + k, 0.0, mask=(i < M) & (k < K))\n    total = gl",
        "changes its",
    ),
    (
        "cheat",
        "gluon_linear",
        "def gluon_linear(x, w):\n",
        "def gluon_linear(x, w, kept={}):\n    key = x.shape, w.shape\n    if key not in kept:\n"
        "        kept[key] = fresh(x, w)\n    return kept[key]\n\n\ndef fresh(x, w):\n",
        "something has kept it",
    ),
    ("form", "gluon_linear", "    return y", "    return y.half()", "returns float16; float32 is wanted"),
    ("form", "gluon_linear", "mask=(row < M) & (column < N)", "mask=row < 0", "no kernel has stored|stored nothing"),
    (
        "layout",
        "gluon_linear",
        "cdna3.mfma(left, right, total)",
        "cdna3.mfma(left, w_lds.load(gl.DotOperandLayout(1, MM, 4)), total)",
        "compiles",
    ),
]

#: As wrong.WHOLE.
WHOLE = [
    (
        "race",
        "gluon_linear",
        _changed(
            SOLUTIONS["gluon_linear"],
            ("range(0, K, BK)", "range(gl.program_id(2) * BK, K, 2 * BK)"),
            (_GRID, "(triton.cdiv(M, 128), triton.cdiv(N, 128), 2)"),
        ),
        r"linear_kernel, line \d+ of the cell.*workgroup \(0, 0, 0\) wrote .* -> .*one writer",
    ),
    (
        "wait",
        "gluon_linear",
        _changed(_DIRECT, (_WAIT, "")),
        r"line \d+ of the cell.*still loading.*async_copy.wait_group",
    ),
    ("coalescing", "gluon_linear", _DIRECT, "loads .*32 bits -> 128 bits for each lane"),
    (
        "layout",
        "gluon_linear",
        SOLUTIONS["matmul"].replace("def matmul(a, b):", "def gluon_linear(a, b):\n    b = b.T"),
        "matmul_kernel is written in Triton's language",
    ),
    (
        "coalescing",
        "gluon_linear",
        _changed(
            SOLUTIONS["gluon_linear"],
            ("ROWS: gl.constexpr", "_: gl.constexpr"),
            ("    m, n =", "    ROWS: gl.constexpr = gl.DotOperandLayout(0, MM, 4)\n    m, n ="),
        ),
        "64 bits -> 128 bits",
    ),
    (
        "tile",
        "gluon_linear",
        _changed(SOLUTIONS["gluon_linear"], (_GRID, _GRID.replace("128", "32")), (_LAUNCH, "BM=32, BN=32, BK=32)")),
        "bytes .*a tile of 64 x 64 or more",
    ),
    (
        "waves",
        "gluon_linear",
        _changed(SOLUTIONS["gluon_linear"], (_GRID, _LARGE), (_LAUNCH, "BM=256, BN=256, BK=32)")),
        "1 for each SIMD.* -> 2 are possible",
    ),
]
