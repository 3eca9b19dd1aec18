# SPDX-License-Identifier: MIT
"""Puzzles that are parts of today's models: a product of blocks with scales, experts, RoPE with the cache, the loss."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch

from cdna.grade.puzzle import MASK, OFFSET, ONE, Case, Expect, Fault, Puzzle, far_apart, reserved
from rocm_guide.dojo.elementwise import beyond, empty, normal
from rocm_guide.dojo.products import LONG, TAIL, TILE

__all__ = ["MODELS"]

_HALF = "a sum or product runs in fp16 and overflows: accumulate in fp32"
_BLOCK = 128  # elements of K, and of N, that share a scale

# ---- a product of FP8 blocks with scales


def _spread(scales: Any, dimension: int, size: int) -> Any:
    """Return each scale for every one of the 128 that share it."""
    return scales.repeat_interleave(_BLOCK, dimension).narrow(dimension, 0, size)


def _scaled(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    """Compute (a times its scales) @ (b times its scales).T in whatever precision arrives."""
    rows, columns = a.shape[1], b.shape[0]
    a, b = a.to(sa.dtype), b.to(sb.dtype)  # torch multiplies no FP8 by a number
    return (a * _spread(sa, 1, rows)) @ (b * _spread(_spread(sb, 0, columns), 1, rows)).T


def _fp8(*shape: int, seed: int = 0) -> Any:
    return normal(*shape, seed=seed, dtype="float32").to(torch.float8_e4m3fnuz)


def _scales(*shape: int, seed: int, large: float = 1.0) -> Any:
    """Return scales from 1/4 to 4 (times ``large``), so that one in the wrong place shows."""
    return 2 ** normal(*shape, seed=seed, dtype="float32").clamp(-2, 2) * large


def _block_case(m: int, n: int, k: int, large: float = 1.0) -> tuple[Any, ...]:
    blocks = -(-k // _BLOCK)
    scales = _scales(m, blocks, seed=2, large=large), _scales(-(-n // _BLOCK), blocks, seed=3)
    return _fp8(m, k), _fp8(n, k, seed=1), *scales


def _block_views() -> tuple[Any, ...]:
    """Return operands that are parts of wider ones, and scales of a that lie column by column."""
    a, b, sa, sb = _block_case(48, 140, 256)
    wide = [t.new_zeros(t.shape[0], t.shape[1] + 64) for t in (a, b)]
    for room, t in zip(wide, (a, b), strict=True):
        room[:, : t.shape[1]] = t
    return wide[0][:, :256], wide[1][:, :256], sa.T.contiguous().T, sb.T.contiguous().T


_BLOCK_FAULTS = (
    Fault("the scales are not used", lambda a, b, sa, sb: a @ b.T),
    Fault("the scales of a are not used", lambda a, b, sa, sb: _scaled(a, b, sa * 0 + 1, sb)),
    Fault("the scales of b are not used", lambda a, b, sa, sb: _scaled(a, b, sa, sb * 0 + 1)),
    Fault(
        "the scales of the first block of K serve all: start // 128 moves on",
        lambda a, b, sa, sb: _scaled(a, b, sa[:, :1].expand_as(sa), sb[:, :1].expand_as(sb)),
    ),
    Fault(
        "the scales of b's first 128 columns serve all: j // 128",
        lambda a, b, sa, sb: _scaled(a, b, sa, sb[:1].expand_as(sb)),
    ),
    Fault(
        "the scales of the last block of K serve all: multiply the sum of each block by its scales, then add",
        lambda a, b, sa, sb: _scaled(a, b, sa[:, -1:].expand_as(sa), sb[:, -1:].expand_as(sb)),
    ),
    Fault("divided by the scales: multiply by them", lambda a, b, sa, sb: _scaled(a, b, 1 / sa, 1 / sb)),
    Fault(
        "one block of K is missing at the end: range(0, K, BLOCK)",
        lambda a, b, sa, sb: _scaled(a[:, :-_BLOCK], b[:, :-_BLOCK], sa, sb),
    ),
)

_BLOCK_SCALED = Puzzle(
    name="block_scaled_matmul",
    dtype="bfloat16",
    task="block_scaled_matmul(a, b, sa, sb): the product of a [M, K] and the transpose of b [N, K], both in "
    "float8_e4m3fnuz, in bf16; sa [M, K / 128] has a scale for each row and 128 of K, sb [N / 128, K / 128] one for "
    "each block of 128 x 128, rounded up where N or K is no multiple; multiply by them",
    formula="(a.float() * sa.repeat_interleave(128, 1)) @ (b.float() * sb of each block of 128 x 128).T",
    reference=_scaled,
    cases=(
        Case("64 x 64 x 256", lambda: _block_case(64, 64, 256), "each block of 128 along K: its sum times two scales"),
        Case("32 x 256 x 128", lambda: _block_case(32, 256, 128), "the scale of b changes after 128 columns: j // 128"),
        Case("40 x 70 x 128", lambda: _block_case(40, 70, 128), MASK + "; M and N need a mask each"),
        Case("32 x 32 x 200", lambda: _block_case(32, 32, 200), TAIL),
        Case("1 x 1 x 1", lambda: _block_case(1, 1, 1), ONE),
        Case("sums beyond 65,504", lambda: _block_case(32, 32, 256, 2e4), _HALF),
        Case(
            "parts of wider matrices, scales column by column", _block_views, "use all strides, those of sa and sb too"
        ),
        Case(
            "rows of a 2^30 elements apart",
            lambda: (far_apart(128, dtype="float8_e4m3fnuz"), *_block_case(3, 16, 128)[1:]),
            OFFSET,
        ),
        Case(
            "rows of b 2^30 elements apart",
            lambda: (_fp8(16, 128), far_apart(128, seed=1, dtype="float8_e4m3fnuz"), *_block_case(16, 3, 128)[2:]),
            OFFSET + "; b's too",
        ),
        Case("128 x 128 x 256, bytes counted", lambda: _block_case(128, 128, 256), "each block once", traffic=True),
        Case("16 x 16 x 4,096, K as long as the true one", lambda: _block_case(16, 16, 4096), LONG),
        beyond(
            lambda: (
                *(reserved(n, 2, dtype="float8_e4m3fnuz") for n in (32_832, 65_536)),
                *(reserved(n, 1, dtype="float32") for n in (32_832, 512)),
            ),
            OFFSET + "; c's too",
        ),
    ),
    shape=lambda device: (
        *empty(device, (4096, 4096), (4096, 4096), dtype="float8_e4m3fnuz"),
        *empty(device, (4096, 32), (32, 32), dtype="float32"),
    ),
    small=lambda: _block_case(128, 128, 256),
    expect=Expect(load_bits=128, mfma=True, waves=2, workgroups=304, traffic=1.8, lines_stored=8, traffic_fix=TILE),
    faults=_BLOCK_FAULTS,
    relative=8e-3,
)

# ---- experts


def _grouped(x: Any, w: Any, ends: Any) -> Any:
    """Multiply the rows of each expert by its matrix."""
    firsts = [0, *ends.tolist()]
    return torch.cat([x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(firsts))])


def _experts(counts: list[int], n: int, k: int, scale: float = 1.0) -> tuple[Any, ...]:
    ends = torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return normal(sum(counts), k, scale=scale), normal(len(counts), k, n, seed=1, scale=scale), ends


def _cancelling() -> tuple[Any, ...]:
    """Return products whose first half adds up to more than fp16 holds, and whose second takes most of it back."""
    x, w, ends = _experts([20, 12], 32, 512)
    x[:, :256], x[:, 256:] = 30.0, -30.0
    return x, w.abs() * 0 + 30.0 + w, ends


def _views() -> tuple[Any, ...]:
    x, w, ends = _experts([20, 0, 13], 48, 64)
    wide = x.new_zeros(33, 80)
    wide[:, :64] = x
    return wide[:, :64], w.transpose(1, 2).contiguous().transpose(1, 2), ends


def _far_experts() -> tuple[Any, ...]:
    x, _, ends = _experts([5, 7, 9], 16, 32)
    return x, far_apart(32, 16, seed=1), ends


def _far_rows() -> tuple[Any, ...]:
    _, w, ends = _experts([1, 2], 16, 32)
    return far_apart(32), w, ends


def _many_rows() -> tuple[Any, ...]:
    """Return rows that are one in memory, 4,096 more than an output of 2^31 elements has, all of one expert."""
    rows = (1 << 19) + 4096
    return normal(1, 16).expand(rows, 16), normal(1, 16, 4096), torch.tensor([rows], dtype=torch.int32)


def _wrong_expert(shift: int) -> Any:
    return lambda x, w, ends: _grouped(x, w.roll(shift, 0), ends)


_EXPERTS = "rows of one expert only in each tile: a tile begins at its expert's first row and ends at its last"
_GROUPED = Puzzle(
    name="grouped_matmul",
    task="grouped_matmul(x, w, ends): the product of experts: the fp16 rows x [T, K] are sorted by expert; those of "
    "expert e begin where those of e - 1 end, end before ends[e] (int32, on the GPU: the host does not read it), and "
    "are multiplied by w[e] of w [E, K, N], in fp16; some experts have no rows",
    formula="torch._grouped_mm(x, w, offs=ends)",
    reference=_grouped,
    cases=(
        Case(
            "experts with 64 and 64 rows", lambda: _experts([64, 64], 64, 64), "row of x times column of its expert's w"
        ),
        Case("experts with 37, 5 and 86 rows", lambda: _experts([37, 5, 86], 64, 64), _EXPERTS),
        Case("experts without rows", lambda: _experts([0, 21, 0, 0, 30, 0], 32, 32), _EXPERTS + "; some have none"),
        Case("N = 70", lambda: _experts([20, 21], 70, 32), MASK + "; N needs one"),
        Case("K = 50", lambda: _experts([20, 21], 32, 50), TAIL),
        Case("one row, K = 1", lambda: _experts([0, 1], 16, 1), ONE),
        Case("sums beyond 65,504 on the way", _cancelling, _HALF),
        Case("x and w are views", _views, "x and w have strides of their own: use all five"),
        Case("rows of x 2^30 elements apart", _far_rows, OFFSET),
        Case("experts 2^30 elements apart", _far_experts, OFFSET.replace("row", "expert")),
        Case(
            "experts with 128 and 128 rows, bytes counted",
            lambda: _experts([128, 128], 128, 64),
            _EXPERTS,
            traffic=True,
        ),
        Case("K = 2,048, as long as the true one", lambda: _experts([8, 8], 16, 2048, 0.5), LONG),
        Case("24 experts, 39 rows", lambda: _experts([1, 3, 0, 2, 1, 0, 4, 2] * 3, 16, 16), _EXPERTS),
        beyond(_many_rows, OFFSET + "; y's too"),
    ),
    shape=lambda device: (
        *empty(device, (16_384, 2048), (64, 2048, 1536)),
        torch.arange(256, 16_640, 256, dtype=torch.int32, device=device),
    ),
    small=lambda: _experts([60, 0, 68], 128, 64),
    expect=Expect(load_bits=128, mfma=True, waves=2, workgroups=304, traffic=2.0, lines_stored=8, traffic_fix=TILE),
    faults=(
        Fault("every row is multiplied by the first expert's matrix", lambda x, w, ends: x @ w[0]),
        Fault("the matrix of the expert before", _wrong_expert(1)),
        Fault("the matrix of the next expert", _wrong_expert(-1)),
    ),
    absolute=2e-2,
)

# ---- RoPE with the write to the cache


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotate each pair (x[d], x[d + D / 2]) by its angle; x [tokens, heads, D], cos and sin [tokens, D / 2]."""
    low, high = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([low * c - high * s, high * c + low * s], -1)


def _written(cache: Any, rows: Any, slots: Any) -> Any:
    new = cache.clone()
    new[slots[slots >= 0].long()] = rows[slots >= 0].to(new.dtype)  # a rotation may be in fp32
    return new


def _rope(
    q: Any, k: Any, v: Any, cos: Any, sin: Any, slots: Any, keys: Any, values: Any, *, rotate: Any = _rotated
) -> list[Any]:
    return [rotate(q, cos, sin), _written(keys, rotate(k, cos, sin), slots), _written(values, v, slots)]


def _neighbours(x: Any, cos: Any, sin: Any) -> Any:
    even, odd, c, s = x[..., 0::2], x[..., 1::2], cos[:, None], sin[:, None]
    return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)


def _tokens(tokens: int, heads: int, few: int, size: int, room: int = 40) -> tuple[Any, ...]:
    """Return q, k, v, angles, a slot for each token (0 among them, every fifth without one), and two caches."""
    made = [normal(tokens, h, size, seed=i) for i, h in enumerate((heads, few, few))]
    angles = 2 * normal(tokens, size // 2, seed=3, dtype="float32")
    slots = torch.randperm(room, generator=torch.Generator().manual_seed(4))
    slots = slots[slots > 0][: tokens - 1].int()
    slots = torch.cat([slots[:2], torch.zeros(1, dtype=torch.int32), slots[2:]])
    slots[4::5] = -1
    caches = [normal(room, few, size, seed=i) for i in (5, 6)]
    return *made, angles.cos(), angles.sin(), slots, *caches


def _one_projection() -> tuple[Any, ...]:
    """Return q and k as parts of one tensor, v and the caches with room behind each head."""
    slots = _tokens(12, 4, 2, 32)[5]
    both = normal(12, 6, 32, seed=9)
    apart = normal(12, 3, 64, seed=12)
    wide = [normal(40, 3, n, seed=n)[:, :2, :32] for n in (48, 40)]
    angles = [normal(12, 64, seed=i, dtype="float32")[:, :16] for i in (10, 11)]
    return both[:, :4], both[:, 4:], apart[:, :2, :32], *angles, slots, *wide


def _far_token(which: int) -> tuple[Any, ...]:
    """Return three tokens of q (0), k (1) or v (2), or three slots of the caches (6, 7), 2^30 elements apart."""
    made = list(_tokens(3, 2, 2, 16, room=3))
    made[5] = torch.tensor([2, 0, 1], dtype=torch.int32)
    made[which] = far_apart(2, 16, seed=which)
    return tuple(made)


def _many_tokens() -> tuple[Any, ...]:
    tokens = (1 << 31) // 1024 + 8
    made = [normal(1, h, 128, seed=i).expand(tokens, h, 128) for i, h in enumerate((8, 1, 1))]
    angles = [normal(1, 64, seed=i, dtype="float32").expand(tokens, 64) for i in (3, 4)]
    slots = made[0].new_full((1,), 1).int().expand(tokens)
    return *made, *angles, slots.contiguous(), normal(4, 1, 128), normal(4, 1, 128)


_SLOT_OFFSET = OFFSET.replace("row", "slot")
_ROPE = Puzzle(
    name="rope_cache",
    task="rope_cache(q, k, v, cos, sin, slots, keys, values): returns q [tokens, heads, D] rotated (RoPE) and writes "
    "k, rotated, and v into row slots[t] of the caches keys and values [slots, few heads, D]; token t has the angles "
    "cos[t], sin[t] (fp32, [tokens, D / 2]) for its pairs (x[d], x[d + D / 2]); a slot of -1 means: do not write; "
    "slots is contiguous int32, all else fp16; D is a power of two and contiguous",
    formula="rotate(q); keys[slots] = rotate(k); values[slots] = v, rotate(x) = x * cos + rotate_half(x) * sin",
    reference=_rope,
    writes=(6, 7),
    cases=(
        Case("8 tokens, 4 heads and 2 of 32", lambda: _tokens(8, 4, 2, 32), "the first half turns with the second"),
        Case(
            "5 tokens, 6 heads and 3 of 16", lambda: _tokens(5, 6, 3, 16), MASK + "; heads need not be a power of two"
        ),
        Case("one token", lambda: _tokens(1, 1, 1, 16), MASK),
        Case(
            "q and k of one projection, v and caches with room", _one_projection, "each of them has strides of its own"
        ),
        *(
            Case(f"tokens of {n} 2^30 elements apart", partial(_far_token, i), OFFSET.replace("row", "token"))
            for i, n in enumerate("qkv")
        ),
        *(
            Case(f"slots of {n} 2^30 elements apart", partial(_far_token, i), _SLOT_OFFSET)
            for i, n in ((6, "keys"), (7, "values"))
        ),
        Case("32 heads and 8 of 128, bytes counted", lambda: _tokens(4, 32, 8, 128), "each head once", traffic=True),
        beyond(_many_tokens, OFFSET.replace("row", "token")),
    ),
    shape=lambda device: (
        *empty(device, (8192, 32, 128), (8192, 8, 128), (8192, 8, 128)),
        *empty(device, (8192, 64), (8192, 64), dtype="float32"),
        torch.arange(8192, dtype=torch.int32, device=device),
        *empty(device, (65_536, 8, 128), (65_536, 8, 128)),
    ),
    small=lambda: _tokens(3, 32, 8, 128),
    expect=Expect(load_bits=128, store_bits=128, waves=4, workgroups=1024, traffic=1.0),
    faults=(
        Fault(
            "neighbours are turned with each other: the pair of x[d] is x[d + D / 2]",
            lambda *a: _rope(*a, rotate=_neighbours),
        ),
        Fault(
            "turned the other way: low * cos - high * sin, high * cos + low * sin",
            lambda q, k, v, cos, sin, *rest: _rope(q, k, v, cos, -sin, *rest),
        ),
        Fault("cos and sin are exchanged", lambda q, k, v, cos, sin, *rest: _rope(q, k, v, sin, cos, *rest)),
        Fault(
            "slot 0 is a slot like others: only -1 means not to write",
            lambda q, k, v, cos, sin, t, *rest: _rope(q, k, v, cos, sin, t - (t == 0).int(), *rest),
        ),
        Fault("q is not rotated", lambda *a: [a[0], *_rope(*a)[1:]]),
        Fault(
            "k is not rotated before it is written",
            lambda *a: [*_rope(*a)[:1], _written(a[6], a[1], a[5]), _rope(*a)[2]],
        ),
        Fault(
            "v is rotated: only q and k are",
            lambda *a: [*_rope(*a)[:2], _written(a[7], _rotated(a[2], a[3], a[4]), a[5])],
        ),
        Fault("nothing is written to the caches", lambda *a: [_rope(*a)[0], a[6], a[7]]),
        Fault("v is not written to its cache", lambda *a: [*_rope(*a)[:2], a[7]]),
    ),
)

# ---- the last layer and its loss


def _losses(x: Any, w: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(x @ w.T, targets.long(), reduction="none")


def _words(tokens: int, words: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    """Return tokens, the matrix of the last layer, and targets, every seventh of which is left out (-100)."""
    targets = torch.randint(words, (tokens,), generator=torch.Generator().manual_seed(2))
    targets[6::7] = -100
    return normal(tokens, size, scale=scale), normal(words, size, seed=1), targets


def _last_words(tokens: int, words: int, size: int) -> tuple[Any, ...]:
    """Return scores that grow to the last word, which is the target: whoever stops before it is far off."""
    x, w, targets = _words(tokens, words, size)
    x[:, 0] = 2
    w[-words // 8 :, 0] += 4
    targets[:] = words - 1
    return x, w, targets


def _loss_of(x: Any, w: Any, targets: Any, change: Any) -> Any:
    """Compute losses as ``change`` makes them of the scores, their maximum, the log of their sum and the target's."""
    scores = x @ w.T
    top, whole = scores.max(1)[0], scores.logsumexp(1)
    picked = scores.gather(1, targets.clamp(min=0).long()[:, None])[:, 0]
    return torch.where(targets >= 0, change(scores, top, whole, picked), 0.0)


def _not_rescaled(scores: Any, top: Any, whole: Any, picked: Any, block: int) -> Any:
    """Add up weights under the maximum of their own block of words and those before, and never rescale."""
    parts = scores.split(block, 1)
    tops = torch.stack([p.max(1)[0] for p in parts], 1).cummax(1)[0]
    total = torch.stack([(p - tops[:, i, None]).exp().sum(1) for i, p in enumerate(parts)]).sum(0)
    return top + total.log() - picked


def _next_word(x: Any, w: Any, targets: Any) -> Any:
    after = torch.cat([w[1:], w[:1] * 0])  # behind the last word nothing is picked
    return _losses(x, w, targets) + (x * (w - after)[targets.clamp(min=0).long()]).sum(1) * (targets >= 0)


def _not_left_out(x: Any, w: Any, targets: Any) -> Any:
    """Compute losses as ever, with the score 0 for a target that is no word."""
    return (x @ w.T).logsumexp(1) - (_loss_of(x, w, targets, lambda scores, top, whole, picked: picked))


def _changed(hint: str, change: Any) -> Fault:
    return Fault(hint, partial(_loss_of, change=change))


_WORDS = "words past the end must weigh nothing: a mask makes their scores -inf, not 0"
_PARTS = "several blocks of words in each part: rescale the sum when the maximum grows; the merge of parts as well"
_MAXIMUM = "exp overflows: subtract the running maximum, and rescale the sum when it grows; the merge as well"
_CROSS = Puzzle(
    name="linear_cross_entropy",
    dtype="float32",
    task="linear_cross_entropy(x, w, targets): the loss of each token, log(sum(exp(s))) - s[target] in fp32, where "
    "s = x @ w.T of the fp16 matrices x [T, D] and w [V, D], whose rows are contiguous; 0 where the target (int64, "
    "contiguous) is -100; the scores [T, V] never reach memory",
    formula='torch.nn.functional.cross_entropy(x.float() @ w.float().T, targets, reduction="none")',
    reference=_losses,
    cases=(
        Case(
            "64 tokens, 128 words, 64 wide", lambda: _words(64, 128, 64, 0.3), "log of the sum, less the target's score"
        ),
        Case("20 tokens, 100 words, 32 wide", lambda: _words(20, 100, 32, 0.3), _WORDS),
        Case("50 wide", lambda: _words(16, 64, 50, 0.3), TAIL.replace("K", "D")),
        Case("one token, one word, one wide", lambda: _words(1, 1, 1), ONE),
        Case("16 tokens, 700 words", lambda: _words(16, 700, 32, 0.3), _PARTS),
        Case("scores of some hundreds", lambda: _words(16, 700, 64, 8.0), _MAXIMUM),
        Case(
            "rows of x and w in wider matrices",
            lambda: (normal(16, 64, scale=0.3)[:, :40], normal(64, 56, seed=1)[:, :40], _words(16, 64, 8)[2]),
            "the row strides of x and w: x.stride(0), w.stride(0)",
        ),
        Case(
            "rows of x 2^30 elements apart",
            lambda: (far_apart(32), normal(32, 32, seed=1), _words(3, 32, 8)[2]),
            OFFSET,
        ),
        Case(
            "rows of w 2^30 elements apart",
            lambda: (normal(8, 32), far_apart(32, seed=1), _words(8, 3, 8)[2]),
            OFFSET + "; w's too",
        ),
        Case("128 tokens, 512 words, bytes counted", lambda: _words(128, 512, 64, 0.3), _MAXIMUM, traffic=True),
        Case("2,048 wide, as the true ones", lambda: _words(16, 32, 2048, 0.1), LONG.replace("K", "D")),
        Case(
            "4 tokens, 32,768 words, as many as the true ones",
            lambda: _last_words(4, 32_768, 16),
            "not all words are seen: the loop ends at their number, not after a fixed number of steps",
        ),
    ),
    shape=lambda device: (
        *empty(device, (4096, 2048), (32_768, 2048)),
        torch.zeros(4096, dtype=torch.int64, device=device),
    ),
    small=lambda: _words(64, 256, 64, 0.3),
    expect=Expect(
        load_bits=128,
        mfma=True,
        waves=2,
        workgroups=304,
        traffic=2.6,
        traffic_fix="the scores stay in registers, and " + TILE,
    ),
    faults=(
        _changed("the target's score is not subtracted", lambda scores, top, whole, picked: whole),
        _changed("the log of the sum is missing", lambda scores, top, whole, picked: -picked),
        _changed(
            "the maximum that was subtracted is to be added again",
            lambda scores, top, whole, picked: whole - top - picked,
        ),
        _changed(
            "log2 is not the natural logarithm: tl.log",
            lambda scores, top, whole, picked: top + (whole - top) / 0.6931471805599453 - picked,
        ),
        Fault("a target of -100 has no loss: 0", _not_left_out),
        Fault("the score of the word after the target is subtracted", _next_word),
        Fault(
            "this is the mean over the tokens: one loss for each",
            lambda x, w, t: _losses(x, w, t).mean().expand(len(x)),
        ),
        *(
            _changed(
                "when the maximum grows, the running sum is rescaled by exp(old - new)",
                partial(_not_rescaled, block=block),
            )
            for block in (32, 64, 128)
        ),
    ),
    absolute=3e-3,
    relative=1e-4,
)

MODELS = (_ROPE, _BLOCK_SCALED, _GROUPED, _CROSS)
