# SPDX-License-Identifier: MIT
"""A solution of every puzzle, as the code of a notebook cell; the tests make their wrong solutions from them."""

SOLUTIONS = {}

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

SOLUTIONS["rms_norm"] = """
@triton.jit
def rms_kernel(x, w, y, cols, row_stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * row_stride + j, mask=j < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / cols + eps)
    weight = tl.load(w + j, mask=j < cols).to(tl.float32)
    tl.store(y + row * cols + j, (v * scale * weight).to(tl.float16), mask=j < cols)


def rms_norm(x, w, eps):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(cols)
    rms_kernel[(rows,)](x, w, y, cols, x.stride(0), eps, BLOCK=block, num_warps=8)
    return y
"""

SOLUTIONS["naive_matmul"] = """
@triton.jit
def naive_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(K):
        column = tl.load(a + i.to(tl.int64) * sam + k * sak, mask=i < M, other=0.0).to(tl.float32)
        row = tl.load(b + k * sbk + j * sbn, mask=j < N, other=0.0).to(tl.float32)
        total += column[:, None] * row[None, :]
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None].to(tl.int64) * N + j[None, :], total, mask=inside)


def naive_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    naive_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BM=32, BN=64)
    return c
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

SOLUTIONS["skinny_gemv"] = """
@triton.jit
def gemv_kernel(w, x, y, N, K, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        tile = w + i[:, None].to(tl.int64) * stride + k[None, :]
        weights = tl.load(tile, mask=(i[:, None] < N) & (k[None, :] < K), other=0.0)
        token = tl.load(x + k, mask=k < K, other=0.0)
        total += weights.to(tl.float32) * token.to(tl.float32)[None, :]
    tl.store(y + i, tl.sum(total, 1), mask=i < N)


def skinny_gemv(w, x):
    N, K = w.shape
    y = torch.empty(N, dtype=torch.float32, device=w.device)
    gemv_kernel[(triton.cdiv(N, 8),)](w, x, y, N, K, w.stride(0), ROWS=8, BLOCK=512)
    return y
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

SOLUTIONS["causal_attention"] = """
@triton.jit
def causal_kernel(q, k, v, out, N, M, qh, qn, kh, kn, vh, vn, scale,
                     D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + head * qh + i[:, None] * qn + d[None, :], mask=i[:, None] < N, other=0.0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * BM, M), BN):
        j = start + tl.arange(0, BN)
        key = tl.load(k + head * kh + j[None, :] * kn + d[:, None], mask=j[None, :] < M, other=0.0)
        seen = j[None, :] <= i[:, None]
        score = tl.where(seen, tl.dot(query, key) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new[:, None])
        shrink = tl.exp(top - new)
        value = tl.load(v + head * vh + j[:, None] * vn + d[None, :], mask=j[:, None] < M, other=0.0)
        result = tl.dot(weight.to(tl.float16), value, result * shrink[:, None])
        total = total * shrink + tl.sum(weight, 1)
        top = new
    place = out + (head * N + i[:, None]) * D + d[None, :]
    tl.store(place, (result / total[:, None]).to(tl.float16), mask=i[:, None] < N)


def causal_attention(q, k, v):
    heads, N, D = q.shape
    out = torch.empty(heads, N, D, dtype=q.dtype, device=q.device)
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])
    grid = (triton.cdiv(N, 64), heads)
    causal_kernel[grid](q, k, v, out, N, k.shape[1], *strides, D**-0.5, D=D, BM=64, BN=64)
    return out
"""

SOLUTIONS["decode"] = """
@triton.jit
def part_kernel(q, k, v, parts, tops, sums, M, PART, kh, kn, vh, vn, scale,
                D: tl.constexpr, BN: tl.constexpr):
    head, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    d = tl.arange(0, D)
    query = tl.load(q + head * D + d).to(tl.float32)
    top, total = float("-inf"), 0.0
    result = tl.zeros((D,), tl.float32)
    last = tl.minimum((part + 1) * PART, M)
    for start in range(part * PART, last, BN):
        j = start + tl.arange(0, BN)
        inside = j[:, None] < last
        key = tl.load(k + head * kh + j[:, None] * kn + d[None, :], mask=inside, other=0.0)
        score = tl.sum(key.to(tl.float32) * query[None, :], 1) * scale
        score = tl.where(j < last, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 0))
        weight, shrink = tl.exp(score - new), tl.exp(top - new)
        value = tl.load(v + head * vh + j[:, None] * vn + d[None, :], mask=inside, other=0.0)
        result = result * shrink + tl.sum(weight[:, None] * value.to(tl.float32), 0)
        total = total * shrink + tl.sum(weight, 0)
        top = new
    place = head * tl.num_programs(0) + part
    tl.store(parts + place * D + d, result)
    tl.store(tops + place, top)
    tl.store(sums + place, total)


@triton.jit
def merge_kernel(parts, tops, sums, out, PARTS: tl.constexpr, D: tl.constexpr):
    head, p, d = tl.program_id(0), tl.arange(0, PARTS), tl.arange(0, D)
    tops_here = tl.load(tops + head * PARTS + p)
    weight = tl.exp(tops_here - tl.max(tops_here, 0))
    total = tl.sum(tl.load(sums + head * PARTS + p) * weight, 0)
    tile = tl.load(parts + (head * PARTS + p[:, None]) * D + d[None, :])
    tl.store(out + head * D + d, (tl.sum(tile * weight[:, None], 0) / total).to(tl.float16))


def decode(q, k, v):
    (heads, D), M, count = q.shape, k.shape[1], 16
    parts = torch.empty(heads, count, D, dtype=torch.float32, device=q.device)
    tops, sums = torch.empty_like(parts[..., 0]), torch.empty_like(parts[..., 0])
    out = torch.empty(heads, D, dtype=q.dtype, device=q.device)
    strides = (*k.stride()[:2], *v.stride()[:2])
    part = triton.cdiv(M, count)
    part_kernel[(count, heads)](q, k, v, parts, tops, sums, M, part, *strides, D**-0.5, D=D, BN=32)
    merge_kernel[(heads,)](parts, tops, sums, out, PARTS=count, D=D)
    return out
"""

SOLUTIONS["rms_norm_backward"] = """
@triton.jit
def rms_grad_kernel(x, w, dy, dx, cols, x_stride, dy_stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * x_stride + j, mask=j < cols, other=0.0).to(tl.float32)
    g = tl.load(dy + row * dy_stride + j, mask=j < cols, other=0.0).to(tl.float32)
    g *= tl.load(w + j, mask=j < cols, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, 0) / cols + eps)
    back = r * (g - v * (r * r * tl.sum(g * v, 0) / cols))
    tl.store(dx + row * cols + j, back.to(tl.float16), mask=j < cols)


def rms_norm_backward(x, w, dy, eps):
    rows, cols = x.shape
    dx = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(cols)
    rms_grad_kernel[(rows,)](x, w, dy, dx, cols, x.stride(0), dy.stride(0), eps, BLOCK=block, num_warps=8)
    return dx
"""

SOLUTIONS["paged_decode"] = """
@triton.jit
def paged_kernel(q, k, v, table, parts, tops, sums, M, PART, page_stride, token_stride, head_stride, scale,
                 P: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    head, part = tl.program_id(1), tl.program_id(0)
    d = tl.arange(0, D)
    query = tl.load(q + head * D + d).to(tl.float32)
    top, total = float("-inf"), 0.0
    result = tl.zeros((D,), tl.float32)
    last = tl.minimum((part + 1) * PART, M)
    for start in range(part * PART, last, BN):
        j = start + tl.arange(0, BN)
        page = tl.load(table + j // P, mask=j < last, other=0).to(tl.int64)
        place = page * page_stride + j % P * token_stride + head * head_stride
        inside = j[:, None] < last
        key = tl.load(k + place[:, None] + d[None, :], mask=inside, other=0.0)
        score = tl.sum(key.to(tl.float32) * query[None, :], 1) * scale
        score = tl.where(j < last, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 0))
        weight, shrink = tl.exp(score - new), tl.exp(top - new)
        value = tl.load(v + place[:, None] + d[None, :], mask=inside, other=0.0)
        result = result * shrink + tl.sum(weight[:, None] * value.to(tl.float32), 0)
        total = total * shrink + tl.sum(weight, 0)
        top = new
    at = head * tl.num_programs(0) + part
    tl.store(parts + at * D + d, result)
    tl.store(tops + at, top)
    tl.store(sums + at, total)


@triton.jit
def merge_kernel(parts, tops, sums, out, PARTS: tl.constexpr, D: tl.constexpr):
    head, p, d = tl.program_id(0), tl.arange(0, PARTS), tl.arange(0, D)
    tops_here = tl.load(tops + head * PARTS + p)
    weight = tl.exp(tops_here - tl.max(tops_here, 0))
    total = tl.sum(tl.load(sums + head * PARTS + p) * weight, 0)
    tile = tl.load(parts + (head * PARTS + p[:, None]) * D + d[None, :])
    tl.store(out + head * D + d, (tl.sum(tile * weight[:, None], 0) / total).to(tl.float16))


def paged_decode(q, k, v, table, length):
    (heads, D), P, count = q.shape, k.shape[1], 16
    parts = torch.empty(heads, count, D, dtype=torch.float32, device=q.device)
    tops, sums = torch.empty_like(parts[..., 0]), torch.empty_like(parts[..., 0])
    out = torch.empty(heads, D, dtype=q.dtype, device=q.device)
    part = triton.cdiv(length, count)
    strides = k.stride()[:3]
    paged_kernel[(count, heads)](q, k, v, table, parts, tops, sums, length, part, *strides, D**-0.5,
                                 P=P, D=D, BN=32)
    merge_kernel[(heads,)](parts, tops, sums, out, PARTS=count, D=D)
    return out
"""

SOLUTIONS["pair_sums"] = """
@triton.jit
def pairs_kernel(x, y, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    both = tl.load(x + j, mask=j < 2 * m, other=0.0)
    even, odd = tl.split(tl.reshape(both, (BLOCK, 2)))
    tl.store(y + i, even + odd, mask=i < m)


def pair_sums(x):
    y = torch.empty(x.numel() // 2, dtype=x.dtype, device=x.device)
    pairs_kernel[(triton.cdiv(y.numel(), 1024),)](x, y, y.numel(), BLOCK=1024)
    return y
"""

SOLUTIONS["lean_matmul"] = """
@triton.jit
def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None].to(tl.int64) * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None].to(tl.int64) * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    place = c + i[:, None].to(tl.int64) * N + j[None, :]
    tl.store(place, total, mask=(i[:, None] < M) & (j[None, :] < N))


def lean_matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    product_kernel[grid](a, b, c, M, N, K, BM=128, BN=128, BK=32)
    return c
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
