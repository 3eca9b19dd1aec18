# SPDX-License-Identifier: MIT
"""Checks of notebook 03 (inference)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocm_guide.base import GuideError
from rocm_guide.inference_cost import kv_cache_bytes
from rocm_guide.zoo_shapes import config_of

if TYPE_CHECKING:
    import torch

__all__ = ["check_cache", "check_merge", "check_padding"]


def check_merge(merge: Callable[..., torch.Tensor]) -> None:
    """Exercise 1: ``merge(w, a, b, alpha, r)`` gives the weight that replaces a layer with a LoRA adapter.

    ``w`` is (out, in), ``a`` is (r, in), ``b`` is (out, r).

    Raises:
        GuideError: not yet; the message is a hint.

    >>> check_merge(lambda w, a, b, alpha, r: w + alpha / r * (b @ a))
    [OK] one matrix does the work of three, and W itself is untouched
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    w, a, b, x = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((6, 5), (2, 5), (6, 2), (3, 5)))
    before = w.clone()
    try:
        merged = merge(w, a, b, 8.0, 2)
    except RuntimeError as e:
        hint = "the update is B A, of shape (out, r) x (r, in); the other way round the shapes do not fit"
        raise GuideError(f"not yet. Hint: {hint}") from e
    if not torch.equal(w, before):
        raise GuideError("not yet. Hint: w itself was changed; a second call would add the adapter twice")
    wanted = x @ w.T + 8.0 / 2 * (x @ a.T @ b.T)
    if torch.is_tensor(merged) and merged.shape == w.shape and torch.allclose(x @ merged.T, wanted):
        print("[OK] one matrix does the work of three, and W itself is untouched")
        return
    hint = "return a matrix of the shape of w: w + (alpha / r) B A"
    if torch.is_tensor(merged) and merged.shape == w.shape:
        if torch.allclose(merged, w + b @ a):
            hint = "the update is scaled by alpha / r"
        elif torch.allclose(merged, w + 8.0 * (b @ a)):
            hint = "alpha is divided by r"
    raise GuideError(f"not yet. Hint: {hint}")


def check_padding(pad: Callable[[Sequence[Sequence[int]], int], tuple[list[list[int]], list[list[int]]]]) -> None:
    """Exercise 2: ``pad(rows, filler)`` gives rows of one length, ready for generation, and their mask.

    Raises:
        GuideError: not yet; the message is a hint.

    >>> def pad(rows, filler):
    ...     n = max(map(len, rows))
    ...     return [[filler] * (n - len(r)) + r for r in rows], [[0] * (n - len(r)) + [1] * len(r) for r in rows]
    >>> check_padding(pad)
    [OK] every row ends with its own last token, and the mask hides the rest
    """
    rows = [[1, 5, 0, 7], [1, 9], [1, 4, 4]]
    ids, mask = pad([list(r) for r in rows], 0)
    if [list(r) for r in ids] == [[1, 5, 0, 7], [1, 9, 0, 0], [1, 4, 4, 0]]:
        raise GuideError("not yet. Hint: generation continues at the right end; there must be text there, not padding")
    if [list(r) for r in ids] != [[1, 5, 0, 7], [0, 0, 1, 9], [0, 1, 4, 4]]:
        raise GuideError(f"ids={ids}: not yet. Hint: fill each row up to the length of the longest one, on the left")
    if [list(r) for r in mask] == [[1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        raise GuideError("not yet. Hint: a real token may have the filler's number; count positions, not values")
    if [list(r) for r in mask] != [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        raise GuideError(f"mask={mask}: not yet. Hint: 1 for a token, 0 for padding")
    print("[OK] every row ends with its own last token, and the mask hides the rest")


def check_cache(gib: float) -> None:
    """Exercise 3: GiB of the KV cache of Llama-2-70B for 16 rows of 4,096 tokens in bfloat16.

    Raises:
        GuideError: not yet; the message is a hint.

    >>> check_cache(20)
    [OK] 20 GiB; with one KV head for each of the 64 heads it would be 160
    """
    right = kv_cache_bytes(config_of("llama-2-70b"), 4096, batch=16) / 2**30
    if abs(gib - right) <= 0.01 * right:
        print(f"[OK] {right:.0f} GiB; with one KV head for each of the 64 heads it would be {8 * right:.0f}")
        return
    hints = {
        8 * right: "queries have 64 heads, keys and values have 8: they alone are kept",
        right / 2: "keys and values, or two bytes for each number: one factor of 2 is missing",
        right / 16: "that is one row; there are 16",
        right * 2**30: "that is in bytes; divide by 2**30",
        right / 80: "that is one layer; there are 80",
        right * 2**30 / 1e9: "that is in GB (1e9 bytes); a GiB has 2**30",
    }
    hint = next((h for value, h in hints.items() if abs(gib - value) <= 0.01 * value), None)
    hint = hint or "2 x layers x KV heads x head size x tokens x rows x bytes"
    raise GuideError(f"gib={gib:g}: not yet. Hint: {hint}")
