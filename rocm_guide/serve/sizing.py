# SPDX-License-Identifier: MIT
"""The users that a card serves: blocks of the KV cache that fit beside the weights. Computed, notebook 18.

The arithmetic of memory is that of `rocm-guide fit`; this file rounds it to blocks, as a server hands them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rocm_guide.models.memory_planner import SHARE, fit, served_cache
from rocm_guide.models.sizes import Sizes, sizes_of
from rocm_guide.models.work import FitError, Workload

__all__ = ["Sizing", "serving_table", "size_server"]


@dataclass(frozen=True)
class Sizing:
    """The size of one server on ``count`` GPUs; bytes are of one GPU.

    Attributes:
        weights: bytes of the weights; ``cache`` bytes that are left for the KV cache, 0 if the weights do not fit.
        blocks: blocks of the KV cache; ``block`` tokens each.
        users: texts of ``length`` tokens that fit at once.
    """

    gpu: str
    count: int
    length: int
    weights: int
    cache: int
    block: int
    blocks: int
    users: int


def size_server(
    config: Any,
    *,
    length: int,
    gpu: str = "MI300X",
    count: int = 1,
    utilization: float | None = None,
    block: int = 16,
    kv_bytes: int | None = None,
    prefix: int = 0,
    adapters: int = 0,
    rank: int = 16,
    memory_gb: float | None = None,
    engine: str = "vllm",
) -> Sizing:
    """Size the KV cache of a server with tensor parallelism over ``count`` GPUs, by
    :func:`rocm_guide.models.memory_planner.fit`.

    A server takes ``utilization`` of the memory, loads its weights, reads one piece of a prompt to see what
    activations cost, and makes blocks of what is left: vLLM's way (``--gpu-memory-utilization``; vLLM documentation,
    "Conserving Memory"). ``transformers serve`` takes that share of what the weights leave
    (``--cb-max-memory-percent``), and keeps room beside the cache that grows with it: see :func:`_beside_a_token`.

    Args:
        config: a transformers configuration, or the fields of a config.json.
        length: tokens of a text, prompt and answer together.
        utilization: the share; None for the engine's default, 0.92 of vLLM 0.32 and 0.9 of transformers 5.23.
        block: tokens of a block.
        kv_bytes: bytes of a number in the cache: 2 for bf16, 1 for fp8; None for what the checkpoint asks for.
        prefix: tokens that all texts have in common at their beginning; they lie in the cache once.
        adapters, rank: LoRA adapters that the server keeps loaded, and their rank.
        memory_gb: memory of one GPU in 10^9 bytes, instead of the table's.
        engine: "vllm", or "transformers" for ``transformers serve`` (one GPU, attention by torch).

    Raises:
        FitError: a split that the heads do not allow, an unknown GPU, or numbers that make no sense.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> size_server(SHAPES["llama-3-8b"], length=8192).users
    160
    >>> size_server(SHAPES["llama-3-8b"], length=8192, engine="transformers", block=32).users
    125
    """
    single = count == 1 and kv_bytes in (None, 2)
    if engine not in ("vllm", "transformers") or (engine == "transformers" and not single):
        known = "vllm, or transformers on one GPU with a cache in 16 bits"
        raise FitError(f"engine={engine!r}, count={count}, kv_bytes={kv_bytes}: computed for {known}")
    utilization = _SHARES[engine] if utilization is None else utilization
    if not 0 < utilization <= 1:
        raise FitError(f"utilization={utilization}: the share of the memory that the server may take, as 0.9")
    if block < 1:
        raise FitError(f"block={block}: a block has a token or more")
    sizes = sizes_of(config)
    held: dict[str, Any] = {"kv_bytes": kv_bytes, "prefix": prefix, "adapters": adapters, "rank": rank}
    work = Workload("serve", seq=length, share=utilization, **held)
    plan = fit(config, work, gpu=gpu, count=count, memory_gb=memory_gb)
    left = max(0, plan.allowed - (plan.total - plan.parts["KV cache"]))
    one = served_cache(sizes, replace(work, seq=block, prefix=0), count, block)
    per_block = one - sizes.kv_cache_bytes(0) // min(count, sizes.kv_heads)
    if engine == "transformers":
        left = max(0, round((plan.budget - plan.parts["parameters"]) * utilization) - _fixed(sizes))
        per_block += block * _beside_a_token(sizes)
    if not per_block:
        fix = "ask for its memory with method=inference"
        raise FitError(f"{sizes.family}: has no cache that grows by the token; {fix}")
    blocks = left // per_block
    users = blocks // -(-length // block)
    if engine == "vllm":
        first, second = (served_cache(sizes, replace(work, batch=n), count, block) for n in (1, 2))
        users = 0 if left < first else 1 + (left - first) // (second - first)
    return Sizing(plan.gpu, count, length, plan.parts["parameters"], left, block, blocks, users)


#: Of the GPU's memory for vLLM, of what the weights leave for transformers: what each engine takes unless told.
_SHARES = {"vllm": SHARE, "transformers": 0.9}
#: Tokens of one step of transformers' continuous batching, and requests of which it computes logits at once.
_STEP, _ROWS = 8192, 1024


def _beside_a_token(sizes: Sizes) -> int:
    """Return the bytes that ``transformers serve`` keeps for each token of its cache beside its keys and values.

    Without a kernel that reads blocks in place it gathers the keys and values of a step and repeats them for the query
    heads, and it masks every token of a step against every token of the cache. For Llama-3-8B that is 34 KiB beside
    128 KiB. Source: transformers 5.23, ``PagedAttentionMemoryHandler``.
    """
    gathered = 2 * sizes.most(lambda layer: 2 * layer.q + layer.v)
    index = 8
    return gathered + 2 * _STEP + index


def _fixed(sizes: Sizes) -> int:
    """Return the bytes that ``transformers serve`` keeps for a step, whatever the size of its cache."""
    widths = sizes.most(lambda layer: layer.q + 2 * layer.v + 2 * layer.q + layer.v)
    logits = _ROWS * (2 * sizes.hidden + 4 * sizes.vocab)
    return _STEP * 2 * (sizes.hidden + widths) + 2 * _STEP * _STEP + logits


def serving_table(
    shapes: Mapping[str, Any],
    *,
    lengths: Sequence[int] = (2048, 8192, 32768),
    counts: Sequence[int] = (1, 2, 4, 8),
    **how: Any,
) -> list[dict[str, Any]]:
    """Return one row for each model and number of GPUs: GB of weights and cache on each GPU, and users at each length.

    A model whose weights do not fit has None for its users.

    >>> from rocm_guide.models.shapes import SHAPES
    >>> serving_table({"70B": SHAPES["llama-3-70b"]}, lengths=(8192,), counts=(1,))[0]["users"]
    {8192: 17}
    """
    rows = []
    for name, config in shapes.items():
        for count in counts:
            found = {n: size_server(config, length=n, count=count, **how) for n in lengths}
            first = next(iter(found.values()))
            fits = any(s.cache for s in found.values())
            users = {n: s.users if s.cache else None for n, s in found.items()}
            weights, cache = first.weights / 1e9, (first.cache / 1e9 if fits else 0.0)
            rows.append({"model": name, "GPUs": count, "weights_gb": weights, "cache_gb": cache, "users": users})
    return rows
