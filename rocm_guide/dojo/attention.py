# SPDX-License-Identifier: MIT
"""Puzzles of attention: forward, causal, and decoding with the keys split over programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from cdna.grade.puzzle import MASK, OFFSET, Case, Expect, Fault, Puzzle, far_apart
from rocm_guide.dojo.elementwise import beyond, empty, normal

__all__ = ["ATTENTION"]

_KEYS = "keys past the end must weigh nothing: a mask makes their scores -inf, not 0"
_MAXIMUM = "exp overflows: subtract the running maximum, and rescale sum and output when it grows"
_LONG = "not all keys are seen: the loop ends at the number of keys, not after a fixed number of steps"
_CANCEL = 20.0  # values of about this size add up to nearly nothing
_SCALE = "the scores are divided by the square root of the head's size"


_BLOCKS = "several blocks of keys in each part: rescale sum and result when the maximum grows; each token in one part"
_HEADS_OFFSET = OFFSET.replace("row", "head")


def _attend(q: Any, k: Any, v: Any, first_hidden: int | None = None, scale: float | None = None) -> Any:
    """Compute softmax(q @ k.T / sqrt(D)) @ v of each head; token i sees none from i + ``first_hidden`` on."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if first_hidden is not None:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(first_hidden)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v


def _padded(q: Any, k: Any, v: Any, more: int = 0, block: int = 1) -> Any:
    """Compute attention with ``more`` keys of zeros behind the end, and as many as fill the last block."""
    more += -(k.shape[-2] + more) % block
    return _attend(q, *(torch.nn.functional.pad(t, (0, 0, 0, more)) for t in (k, v)))


def _without(part: str, q: Any, k: Any, v: Any, first_hidden: int | None = None, block: int = 64) -> Any:
    """Compute attention with a part left out: ``divide``, or to rescale in a block with a larger maximum than those
    before, of ``block`` keys each: ``rescale`` (sum and output) or ``output``.
    """
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if first_hidden is not None:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(first_hidden)
        scores = scores.masked_fill(later, float("-inf"))
    if part == "divide":
        return (scores - scores.max(-1, keepdim=True)[0]).exp() @ v
    tops = scores.split(block, -1)
    best = torch.stack([t.max(-1)[0] for t in tops], -1).cummax(-1)[0]
    weights = torch.cat([(t - best[..., i, None]).exp() for i, t in enumerate(tops)], -1).nan_to_num()
    right = (scores - best[..., -1:]).exp()
    return weights @ v / (weights if part == "rescale" else right).sum(-1, keepdim=True)


def _faults(causal: bool) -> tuple[Fault, ...]:
    """Return the mistakes of attention that are known by their results."""
    seen = 1 if causal else None
    every = (
        Fault(_SCALE, lambda q, k, v: _attend(q, k, v, seen, 1.0)),
        Fault(_SCALE + "; here they are divided by its size", lambda q, k, v: _attend(q, k, v, seen, 1 / q.shape[-1])),
        Fault("divide by the sum of the weights, at the end", lambda q, k, v: _without("divide", q, k, v, seen)),
        *(
            Fault(
                "when the maximum grows, rescale sum and output alike by exp(old - new)",
                partial(_without, part, first_hidden=seen, block=block),
            )
            for part in ("rescale", "output")
            for block in (32, 64, 128)
        ),
    )
    if not causal:
        behind = ({"more": 1}, {"block": 32}, {"block": 64}, {"block": 128})
        return every + tuple(Fault(_KEYS, partial(_padded, **more)) for more in behind)
    return (
        Fault("token i sees itself too: key j if j <= i, not j < i", lambda q, k, v: _attend(q, k, v, 0)),
        Fault("token i sees one key too many: key j if j <= i", lambda q, k, v: _attend(q, k, v, 2)),
        Fault("no mask: token i sees key j only if j <= i", _attend),
        *every,
    )


def _heads(heads: int, queries: int, keys: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    return (
        normal(heads, queries, size, scale=scale),
        normal(heads, keys, size, seed=1, scale=scale),
        normal(heads, keys, size, seed=2),
    )


def _mixed(heads: int, tokens: int, size: int) -> tuple[Any, ...]:
    """Return q contiguous, k with its heads side by side, v as half of a wider tensor: three different strides."""
    k = normal(tokens, heads, size, seed=1).transpose(0, 1)
    return normal(heads, tokens, size), k, normal(heads, tokens, 2 * size, seed=2)[..., :size]


def _one_far(which: int, tokens: int, size: int, one_query: bool = False) -> tuple[Any, ...]:
    """Return three heads of q, k and v; those of the tensor with number ``which`` lie 2^30 elements apart."""
    made = [far_apart(tokens, size, seed=i) if i == which else normal(3, tokens, size, seed=i) for i in range(3)]
    return (made[0][:, 0].contiguous() if one_query else made[0]), made[1], made[2]


def _many_heads(tokens: int, size: int) -> tuple[Any, ...]:
    """Return heads that are one in memory, as many as make the output longer than 2^31 elements."""
    heads = (1 << 31) // (tokens * size) + 8
    return tuple(normal(1, tokens, size, seed=i).expand(heads, tokens, size) for i in range(3))


def _large_values(tokens: int, size: int) -> tuple[Any, ...]:
    """Return values near 20, then near -20, which cancel: to sum them in fp16, or leave the last out, is far off."""
    q, k, v = _heads(1, tokens, tokens, size)
    v[:, : tokens // 2] += _CANCEL
    v[:, tokens // 2 :] -= _CANCEL
    return q, k, v


def _by_token(heads: int, tokens: int, size: int) -> tuple[Any, ...]:
    # Heads side by side in each token, as a projection leaves them: [tokens, heads, size], seen as heads first.
    return tuple(normal(tokens, heads, size, seed=i).transpose(0, 1) for i in range(3))


def _one_query(heads: int, keys: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    return _first(*_heads(heads, 1, keys, size, scale))


def _first(q: Any, k: Any, v: Any) -> tuple[Any, ...]:
    return q[:, 0].contiguous(), k, v


def _gathered(q: Any, k: Any, v: Any, table: Any, length: int) -> Any:
    """Compute attention over the tokens that the table names, in its order."""
    keys, values = (x[table.long()].flatten(0, 1)[:length].transpose(0, 1) for x in (k, v))
    return _attend(q[:, None], keys, values)[:, 0]


def _paged(heads: int, length: int, page: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    """Return a cache of twice as many pages as the sequence has, in any order; what is not the sequence's is NaN."""
    count = -(-length // page)
    table = torch.randperm(2 * count, generator=torch.Generator().manual_seed(7))[:count].int()
    tensors = []
    for seed in (1, 2):
        pool = torch.full((2 * count, page, heads, size), float("nan"), dtype=torch.float16)
        pool[table.long()] = normal(count, page, heads, size, seed=seed, scale=scale if seed == 1 else 1.0)
        pool[int(table[-1]), length - (count - 1) * page :] = float("nan")
        tensors.append(pool)
    return normal(heads, size, scale=scale), *tensors, table, length


def _bytes_of_a_sequence(q: Any, k: Any, v: Any, table: Any, length: int) -> int:
    """Return the bytes that paged decoding has to read: of the pool, only the tokens of the sequence."""
    tokens = length * k.shape[2] * k.shape[3] * (k.element_size() + v.element_size())
    return int(q.numel() * q.element_size() + table.numel() * table.element_size() + tokens)


def _pages_far_apart() -> tuple[Any, ...]:
    pool = torch.empty_strided((3, 4, 1, 16), (1 << 30, 16, 16, 1), dtype=torch.float16)
    for i in (0, 2):
        pool[i] = normal(4, 1, 16, seed=i)
    return normal(1, 16, seed=5), pool, pool, torch.tensor([0, 2], dtype=torch.int32), 8


def _pages_with_room() -> tuple[Any, ...]:
    """Return a cache whose pages, tokens and heads all have room behind them; k and v lie alike."""
    q, k, v, table, length = _paged(2, 75, 16, 32)
    wide = [t.new_full((t.shape[0] + 1, 20, 3, 48), float("nan")) for t in (k, v)]
    for room, t in zip(wide, (k, v), strict=True):
        room[:-1, :16, :2, :32] = t
    return q, wide[0][:-1, :16, :2, :32], wide[1][:-1, :16, :2, :32], table, length


def _decode_faults() -> tuple[Fault, ...]:
    """Return those of attention that one query can show."""
    whole = (_faults(causal=False)[i] for i in (0, 1, 2))
    return tuple(Fault(f.hint, lambda q, k, v, f=f: f.wrong(q[:, None], k, v)[:, 0]) for f in whole)


def _paged_meta(device: str) -> tuple[Any, ...]:
    pool = empty(device, (1024, 16, 32, 128), (1024, 16, 32, 128))
    return *empty(device, (32, 128)), *pool, torch.arange(1024, dtype=torch.int32, device=device), 16384


def _forward_cases(first: str) -> tuple[Case, ...]:
    return (
        Case("2 heads, 64 tokens of 32", lambda: _heads(2, 64, 64, 32), first),
        Case("50 tokens", lambda: _heads(1, 50, 50, 32), _KEYS),
        Case("3 heads, 130 tokens of 16", lambda: _heads(3, 130, 130, 16), _MAXIMUM + "; several blocks of keys"),
        Case("large scores", lambda: _heads(1, 80, 80, 32, 6.0), _MAXIMUM),
        Case("heads side by side in each token", lambda: _by_token(2, 40, 32), "use the strides of q, k and v"),
        Case("q, k and v laid out differently", lambda: _mixed(2, 40, 32), "each of q, k and v has strides of its own"),
        Case("one token", lambda: _heads(1, 1, 1, 32), MASK),
        *(
            Case(f"heads of {n} 2^30 elements apart", partial(_one_far, i, 16, 16), _HEADS_OFFSET)
            for i, n in enumerate("qkv")
        ),
        Case("4,096 tokens, as many as the true ones", lambda: _large_values(4096, 16), _LONG, last=True, sums=_CANCEL),
        beyond(lambda: _many_heads(64, 32), _HEADS_OFFSET),
    )


ATTENTION = (
    Puzzle(
        name="attention",
        task="attention(q, k, v): softmax(q k^T / sqrt(D)) v for fp16 tensors [heads, tokens, D], D a power of two, in "
        "fp16; the scores never reach memory",
        formula="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        reference=_attend,
        cases=(
            *_forward_cases("weights are summed over the keys, and the output over them too: check the axis"),
            Case("256 tokens, bytes counted", lambda: _heads(1, 256, 256, 32), _LONG, traffic=True),
        ),
        shape=lambda device: empty(device, *[(32, 4096, 128)] * 3),
        small=lambda: _heads(1, 128, 128, 128),
        expect=Expect(
            load_bits=128,
            mfma=True,
            waves=1,
            better_waves=2,
            workgroups=304,
            traffic=2.6,
            lines_stored=8,
            traffic_fix="all keys are read for each block of queries: a block of 64 queries or more",
        ),
        faults=_faults(causal=False),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="causal_attention",
        task="causal_attention(q, k, v): the same, and token i sees only the tokens 0 to i; blocks that nobody sees "
        "are not read",
        formula="torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
        reference=partial(_attend, first_hidden=1),
        cases=(
            *_forward_cases("token i sees key j if j <= i, and no other"),
            Case(
                "512 tokens, bytes counted",
                lambda: _heads(1, 512, 512, 16),
                "token i sees key j if j <= i",
                traffic=True,
            ),
        ),
        shape=lambda device: empty(device, *[(32, 4096, 128)] * 3),
        # Blocks of 64: 8 blocks of queries read 36 of the 64 blocks of keys, so 2 * 36 / 8 + 2 quarters of the floor.
        expect=Expect(
            load_bits=128,
            mfma=True,
            waves=2,
            workgroups=304,
            traffic=3.2,
            lines_stored=8,
            traffic_fix="keys behind the diagonal are read, which nobody sees: end the loop at the block's last query",
        ),
        faults=_faults(causal=True),
        small=lambda: _heads(1, 128, 128, 128),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="decode",
        task="decode(q, k, v): attention of one new token, q [heads, D] contiguous, over k and v [heads, tokens, D]; "
        "the tokens of a head are split over programs, and a second kernel merges their parts",
        formula="torch.nn.functional.scaled_dot_product_attention(q[:, None], k, v)[:, 0]",
        reference=lambda q, k, v: _attend(q[:, None], k, v)[:, 0],
        cases=(
            Case(
                "2 heads, 256 tokens of 32",
                lambda: _one_query(2, 256, 32),
                "each token belongs to one part; then check the merge",
            ),
            Case("2 heads, 1,024 tokens of 32", lambda: _one_query(2, 1024, 32), _BLOCKS, traffic=True),
            Case("300 tokens", lambda: _one_query(2, 300, 32), _KEYS),
            Case("large scores", lambda: _one_query(1, 500, 32, 6.0), _MAXIMUM + "; the merge as well"),
            Case("3 tokens: most parts are empty", lambda: _one_query(2, 3, 16), "an empty part has maximum -inf"),
            Case("one token", lambda: _one_query(1, 1, 32), "an empty part has maximum -inf, and -inf - -inf is NaN"),
            Case(
                "k and v laid out differently", lambda: _first(*_mixed(2, 100, 32)), "k and v have strides of their own"
            ),
            *(
                Case(f"heads of {n} 2^30 elements apart", partial(_one_far, i, 16, 16, True), _HEADS_OFFSET)
                for i, n in ((1, "k"), (2, "v"))
            ),
            Case(
                "16,384 tokens, as many as the true ones",
                lambda: _first(*_large_values(16_384, 16)),
                _LONG,
                sums=_CANCEL,
            ),
        ),
        shape=lambda device: empty(device, (32, 128), (32, 16384, 128), (32, 16384, 128)),
        small=lambda: _one_query(1, 512, 128),
        expect=Expect(load_bits=128, waves=2, workgroups=304, traffic=1.3),
        faults=_decode_faults(),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="paged_decode",
        task="paged_decode(q, k, v, table, length): decode for a cache in pages: k and v are [pages, P, heads, D], and "
        "token t lies at position t % P of page table[t // P]; P is a power of two, table is "
        "int32, q contiguous, k and v have the same strides",
        formula="decode(q, k[table].flatten(0, 1)[:length].transpose(0, 1), the same of v)",
        reference=_gathered,
        cases=(
            Case(
                "2 heads, 128 tokens in pages of 16",
                lambda: _paged(2, 128, 16, 32),
                "the page is table[t // P]; then check the merge",
            ),
            Case(
                "2 heads, 1,024 tokens",
                lambda: _paged(2, 1024, 16, 32),
                _BLOCKS,
                traffic=True,
                needed=_bytes_of_a_sequence,
            ),
            Case("75 tokens", lambda: _paged(2, 75, 16, 32), _KEYS + ", and 0 times NaN is NaN: mask the loads too"),
            Case("large scores", lambda: _paged(1, 200, 8, 32, 6.0), _MAXIMUM + "; the merge as well"),
            Case(
                "one token",
                lambda: _paged(1, 1, 16, 32),
                "an empty part has maximum -inf, and -inf - -inf is NaN; what lies past the end may be NaN: mask loads",
            ),
            Case("pages with room between them", _pages_with_room, "a page, a token and a head have strides: use them"),
            Case("pages 2^30 elements apart", _pages_far_apart, "the page's offset overflows 32 bits: .to(tl.int64)"),
            Case("16,384 tokens, as many as the true ones", lambda: _paged(1, 16_384, 16, 16), _LONG),
        ),
        shape=_paged_meta,
        small=lambda: _paged(1, 256, 16, 128),
        expect=Expect(load_bits=128, waves=2, workgroups=304, traffic=1.3),
        faults=(
            Fault(
                "the page is the number in the table: table[t // P], not t // P",
                lambda q, k, v, table, length: _gathered(q, k, v, torch.arange(len(table)), length),
            ),
            Fault(_SCALE, lambda q, k, v, table, length: _gathered(q * q.shape[-1] ** 0.5, k, v, table, length)),
        ),
        absolute=2e-3,
        relative=4e-3,
    ),
)
