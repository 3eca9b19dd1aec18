# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 03: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocm_guide.exercises.common import say
from rocm_guide.inference_cost import kv_cache_bytes
from rocm_guide.zoo_shapes import config_of

if TYPE_CHECKING:
    import torch

__all__ = ["check_cache", "check_merge", "check_padding"]


def check_merge(merge: Callable[..., torch.Tensor]) -> bool:
    """Exercise 1: ``merge(w, a, b, alpha, r)`` gives the weight that replaces a layer with a LoRA adapter.

    ``w`` is (out, in), ``a`` is (r, in), ``b`` is (out, r).

    >>> check_merge(lambda w, a, b, alpha, r: w + b @ a)
    [HINT] the update is scaled by alpha / r
    False
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    w, a, b, x = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((6, 5), (2, 5), (6, 2), (3, 5)))
    before = w.clone()
    try:
        merged = merge(w, a, b, 8.0, 2)
    except RuntimeError:
        return say(False, "the update is B A, of shape (out, r) x (r, in); the other way round the shapes do not fit")
    if not torch.equal(w, before):
        return say(False, "w itself was changed; a second call would add the adapter twice")
    if not torch.is_tensor(merged) or merged.shape != w.shape:
        return say(False, "return a matrix of the shape of w: w + (alpha / r) B A")
    if torch.allclose(x @ merged.T, x @ w.T + 8.0 / 2 * (x @ a.T @ b.T)):
        return say(True, "one matrix does the work of three, and W itself is untouched")
    hint = "wrong values; the merged matrix is w + (alpha / r) B A"
    if torch.allclose(merged, w + b @ a):
        hint = "the update is scaled by alpha / r"
    elif torch.allclose(merged, w + 8.0 * (b @ a)):
        hint = "alpha is divided by r"
    elif torch.allclose(merged, w):
        hint = "the update is missing: that is the layer before fine-tuning"
    return say(False, hint)


def check_padding(pad: Callable[[Sequence[Sequence[int]], int], tuple[list[list[int]], list[list[int]]]]) -> bool:
    """Exercise 2: ``pad(rows, filler)`` gives rows of one length, ready for generation, and their mask.

    >>> check_padding(lambda rows, filler: (rows, [[1] * len(r) for r in rows]))
    [HINT] fill each row up to the length of the longest one, on the left; yours: [[1, 5, 0, 7], [1, 9], [1, 4, 4]]
    False
    """
    rows = [[1, 5, 0, 7], [1, 9], [1, 4, 4]]
    try:
        ids, mask = ([list(row) for row in part] for part in pad([list(r) for r in rows], 0))
    except (TypeError, ValueError):
        return say(False, "return two lists of lists: the padded rows, and a mask for each")
    if ids == [[1, 5, 0, 7], [1, 9, 0, 0], [1, 4, 4, 0]]:
        return say(False, "generation continues at the right end; there must be text there, not padding")
    if ids != [[1, 5, 0, 7], [0, 0, 1, 9], [0, 1, 4, 4]]:
        return say(False, f"fill each row up to the length of the longest one, on the left; yours: {ids}")
    if mask == [[1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        return say(False, "a real token may have the filler's number; count positions, not values")
    if mask != [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        return say(False, f"the mask has 1 for a token, 0 for padding; yours: {mask}")
    return say(True, "every row ends with its own last token, and the mask hides the rest")


def check_cache(gib: float) -> bool:
    """Exercise 3: GiB of the KV cache of Llama-2-70B for 16 rows of 4,096 tokens in bfloat16.

    >>> check_cache(160)
    [HINT] queries have 64 heads, keys and values have 8: they alone are kept
    False
    """
    right = kv_cache_bytes(config_of("llama-2-70b"), 4096, batch=16) / 2**30
    if abs(gib - right) <= 0.01 * right:
        return say(True, f"{right:.0f} GiB; with one KV head for each of the 64 heads it would be {8 * right:.0f}")
    hints = {
        8 * right: "queries have 64 heads, keys and values have 8: they alone are kept",
        right / 2: "keys and values, or two bytes for each number: one factor of 2 is missing",
        right / 16: "that is one row; there are 16",
        right * 2**30: "that is in bytes; divide by 2**30",
        right / 80: "that is one layer; there are 80",
        right * 2**30 / 1e9: "that is in GB (1e9 bytes); a GiB has 2**30",
    }
    hint = next((h for value, h in hints.items() if abs(gib - value) <= 0.01 * value), None)
    return say(False, hint or f"{gib:g} is not it; 2 x layers x KV heads x head size x tokens x rows x bytes")
