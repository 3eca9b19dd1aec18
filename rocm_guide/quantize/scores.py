# SPDX-License-Identifier: MIT
"""The cost of a quantised model, and what it still knows: the tables at the end of notebooks 10, 11 and 12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.device import Timing, clock
from rocm_guide.models.evaluation import answer
from rocm_guide.quantize.held_out import drift, perplexity

#: Tokens of an answer that are timed: enough for a rate, and a model that unpacks its weights each time stays bearable.
_TIMED = 8

__all__ = ["case_table", "measure", "model_bytes", "table", "weight_bytes"]


@dataclass(frozen=True)
class Measured:
    """One row of the comparison.

    Attributes:
        bits: stored bits for each weight of the decoder's linear layers, scales and zeros included.
        disk_bytes: all weight files of the saved model.
        memory_bytes: all parameters and buffers of the loaded model, embeddings and head included.
        exact: share of held-out questions answered word for word; None where the right answers are not known.
        perplexity: on the held-out answers; 1 would be certainty.
        seconds: to quantise, 0 where nothing is done.
        tokens_per_second: the first eight tokens of the answers to a third of the questions, in one batch; the median
            of three runs; None where nothing was answered.
        spread: of these runs, half the distance between the quartiles.
        divergence: from the reference, in nats per token (:func:`drift`); None without a reference.
        changed: share of the next tokens whose first choice is another than the reference's; None without a reference.
    """

    bits: float
    disk_bytes: int
    memory_bytes: int
    exact: float | None
    perplexity: float
    seconds: float
    tokens_per_second: float | None
    spread: float = 0.0
    divergence: float | None = None
    changed: float | None = None


def _stored(module: Any) -> list[Any]:
    """Return every tensor that a module keeps: parameters, buffers, attributes (some kernels repack into those)."""
    seen: dict[int, Any] = {}
    for part in module.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        own += [v for v in vars(part).values() if isinstance(v, torch.Tensor)]
        for tensor in list(own):
            state = getattr(tensor, "quant_state", None)  # bitsandbytes keeps the scales on the parameter
            inner = getattr(state, "state2", None)
            own += [v for v in (getattr(state, "absmax", None), getattr(state, "offset", None)) if v is not None]
            own += [] if inner is None else [inner.absmax]
            own += [v for v in (getattr(tensor, "SCB", None),) if isinstance(v, torch.Tensor)]
        seen |= {t.untyped_storage().data_ptr(): t for t in own if t.numel()}
    return list(seen.values())


def model_bytes(model: Any) -> int:
    """Return the bytes of everything that a model stores, tensors shared by several places counted once.

    >>> model_bytes(torch.nn.Linear(10, 10, bias=False).half())
    200
    """
    return sum(t.numel() * t.element_size() for t in _stored(model))


def weight_bytes(folder: str | Path) -> int:
    """Return the bytes of the weight files in a folder.

    >>> weight_bytes("no-such-folder")
    0
    """
    return sum(p.stat().st_size for p in Path(folder).glob("*") if p.suffix in (".safetensors", ".bin"))


def decoder_bits(model: Any, weights: int) -> float:
    """Return the stored bits for each of the ``weights`` weights of a decoder's layers, its few norms included."""
    layers = next(m for n, m in model.named_modules() if n.endswith("layers") and isinstance(m, torch.nn.ModuleList))
    return 8 * model_bytes(layers) / weights


def measure(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Mapping[str, Any]],
    folder: str | Path | None,
    *,
    seconds: float,
    weights: int,
    reference: Any = None,
) -> Measured:
    """Fill in one row of the comparison.

    Args:
        samples: held-out rows with prompt and completion. Where they have an answer too, it is compared word for word
            and timed.
        folder: where the model was saved; None where it was not.
        weights: number of weights of the decoder's linear layers, as if unquantised.
        reference: the model before quantising, from which the drift is measured, or what it expected
            (:func:`rocm_guide.quantize.held_out.expectations`).
    """
    samples = list(samples)
    moved, changed = (None, None) if reference is None else drift(model, reference, tokenizer, samples)
    surprise = perplexity(model, tokenizer, samples)
    exact, speed = None, None
    if "answer" in samples[0]:
        prompts = [s["prompt"] for s in samples]
        texts = answer(model, tokenizer, prompts, batch=len(samples))  # judged; for the clock it is the warm-up
        exact = sum(t == s["answer"] for t, s in zip(texts, samples, strict=True)) / len(samples)
        speed = _answer_rate(model, tokenizer, prompts[::3])
    return Measured(
        decoder_bits(model, weights),
        weight_bytes(folder) if folder else 0,
        model_bytes(model),
        exact,
        surprise,
        seconds,
        None if speed is None else speed.median,
        0.0 if speed is None else speed.spread,
        moved,
        changed,
    )


def _answer_rate(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Timing:
    """Return the tokens per second of the first eight tokens of the answers, in one batch."""
    rates = []
    for _ in range(3):
        began = clock(model.device.type)
        again = answer(model, tokenizer, prompts, new_tokens=_TIMED, batch=len(prompts))
        spent = clock(model.device.type) - began
        # One more for the token that ends an answer, if it came so early.
        counts = (len(tokenizer(text, add_special_tokens=False).input_ids) + 1 for text in again)
        rates.append(sum(min(n, _TIMED) for n in counts) / spent)
    return Timing.of(rates)


def table(rows: dict[str, Measured]) -> str:
    """Return the comparison as text, one line for each model; sizes in MB, the divergence in 1/1000 nat per token.

    >>> nearest = Measured(4.66, 2_290_000, 2_280_000, 0.944, 1.1025, 0.1, 151.0, 37.0, 0.0043, 0.031)
    >>> before = Measured(32.0, 6_450_000, 6_440_000, 0.944, 1.0989, 0.0, 877.0, 280.0)
    >>> print(table({"none": before, "nearest": nearest}))
                              bits disk MB loaded  diverges changed  exact perplexity quantise     tokens/s
    none                     32.00    6.45   6.44         -       -  94.4%     1.0989    0.0 s    877 ± 280
    nearest                   4.66    2.29   2.28      4.30    3.1%  94.4%     1.1025    0.1 s    151 ±  37
    """
    head = f"{'':24s} {'bits':>5s} {'disk MB':>7s} {'loaded':>6s} {'diverges':>9s} {'changed':>7s}"
    lines = [head + f" {'exact':>6s} {'perplexity':>10s} {'quantise':>8s} {'tokens/s':>12s}"]
    for label, m in rows.items():
        disk = f"{m.disk_bytes / 1e6:7.2f}" if m.disk_bytes else f"{'-':>7s}"
        sizes = f"{m.bits:5.2f} {disk} {m.memory_bytes / 1e6:6.2f}"
        moved = "-" if m.divergence is None else f"{1000 * m.divergence:.2f}"
        moved = f"{moved:>9s} {'-' if m.changed is None else f'{m.changed:.1%}':>7s}"
        exact = "-" if m.exact is None else f"{m.exact:.1%}"
        rate = f"{'-':>12s}" if m.tokens_per_second is None else f"{m.tokens_per_second:6,.0f} ± {m.spread:3,.0f}"
        lines.append(f"{label:24s} {sizes} {moved} {exact:>6s} {m.perplexity:10.4f} {m.seconds:6.1f} s {rate}")
    return "\n".join(lines)


def case_table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """Return results of ``benchmarks/models/quantization_7b.py`` as text: memory and speed, or why there is none.

    >>> print(case_table({"plain": {"model bytes": 2e9, "tokens/s, 1 row": 50.0, "tokens/s, 16 rows": 800.0,
    ...     "prompt of 2048 tokens, s": 0.07}, "other": {"reason": "no kernel"}}))
                                            in memory     1 row   16 rows  prompt of 2,048
    plain                                      2.0 GB      50/s     800/s            70 ms
    other                                  no kernel
    """
    lines = [f"{'':38s} {'in memory':>10s} {'1 row':>9s} {'16 rows':>9s} {'prompt of 2,048':>16s}"]
    for label, case in cases.items():
        if "reason" in case:
            lines.append(f"{label:38s} {case['reason']}")
            continue
        rates = f"{case['tokens/s, 1 row']:7,.0f}/s {case['tokens/s, 16 rows']:7,.0f}/s"
        prompt = f"{1000 * case['prompt of 2048 tokens, s']:13,.0f} ms"
        lines.append(f"{label:38s} {case['model bytes'] / 1e9:7.1f} GB {rates} {prompt}")
    return "\n".join(lines)
