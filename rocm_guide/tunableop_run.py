# SPDX-License-Identifier: MIT
"""TunableOp off, tuning and tuned, each in a process of its own, so that no run profits from another's warm caches.

Uses the Python interface ``torch.cuda.tunable``: environment variables are read once per process and win over it.
Introduced in notebook 11_tunableop.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.tunableop_generate import generate_fixed, meta_model, padded_prompt

__all__ = ["apply_mode", "compare_matmul", "compare_model", "in_own_process", "time_matmul", "time_model"]

MODES = ("off", "tune", "tuned", "record")


def apply_mode(mode: str, file: str | os.PathLike[str] | None = None, device: str = "cuda") -> None:
    """Switch TunableOp for this process: ``off``; ``tune`` (search and write ``file``); ``tuned`` (only read ``file``);
    ``record`` (write the products to tunableop_untuned0.csv).

    Raises:
        GuideError: unknown mode, or TunableOp wanted without a GPU.

    >>> apply_mode("off", device="cpu")
    >>> apply_mode("tune", "results.csv", device="cpu")
    Traceback (most recent call last):
        ...
    rocm_guide.base.GuideError: mode=tune: TunableOp needs a GPU; on a CPU plan with `rocm-guide tunable plan`
    """
    if mode not in MODES:
        raise GuideError(f"mode={mode}: use one of {', '.join(MODES)}")
    if device == "cpu":
        if mode != "off":
            raise GuideError(f"mode={mode}: TunableOp needs a GPU; on a CPU plan with `rocm-guide tunable plan`")
        return
    from torch.cuda import tunable

    tunable.enable(mode != "off")
    if mode == "off":
        return
    tunable.tuning_enable(mode == "tune")
    tunable.record_untuned_enable(mode == "record")
    if file is not None:
        tunable.set_filename(str(file))
        if mode == "tuned" and not tunable.read_file(str(file)):
            raise GuideError(
                f"{file}: TunableOp refused it; `rocm-guide tunable check {file}` says which validator fails"
            )


def _wait(device: str) -> None:
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


def time_matmul(
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float32",
    iterations: int = 10_000,
    device: str = "cuda",
    mode: str = "off",
    file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Example 1 of the TunableOp blog: ``A[m, k] @ B[k, n]`` many times. Returns iterations/s (five repeats).

    The first call is timed apart: with ``mode="tune"`` it holds the search over all candidates.

    >>> time_matmul(8, 8, 8, iterations=10, device="cpu")["iterations"]
    10
    """
    import torch

    apply_mode(mode, file, device)
    a = torch.rand(m, k, dtype=getattr(torch, dtype), device=device)
    b = torch.rand(k, n, dtype=getattr(torch, dtype), device=device)
    started = time.perf_counter()
    c = a @ b
    _wait(device)
    first = time.perf_counter() - started
    for _ in range(10):
        c = a @ b
    rates = []
    for _ in range(5):
        _wait(device)
        started = time.perf_counter()
        for _ in range(iterations):
            c = a @ b
        _wait(device)
        rates.append(iterations / (time.perf_counter() - started))
    reference = a.double() @ b.double()
    error = float((c.double() - reference).abs().max() / reference.abs().max())
    return {"mode": mode, "iterations": iterations, "first_s": first, "per_s": rates, "relative_error": error}


def time_model(
    *,
    hidden_size: int = 256,
    layers: int = 2,
    vocab_size: int = 1024,
    dtype: str = "float32",
    batch: int = 1,
    prompt: int = 19,
    pad: int = 8,
    new_tokens: int = 64,
    runs: int = 5,
    device: str = "cuda",
    mode: str = "off",
    file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Example 2 of the blog: generation with static cache, padded prompt and warm-up. Returns tokens/s (one per run).

    A Llama of the given width with random weights: the products, not the words, are what is timed.
    """
    import torch
    from transformers import LlamaConfig

    apply_mode(mode, file, device)
    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=int(hidden_size * 2.75) // 8 * 8,
        num_attention_heads=max(1, hidden_size // 64),
        num_hidden_layers=layers,
        vocab_size=vocab_size,
    )
    model = meta_model(config, dtype).to_empty(device=device)
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.normal_(0, 0.02) if tensor.is_floating_point() else tensor.zero_()
    ids, mask = padded_prompt(batch, prompt, pad, device)
    started = time.perf_counter()
    generate_fixed(model, ids, mask, new_tokens, cache="static")
    _wait(device)
    first = time.perf_counter() - started
    generate_fixed(model, ids, mask, new_tokens, cache="static")
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        out = generate_fixed(model, ids, mask, new_tokens, cache="static")
        _wait(device)
        rates.append(batch * new_tokens / (time.perf_counter() - started))
    return {"mode": mode, "first_s": first, "per_s": rates, "tokens": out[:, -new_tokens:].tolist()}


def _child(target: Callable[..., Any], kwargs: dict[str, Any], pipe: Any) -> None:
    try:
        pipe.send((True, target(**kwargs)))
    except (GuideError, RuntimeError, OSError, ImportError, TypeError) as e:
        pipe.send((False, f"{type(e).__name__}: {e}"))


def in_own_process(target: Callable[..., Any], **kwargs: Any) -> Any:
    """Run a module-level function in a fresh interpreter and return its result.

    Raises:
        GuideError: the function failed there, or the process died.

    >>> in_own_process(statistics.mean, data=[1, 2, 3])
    2
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(target, kwargs, theirs))
    process.start()
    theirs.close()
    try:
        good, result = ours.recv()
    except EOFError:
        good, result = False, f"the process ended with code {process.exitcode}"
    process.join()
    if not good:
        raise GuideError(f"{target.__name__}: {result}")
    return result


def _compare(target: Callable[..., Any], device: str, folder: str | os.PathLike[str], **kwargs: Any) -> dict[str, Any]:
    """Off, tune, tuned: three processes. On a CPU only the first, since there is nothing to tune."""
    file = Path(folder).resolve() / f"{target.__name__}_results.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = {"off": in_own_process(target, device=device, mode="off", **kwargs)}
    if device != "cpu":
        for mode in ("tune", "tuned"):
            rows[mode] = in_own_process(target, device=device, mode=mode, file=file, **kwargs)
        ratio = statistics.median(rows["tuned"]["per_s"]) / statistics.median(rows["off"]["per_s"])
        rows["speed_up"] = ratio
        rows["results"] = file.read_text() if file.exists() else ""
    return rows


def compare_matmul(
    m: int, n: int, k: int, *, device: str = "cuda", folder: str | os.PathLike[str] = "tunable", **options: Any
) -> dict[str, Any]:
    """:func:`time_matmul` off, while tuning, and tuned; ``speed_up`` is tuned over off (medians)."""
    return _compare(time_matmul, device, folder, m=m, n=n, k=k, **options)


def compare_model(
    *, device: str = "cuda", folder: str | os.PathLike[str] = "tunable", **options: Any
) -> dict[str, Any]:
    """:func:`time_model` off, while tuning, and tuned; ``speed_up`` is tuned over off (medians)."""
    return _compare(time_model, device, folder, **options)
