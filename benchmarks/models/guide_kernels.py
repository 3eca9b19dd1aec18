# SPDX-License-Identifier: MIT
"""``use_guide_kernels`` in a Llama: tokens per second in training and in decoding, beside plain, compiled and Liger.

The widths of Llama 2 7B and Llama 3 8B with LAYERS layers, random weights in bf16. Training: forward and backward of
one sequence of TOKENS tokens, no optimiser. Decoding: one token after the other with a growing cache, from a prompt of
PROMPT tokens, called from Python without graphs; compiled models decode with a static cache, which is what
``generate`` gives them. Median of repeats, plain and ours decoding in turns; the largest difference of the logits too.

    python -m benchmarks.models.guide_kernels        # measure, write results/guide_kernels.json
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.timing import save
from rocm_guide.common.device import Timing

SHAPES = ("llama-2-7b", "llama-3-8b")
LAYERS, TOKENS, PROMPT, NEW, ROUNDS = 8, 4096, 512, 48, 9


def new_model(shape: str) -> Any:
    """Make a model with random weights on the GPU, the same each time."""
    from transformers import AutoModelForCausalLM

    from rocm_guide.models.shapes import config_of

    torch.manual_seed(0)
    config = config_of(shape, num_hidden_layers=LAYERS)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, trust_remote_code=False)


def rate(tokens: int, call: Callable[[], object], repeats: int = 7) -> dict[str, float]:
    """Return the tokens per second, median and half the interquartile range in per cent, and the peak memory in GB."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    timing = Timing.of(samples)
    return {
        "tokens_per_s": round(tokens / timing.median, 1),
        "spread_percent": round(100 * timing.spread / timing.median, 2),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
    }


def train(model: Any, step: Any) -> dict[str, float]:
    """Return the rate of forward and backward passes."""
    ids = torch.arange(TOKENS, device="cuda")[None] % 30000

    def once() -> None:
        model.zero_grad()
        step(input_ids=ids, labels=ids).loss.backward()

    return rate(TOKENS, once)


def decode_once(model: Any, step: Any, static: bool) -> float:
    """Return the tokens per second of NEW tokens one by one, each by ``step``;
    the prompt is read by ``model`` and not timed.
    """
    from transformers import DynamicCache, StaticCache

    ids, config = torch.arange(PROMPT, device="cuda")[None] % 30000, model.config
    past = StaticCache(config=config, max_cache_len=PROMPT + NEW) if static else DynamicCache(config=config)
    with torch.no_grad():
        out = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(NEW):
            token = out.logits[:, -1:].argmax(-1)
            out = step(input_ids=token, past_key_values=past, use_cache=True, logits_to_keep=1)
        torch.cuda.synchronize()
        return NEW / (time.perf_counter() - start)


def decoding(model: Any, ways: dict[str, Callable[[], Any]], static: bool) -> dict[str, dict[str, float]]:
    """Measure each way in turns with the others, so that what slows the host slows all of them;
    the first round warms up.

    A way is entered with ``with``, which gives what is called for a token.
    """
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS + 1):
        for way, enter in ways.items():
            with enter() as step:
                samples[way].append(decode_once(model, step, static))
    timings = {way: Timing.of(found[1:]) for way, found in samples.items()}
    return {
        way: {"tokens_per_s": round(t.median, 1), "spread_percent": round(100 * t.spread / t.median, 2)}
        for way, t in timings.items()
    }


@contextlib.contextmanager
def swapped(model: Any) -> Iterator[Any]:
    """Give the model our kernels while the block runs."""
    from rocm_guide.tune.attention.in_models import use_guide_kernels

    with use_guide_kernels(model):
        yield model


def logits_of(model: Any) -> torch.Tensor:
    """Return the logits of a short text."""
    with torch.inference_mode():
        return model(input_ids=torch.arange(300, device="cuda")[None]).logits.float()


def prepared(way: str, model: Any) -> Any:
    """Return what is called for ``way``; the model itself may be changed."""
    if way.startswith("ours"):
        from rocm_guide.tune.attention.in_models import use_guide_kernels

        print("swapped", use_guide_kernels(model).swapped, flush=True)
    if way == "Liger":
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama(rope=False, model=model)
    return torch.compile(model, dynamic=False) if "torch.compile" in way else model


def main() -> None:
    """Measure and save after each way, so that nothing is lost."""
    rows, failed = [], []
    expected: dict[str, torch.Tensor] = {}
    in_turns: dict[str, dict[str, dict[str, float]]] = {}
    # Liger changes transformers' classes for good, so it comes last, for all shapes.
    for way in ("plain", "ours", "torch.compile", "ours in torch.compile", "Liger"):
        for shape in SHAPES:
            try:
                torch._dynamo.reset()
                model = new_model(shape)
                step = prepared(way, model)
                row: dict[str, Any] = {"shape": shape, "way": way}
                compiled = "torch.compile" in way
                if way == "plain":
                    ways: dict[str, Callable[[], Any]] = {
                        "plain": partial(contextlib.nullcontext, model),
                        "ours": partial(swapped, model),
                    }
                    in_turns[shape] = decoding(model, ways, static=False)
                if way in ("plain", "ours"):
                    row["decoding"] = in_turns[shape][way]
                else:
                    row |= {"decoding": decoding(model, {way: partial(contextlib.nullcontext, step)}, compiled)[way]}
                if not compiled:
                    got = logits_of(model)
                    row["largest_difference"] = float((got - expected.setdefault(shape, got)).abs().max())
                    row["largest_logit"] = float(expected[shape].abs().max())
                row["training"] = train(model, step)
                rows.append(row)
                print(row, flush=True)
            except Exception as e:  # noqa: BLE001 - one way that fails must not end the others
                failed.append(f"{shape}, {way}: {type(e).__name__}: {str(e)[:300]}")
                print(failed[-1], flush=True)
            model = step = ways = None  # type: ignore[assignment]
            gc.collect()
            torch.cuda.empty_cache()
            sizes = {"layers": LAYERS, "tokens": TOKENS, "prompt": PROMPT, "new_tokens": NEW}
            save("guide_kernels", {**sizes, "rows": rows, "failed": failed})


if __name__ == "__main__":
    main()
