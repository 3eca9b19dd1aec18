# SPDX-License-Identifier: MIT
"""A solution of every puzzle, as the code of a notebook cell; the tests make their wrong solutions from them."""

from rocm_guide.dojo.solved.show import SOLVED, show_solution

SOLUTIONS = {name: show_solution(name).text for name in SOLVED}

SOLUTIONS["add"] = """
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""

SOLUTIONS["copy"] = """
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=2048)
    return y
"""

SOLUTIONS["strided_copy"] = """
@triton.jit
def strided_kernel(x, y, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * row_stride + j * col_stride, mask=j < cols)
    tl.store(y + row * cols + j, v, mask=j < cols)


def strided_copy(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(cols, 2048))
    strided_kernel[grid](x, y, cols, *x.stride(), BLOCK=2048)
    return y
"""

SOLUTIONS["transpose"] = """
@triton.jit
def transpose_kernel(x, y, rows, cols, row_stride, col_stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i[:, None] < rows) & (j[None, :] < cols)
    tile = tl.load(x + i[:, None].to(tl.int64) * row_stride + j[None, :] * col_stride, mask=inside)
    tl.store(y + j[:, None].to(tl.int64) * rows + i[None, :], tl.trans(tile), mask=tl.trans(inside))


def transpose(x):
    rows, cols = x.shape
    y = torch.empty(cols, rows, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
    transpose_kernel[grid](x, y, rows, cols, *x.stride(), BLOCK=64)
    return y
"""

SOLUTIONS["quantise"] = """
@triton.jit
def quantise_kernel(x, scale, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32) / tl.load(scale)
    v = tl.clamp(v, -240.0, 240.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + i, v.to(tl.float8e4b8), mask=i < n)


def quantise(x, scale):
    y = torch.empty_like(x, dtype=torch.float8_e4m3fnuz)
    quantise_kernel[(triton.cdiv(x.numel(), 2048),)](x, scale, y, x.numel(), BLOCK=2048)
    return y
"""

SOLUTIONS["row_sum"] = """
@triton.jit
def sum_kernel(x, y, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols, other=0.0)
        total += tl.sum(v.to(tl.float32), 0)
    tl.store(y + row, total)


def row_sum(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    sum_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=2048)
    return y
"""

SOLUTIONS["softmax"] = """
@triton.jit
def softmax_kernel(x, y, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * cols + j, (e / tl.sum(e, 0)).to(tl.float16), mask=j < cols)


def softmax(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(cols)
    softmax_kernel[(rows,)](x, y, cols, x.stride(0), BLOCK=block, num_warps=8)
    return y
"""

SOLUTIONS["softmax_online"] = """
@triton.jit
def online_kernel(x, y, cols, row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = float("-inf"), 0.0
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v, 0), propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(v - shift), 0)
        top = new
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * row_stride + j, mask=j < cols).to(tl.float32)
        tl.store(y + row * cols + j, (tl.exp(v - top) / total).to(tl.float16), mask=j < cols)


def softmax_online(x):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    online_kernel[(rows,)](x, y, cols, x.stride(0), BLOCK=2048)
    return y
"""

SOLUTIONS["matmul"] = """
@triton.jit
def matmul_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = a + i[:, None].to(tl.int64) * sam + k[None, :] * sak
        right = b + k[:, None].to(tl.int64) * sbk + j[None, :] * sbn
        x = tl.load(left, mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(right, mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None].to(tl.int64) * N + j[None, :], total, mask=inside)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=128, BN=128, BK=32)
    return c
"""

SOLUTIONS["split_k"] = """
@triton.jit
def split_kernel(a, b, c, M, N, K, part, sam, sak, sbk, sbn,
                 BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    first = tl.program_id(2) * part
    last = tl.minimum(first + part, K)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(first, last, BK):
        k = start + tl.arange(0, BK)
        left = a + i[:, None].to(tl.int64) * sam + k[None, :] * sak
        right = b + k[:, None].to(tl.int64) * sbk + j[None, :] * sbn
        x = tl.load(left, mask=(i[:, None] < M) & (k[None, :] < last), other=0.0)
        y = tl.load(right, mask=(k[:, None] < last) & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.atomic_add(c + i[:, None] * N + j[None, :], total, mask=inside)


def split_k(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros(M, N, dtype=torch.float32, device=a.device)
    part = triton.cdiv(triton.cdiv(K, 304), 64) * 64
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 32), triton.cdiv(K, part))
    split_kernel[grid](a, b, c, M, N, K, part, *a.stride(), *b.stride(), BM=64, BN=32, BK=64)
    return c
"""

SOLUTIONS["attention"] = """
@triton.jit
def attention_kernel(q, k, v, out, N, M, qh, qn, kh, kn, vh, vn, scale,
                     D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + head * qh + i[:, None] * qn + d[None, :], mask=i[:, None] < N, other=0.0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for start in range(0, M, BN):
        j = start + tl.arange(0, BN)
        key = tl.load(k + head * kh + j[None, :] * kn + d[:, None], mask=j[None, :] < M, other=0.0)
        score = tl.where(j[None, :] < M, tl.dot(query, key) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new[:, None])
        shrink = tl.exp(top - new)
        value = tl.load(v + head * vh + j[:, None] * vn + d[None, :], mask=j[:, None] < M, other=0.0)
        result = tl.dot(weight.to(tl.float16), value, result * shrink[:, None])
        total = total * shrink + tl.sum(weight, 1)
        top = new
    place = out + (head * N + i[:, None]) * D + d[None, :]
    tl.store(place, (result / total[:, None]).to(tl.float16), mask=i[:, None] < N)


def attention(q, k, v):
    heads, N, D = q.shape
    out = torch.empty(heads, N, D, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])
    grid = (triton.cdiv(N, 64), heads)
    attention_kernel[grid](q, k, v, out, N, k.shape[1], *strides, D**-0.5, D=D, BM=64, BN=64)
    return out
"""

SOLUTIONS["scale_columns"] = """
@triton.jit
def scale_kernel(x, s, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    place = i[:, None].to(tl.int64) * N + j[None, :]
    inside = (i[:, None] < M) & (j[None, :] < N)
    tile = tl.load(x + place, mask=inside, other=0.0)
    scales = tl.load(s + j, mask=j < N, other=0.0)
    tl.store(y + place, tile * scales[None, :], mask=inside)


def scale_columns(x, s):
    M, N = x.shape
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 64))](x, s, y, M, N, BM=32, BN=64)
    return y
"""
