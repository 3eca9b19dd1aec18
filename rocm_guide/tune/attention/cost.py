# SPDX-License-Identifier: MIT
"""The cost of attention: operations, bytes moved by the standard and by the tiled way, and a counter to check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from rocm_guide.common.base import GuideError

__all__ = ["SlowMemory", "attention_flops", "flash_traffic", "saved_for_backward", "standard_traffic", "visible_tiles"]


class SlowMemory:
    """The GPU's main memory, as far as counting goes: everything taken from it or put into it is added up.

    >>> import torch
    >>> memory = SlowMemory()
    >>> _ = memory.load(torch.zeros(4, 8)), memory.store(torch.zeros(2, dtype=torch.float16))
    >>> memory.loaded, memory.stored, memory.total
    (128, 4, 132)
    """

    def __init__(self) -> None:
        self.loaded = 0
        self.stored = 0

    def load(self, x: torch.Tensor) -> torch.Tensor:
        """Give back ``x`` and count its bytes as read."""
        self.loaded += x.numel() * x.element_size()
        return x

    def store(self, x: torch.Tensor) -> torch.Tensor:
        """Give back ``x`` and count its bytes as written."""
        self.stored += x.numel() * x.element_size()
        return x

    @property
    def total(self) -> int:
        return self.loaded + self.stored


def visible_tiles(queries: int, keys: int, block_m: int, block_n: int, *, causal: bool = True) -> int:
    """Return how many tiles of the matrix of scores have at least one element that is not masked.

    Causal is aligned to the bottom right: query i sees key j when j <= i + keys - queries.

    >>> visible_tiles(8, 8, 2, 2, causal=False), visible_tiles(8, 8, 2, 2), visible_tiles(2, 8, 2, 2)
    (16, 10, 4)
    """
    if min(block_m, block_n) < 1 or min(queries, keys) < 0:
        raise GuideError(f"tiles of {block_m} x {block_n} over {queries} x {keys}: give tiles of at least 1 x 1")
    return sum(-(-seen // block_n) for seen in _seen(queries, keys, block_m, causal))


def _seen(queries: int, keys: int, block_m: int, causal: bool) -> Iterator[int]:
    """Yield how many keys each tile of queries sees."""
    for first in range(0, queries, block_m):
        last_query = min(first + block_m, queries) - 1
        yield max(0, min(keys, last_query + 1 + keys - queries)) if causal else keys


def attention_flops(batch: int, heads: int, queries: int, keys: int, d: int, *, causal: bool = False) -> int:
    """Return the operations of the two products: 2 x 2 x d for every pair of a query and a key that it sees.

    >>> attention_flops(1, 1, 4, 4, 8), attention_flops(1, 1, 4, 4, 8, causal=True)
    (512, 320)
    """
    pairs = queries * keys
    if causal:
        # The last of them see everything; each one before sees one key less, down to one or to none.
        pairs = min(queries, keys) * (min(queries, keys) + 1) // 2 + queries * max(keys - queries, 0)
    return 4 * batch * heads * pairs * d


def standard_traffic(queries: int, keys: int, d: int, size: int = 2) -> int:
    """Return the bytes to and from main memory of one head, when scores and probabilities are stored between the steps.

    Read Q and K and write S; read S and write P; read P and V and write O. Masking does not help: a masked score is
    stored all the same.

    Source: T. Dao et al., "FlashAttention", https://arxiv.org/abs/2205.14135, algorithm 0.

    >>> standard_traffic(4096, 4096, 128) / 2**20
    132.0
    """
    return size * (2 * queries * d + 2 * keys * d + 4 * queries * keys)


def flash_traffic(
    queries: int, keys: int, d: int, block_m: int, block_n: int, size: int = 2, *, causal: bool = False
) -> int:
    """Return the bytes to and from memory of one head, tile by tile: Q, O once, K, V once for every tile of queries.

    The log-sum-exp is one number of 4 bytes per query. Tiles behind the causal line are never loaded.

    >>> flash_traffic(4096, 4096, 128, 128, 64) / 2**20
    66.015625
    """
    rows = sum(min(keys, -(-seen // block_n) * block_n) for seen in _seen(queries, keys, block_m, causal))
    return size * (2 * queries * d + 2 * rows * d) + 4 * queries


def saved_for_backward(call: Callable[[], Any]) -> int:
    """Return the bytes that autograd keeps while ``call()`` runs, each piece of memory counted once.

    >>> import torch
    >>> x = torch.ones(1000, requires_grad=True)
    >>> saved_for_backward(lambda: x.exp())  # keeps its result
    4000
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = call()
    total: int = sum(s.nbytes() for s in kept.values())
    del result
    return total
