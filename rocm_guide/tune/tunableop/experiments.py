# SPDX-License-Identifier: MIT
"""TunableOp off, tuning and tuned, each in a process of its own, so that no run profits from another's warm caches.

Uses the Python interface ``torch.cuda.tunable``: environment variables are read once per process and win over it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdna.children import call_in_child
from rocm_guide.common.base import GuideError
from rocm_guide.common.device import clock
from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt, random_llama

__all__ = ["apply_mode", "compare_matmul", "compare_model", "time_matmul", "time_model"]

MODES = ("off", "tune", "tuned", "record")


def apply_mode(mode: str, file: str | os.PathLike[str] | None = None, device: str = "cuda") -> None:
    """Switch TunableOp for this process: ``off``; ``tune`` (search and write ``file``); ``tuned`` (only read ``file``);
    ``record`` (write the products to tunableop_untuned0.csv).

    Raises:
        GuideError: unknown mode, TunableOp wanted without a GPU, or an environment variable that would win.

    >>> apply_mode("off", device="cpu")
    >>> apply_mode("tune", "results.csv", device="cpu")
    Traceback (most recent call last):
        ...
    cdna.base.InputError: mode=tune: TunableOp needs a GPU; on a CPU plan with `rocm-guide tunable plan`
    """
    if mode not in MODES:
        raise GuideError(f"mode={mode}: use one of {', '.join(MODES)}")
    if device == "cpu":
        if mode != "off":
            raise GuideError(f"mode={mode}: TunableOp needs a GPU; on a CPU plan with `rocm-guide tunable plan`")
        return
    for name in ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME"):
        if value := os.environ.get(f"PYTORCH_TUNABLEOP_{name}"):
            raise GuideError(f"PYTORCH_TUNABLEOP_{name}={value}: the environment wins over mode={mode}; unset it")
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
    """Run example 1 of the TunableOp blog: ``A[m, k] @ B[k, n]`` many times. Returns iterations/s (five repeats).

    The first call is timed apart: with ``mode="tune"`` it holds the search over all candidates. ``relative_error``
    compares the first rows with float64.

    >>> time_matmul(8, 8, 8, iterations=10, device="cpu")["iterations"]
    10
    """
    import torch

    apply_mode(mode, file, device)
    a = torch.rand(m, k, dtype=getattr(torch, dtype), device=device)
    b = torch.rand(k, n, dtype=getattr(torch, dtype), device=device)
    started = clock(device)
    c = a @ b
    first = clock(device) - started
    for _ in range(10):
        c = a @ b
    rates = []
    for _ in range(5):
        started = clock(device)
        for _ in range(iterations):
            c = a @ b
        rates.append(iterations / (clock(device) - started))
    # On the CPU, so that the check is no further product to tune; some rows, so that it takes no time.
    c, a, b = (x.cpu().double() for x in (c[:64], a[:64], b))
    reference = a @ b
    error = float((c - reference).abs().max() / reference.abs().max())
    return {"mode": mode, "iterations": iterations, "first_s": first, "per_s": rates, "relative_error": error}


def time_model(
    *,
    model: str | None = None,
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
    """Run example 2 of the blog: generation with static cache, padded prompt and warm-up.
    Returns tokens/s (one per run).

    ``model`` is anything that :func:`rocm_guide.models.load.load_model` knows. Without it, a Llama of the given width
    with random weights: the products, not the words, are what is timed.

    Raises:
        GuideError: see :func:`apply_mode` and the zoo.

    >>> len(time_model(hidden_size=32, new_tokens=2, runs=1, device="cpu")["per_s"])
    1
    """
    import torch

    apply_mode(mode, file, device)
    if model is not None:
        from rocm_guide.models.load import load_model

        net, _ = load_model(model, dtype=getattr(torch, dtype), device=device)
    else:
        net = random_llama(hidden_size, layers, vocab_size=vocab_size, dtype=dtype, device=device)
    ids, mask = padded_prompt(batch, prompt, pad, device)
    started = clock(device)
    generate_fixed(net, ids, mask, new_tokens, cache="static")
    first = clock(device) - started
    generate_fixed(net, ids, mask, new_tokens, cache="static")
    rates = []
    for _ in range(runs):
        started = clock(device)
        out = generate_fixed(net, ids, mask, new_tokens, cache="static")
        rates.append(batch * new_tokens / (clock(device) - started))
    return {"mode": mode, "first_s": first, "per_s": rates, "tokens": out[:, -new_tokens:].tolist()}


def _compare(
    target: Callable[..., Any], device: str, folder: str | os.PathLike[str], progress: bool, **kwargs: Any
) -> dict[str, Any]:
    """Run off, tune, tuned: three processes. On a CPU only the first, since there is nothing to tune."""
    from tqdm.auto import tqdm

    file = Path(folder).resolve() / f"{target.__name__}_results.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Any] = {}
    with tqdm(("off",) if device == "cpu" else ("off", "tune", "tuned"), leave=False, disable=not progress) as bar:
        for mode in bar:
            bar.set_description(f"TunableOp {mode}")
            named = {} if mode == "off" else {"file": file}
            rows[mode] = call_in_child(target, device=device, mode=mode, **named, **kwargs)
    if device != "cpu":
        ratio = statistics.median(rows["tuned"]["per_s"]) / statistics.median(rows["off"]["per_s"])
        rows["speed_up"] = ratio
        rows["results"] = file.read_text() if file.exists() else ""
    return rows


def compare_matmul(
    m: int,
    n: int,
    k: int,
    *,
    device: str = "cuda",
    folder: str | os.PathLike[str] = "tunable",
    progress: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run :func:`time_matmul` off, while tuning, and tuned; ``speed_up`` is tuned over off (medians).

    ``results`` is the text of the results file, which stays in ``folder``; ``progress`` draws a bar.
    """
    return _compare(time_matmul, device, folder, progress, m=m, n=n, k=k, **options)


def compare_model(
    *, device: str = "cuda", folder: str | os.PathLike[str] = "tunable", progress: bool = False, **options: Any
) -> dict[str, Any]:
    """Run :func:`time_model` off, while tuning, and tuned; see :func:`compare_matmul`."""
    return _compare(time_model, device, folder, progress, **options)
