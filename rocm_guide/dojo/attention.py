# SPDX-License-Identifier: MIT
"""Puzzles of attention: forward, causal, and decoding with the keys split over programs."""

from __future__ import annotations

from typing import Any

from rocm_guide.dojo.elementwise import MASK, normal
from rocm_guide.dojo.puzzle import Case, Expect, Puzzle

__all__ = ["ATTENTION"]

_KEYS = "keys past the end must weigh nothing: their score is -inf, not 0"
_MAXIMUM = "exp overflows: subtract the running maximum, and rescale sum and output when it grows"
_SCALE = "the scores are divided by the square root of the head's size"


def _attend(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Compute softmax(q @ k.T / sqrt(D)) @ v of each head."""
    import torch

    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v


def _heads(heads: int, queries: int, keys: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    return (
        normal(heads, queries, size, scale=scale),
        normal(heads, keys, size, seed=1, scale=scale),
        normal(heads, keys, size, seed=2),
    )


def _by_token(heads: int, tokens: int, size: int) -> tuple[Any, ...]:
    # Heads side by side in each token, as a projection leaves them: [tokens, heads, size], seen as heads first.
    return tuple(normal(tokens, heads, size, seed=i).transpose(0, 1) for i in range(3))


def _one_query(heads: int, keys: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    q, k, v = _heads(heads, 1, keys, size, scale)
    return q[:, 0], k, v


def _gathered(q: Any, k: Any, v: Any, table: Any, length: int) -> Any:
    """Compute attention over the tokens that the table names, in its order."""
    keys, values = (x[table.long()].flatten(0, 1)[:length].transpose(0, 1) for x in (k, v))
    return _attend(q[:, None], keys, values)[:, 0]


def _paged(heads: int, length: int, page: int, size: int, scale: float = 1.0) -> tuple[Any, ...]:
    """Return a cache of twice as many pages as the sequence has, in any order; what is not the sequence's is NaN."""
    import torch

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
    import torch

    pool = torch.empty_strided((3, 4, 1, 16), (1 << 30, 16, 16, 1), dtype=torch.float16)
    for i in (0, 2):
        pool[i] = normal(4, 1, 16, seed=i)
    return normal(1, 16, seed=5), pool, pool, torch.tensor([0, 2], dtype=torch.int32), 8


def _paged_meta(device: str) -> tuple[Any, ...]:
    import torch

    pool = _meta(device, (1024, 16, 32, 128), (1024, 16, 32, 128))
    return *_meta(device, (32, 128)), *pool, torch.arange(1024, dtype=torch.int32, device=device), 16384


def _meta(device: str, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    import torch

    return tuple(torch.empty(s, dtype=torch.float16, device=device) for s in shapes)


def _forward_cases() -> tuple[Case, ...]:
    return (
        Case("2 heads, 64 tokens of 32", lambda: _heads(2, 64, 64, 32), _SCALE + "; then check which axis is summed"),
        Case("50 tokens", lambda: _heads(1, 50, 50, 32), _KEYS),
        Case("3 heads, 130 tokens of 16", lambda: _heads(3, 130, 130, 16), _MAXIMUM + "; several blocks of keys"),
        Case("large scores", lambda: _heads(1, 80, 80, 32, 6.0), _MAXIMUM),
        Case("heads side by side in each token", lambda: _by_token(2, 40, 32), "use the strides of q, k and v"),
        Case("one token", lambda: _heads(1, 1, 1, 32), MASK),
    )


ATTENTION = (
    Puzzle(
        name="attention",
        task="attention(q, k, v): softmax(q k^T / sqrt(D)) v for fp16 tensors [heads, tokens, D], D a power of two, in "
        "fp16; the scores never reach memory",
        formula="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        reference=_attend,
        cases=_forward_cases(),
        shape=lambda device: _meta(device, *[(32, 4096, 128)] * 3),
        expect=Expect(load_bits=128, mfma=True, workgroups=304),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="causal_attention",
        task="causal_attention(q, k, v): the same, and token i sees only the tokens 0 to i; blocks that nobody sees "
        "are not read",
        formula="torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
        reference=lambda q, k, v: _attend(q, k, v, causal=True),
        cases=(
            *_forward_cases(),
            Case(
                "512 tokens, bytes counted",
                lambda: _heads(1, 512, 512, 16),
                "token i sees key j if j <= i",
                traffic=True,
            ),
        ),
        shape=lambda device: _meta(device, *[(32, 4096, 128)] * 3),
        # Blocks of 64: 8 blocks of queries read 36 of the 64 blocks of keys, so 2 * 36 / 8 + 2 quarters of the floor.
        expect=Expect(load_bits=128, mfma=True, workgroups=304, traffic=3.2),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="decode",
        task="decode(q, k, v): attention of one new token, q [heads, D], over k and v [heads, tokens, D]; the tokens "
        "of a head are split over programs, and a second kernel merges their parts",
        formula="torch.nn.functional.scaled_dot_product_attention(q[:, None], k, v)[:, 0]",
        reference=lambda q, k, v: _attend(q[:, None], k, v)[:, 0],
        cases=(
            Case(
                "2 heads, 256 tokens of 32",
                lambda: _one_query(2, 256, 32),
                _SCALE + "; each token belongs to one part; then check the merge",
            ),
            Case(
                "2 heads, 1,024 tokens of 32", lambda: _one_query(2, 1024, 32), "each token in one part", traffic=True
            ),
            Case("300 tokens", lambda: _one_query(2, 300, 32), _KEYS),
            Case("large scores", lambda: _one_query(1, 500, 32, 6.0), _MAXIMUM + "; the merge as well"),
            Case("3 tokens: most parts are empty", lambda: _one_query(2, 3, 16), "an empty part has maximum -inf"),
            Case("one token", lambda: _one_query(1, 1, 32), "an empty part has maximum -inf, and -inf - -inf is NaN"),
        ),
        shape=lambda device: _meta(device, (32, 128), (32, 16384, 128), (32, 16384, 128)),
        expect=Expect(load_bits=128, workgroups=304, traffic=1.3),
        absolute=2e-3,
        relative=4e-3,
    ),
    Puzzle(
        name="paged_decode",
        task="paged_decode(q, k, v, table, length): decode for a cache in pages: k and v are [pages, P, heads, D], and "
        "token t lies at position t % P of page table[t // P]; P is a power of two, table is int32",
        formula="decode(q, k[table].flatten(0, 1)[:length].transpose(0, 1), the same of v)",
        reference=_gathered,
        cases=(
            Case("2 heads, 128 tokens in pages of 16", lambda: _paged(2, 128, 16, 32), "the page is table[t // P]"),
            Case(
                "2 heads, 1,024 tokens",
                lambda: _paged(2, 1024, 16, 32),
                "each page in one part",
                traffic=True,
                needed=_bytes_of_a_sequence,
            ),
            Case("75 tokens", lambda: _paged(2, 75, 16, 32), _KEYS + ", and 0 times NaN is NaN: mask the loads too"),
            Case("large scores", lambda: _paged(1, 200, 8, 32, 6.0), _MAXIMUM + "; the merge as well"),
            Case("one token", lambda: _paged(1, 1, 16, 32), "an empty part has maximum -inf, and -inf - -inf is NaN"),
            Case("pages 2^30 elements apart", _pages_far_apart, "the page's offset overflows 32 bits: .to(tl.int64)"),
        ),
        shape=_paged_meta,
        expect=Expect(load_bits=128, workgroups=304, traffic=1.3),
        absolute=2e-3,
        relative=4e-3,
    ),
)
