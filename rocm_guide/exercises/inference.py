# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 03: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, no, yes
from rocm_guide.models.shapes import config_of
from rocm_guide.serve.generate_cost import kv_cache_bytes

__all__ = ["check_cache", "check_loop", "check_padding"]


def check_loop(write: Callable[[Any, torch.Tensor, int], torch.Tensor]) -> bool:
    """Check exercise 1: ``write(model, ids, new)`` continues ``ids`` (1, length) greedily by ``new``, with a KV cache.

    It returns all ids, (1, length + new). The tokens are compared with those of ``model.generate``, and what each
    pass through the model read is counted.

    >>> check_loop(lambda model, ids, new: model.generate(ids, max_new_tokens=new, do_sample=False, use_cache=False))
    [HINT] the text is right, but the passes read 8, 9, 10, 11, 12, 13 tokens: keep the cache, and give the newest token
    False
    """
    from transformers import AutoModelForCausalLM

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = config_of("llama-2-7b", **small, intermediate_size=48, vocab_size=96, eos_token_id=None, pad_token_id=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False).eval()
    ids, new = torch.tensor([[1, 5, 9, 23, 42, 7, 7, 61]]), 6
    with torch.inference_mode():
        wanted = model.generate(ids, max_new_tokens=new, do_sample=False)
    read: list[int] = []

    def count(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        read.append((args[0] if args else options["input_ids"]).shape[1])

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        given = write(model, ids.clone(), new)
    except FAULTS as e:
        return no(f"it fails: {' '.join(str(e).split())[:120]}")
    finally:
        handle.remove()
    passes = ", ".join(map(str, read))
    if not torch.is_tensor(given) or given.shape != wanted.shape:
        shape = tuple(getattr(given, "shape", ()))
        return no(f"return the prompt and the new tokens, of shape {tuple(wanted.shape)}; yours has {shape}")
    if not torch.equal(given, wanted):
        return no(f"other tokens than the model's own generate; your passes read {passes} tokens")
    if read == [ids.shape[1], *[1] * (new - 1)]:
        return yes(f"the same tokens as generate, and the passes read {passes} tokens")
    if len(read) > new:
        return no(f"{len(read)} passes for {new} tokens: the last one is for nothing")
    return no(f"the text is right, but the passes read {passes} tokens: keep the cache, and give the newest token")


def check_padding(pad: Callable[[Sequence[Sequence[int]], int], tuple[list[list[int]], list[list[int]]]]) -> bool:
    """Check exercise 2: ``pad(rows, filler)`` gives rows of one length, ready for generation, and their mask.

    >>> check_padding(lambda rows, filler: (rows, [[1] * len(r) for r in rows]))
    [HINT] fill each row up to the length of the longest one, on the left; yours: [[1, 5, 0, 7], [1, 9], [1, 4, 4]]
    False
    """
    rows = [[1, 5, 0, 7], [1, 9], [1, 4, 4]]
    try:
        ids, mask = ([list(row) for row in part] for part in pad([list(r) for r in rows], 0))
    except FAULTS:
        return no("return two lists of lists: the padded rows, and a mask for each")
    if ids == [[1, 5, 0, 7], [1, 9, 0, 0], [1, 4, 4, 0]]:
        return no("generation continues at the right end; there must be text there, not padding")
    if ids != [[1, 5, 0, 7], [0, 0, 1, 9], [0, 1, 4, 4]]:
        return no(f"fill each row up to the length of the longest one, on the left; yours: {ids}")
    if mask == [[1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        return no("a real token may have the filler's number; count positions, not values")
    if mask != [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]:
        return no(f"the mask has 1 for a token, 0 for padding; yours: {mask}")
    return yes("every row ends with its own last token, and the mask hides the rest")


def check_cache(gib: float) -> bool:
    """Check exercise 3: GiB of the KV cache of Llama-2-70B for 16 rows of 4,096 tokens in bfloat16.

    >>> check_cache(160)
    [HINT] queries have 64 heads, keys and values have 8: they alone are kept
    False
    """
    right = kv_cache_bytes(config_of("llama-2-70b"), 4096, batch=16) / 2**30
    if abs(gib - right) <= 0.01 * right:
        return yes(f"{right:.0f} GiB; with one KV head for each of the 64 heads it would be {8 * right:.0f}")
    hints = {
        8 * right: "queries have 64 heads, keys and values have 8: they alone are kept",
        right / 2: "keys and values, or two bytes for each number: one factor of 2 is missing",
        right / 16: "that is one row; there are 16",
        right * 2**30: "that is in bytes; divide by 2**30",
        right / 80: "that is one layer; there are 80",
        right * 2**30 / 1e9: "that is in GB (1e9 bytes); a GiB has 2**30",
    }
    hint = next((h for value, h in hints.items() if abs(gib - value) <= 0.01 * value), None)
    return no(hint or f"{gib:g} is not it; 2 x layers x KV heads x head size x tokens x rows x bytes")
