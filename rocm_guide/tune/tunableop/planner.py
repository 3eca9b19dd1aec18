# SPDX-License-Identifier: MIT
"""Plan every matrix product that generation asks for, without weights or a GPU."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm.auto import tqdm

from rocm_guide.common.base import GuideError
from rocm_guide.models.layer import reason_of
from rocm_guide.models.load import config_from, meta_model
from rocm_guide.models.sources import config_fields
from rocm_guide.tune.tunableop.blas_calls import BlasRules
from rocm_guide.tune.tunableop.gemm import Gemm
from rocm_guide.tune.tunableop.generation import generate_fixed, padded_length, padded_prompt
from rocm_guide.tune.tunableop.own_kernels import with_own_kernels
from rocm_guide.tune.tunableop.recorder import Trace, record_gemms

__all__ = ["Plan", "plan", "plan_model"]


#: Tokens of one prefill: their numbers alone take 8 bytes each. No GPU of today holds the activations of so many.
_MOST_TOKENS = 100_000_000


@dataclass(slots=True)
class PlannedGemm:
    """One product of the plan: how often prefill and decoding call it, and which modules (``*`` for a layer number)."""

    gemm: Gemm
    prefill: int = 0
    decode: int = 0
    modules: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return self.prefill + self.decode

    @property
    def flops(self) -> int:
        return self.calls * self.gemm.flops


@dataclass(slots=True)
class Plan:
    """The products of a workload in the order of first use, keyed as PyTorch keys them.

    ``untunable`` counts products outside TunableOp; ``assumed`` says what a plan takes for granted (experts are chosen
    equally often); ``pattern``: one repetition of the layers was seen to predict the whole model.
    """

    gemms: dict[tuple[str, str], PlannedGemm] = field(default_factory=dict)
    untunable: dict[str, int] = field(default_factory=dict)
    pattern: bool = False
    assumed: list[str] = field(default_factory=list)

    def add(self, trace: Trace, step: int, times: int = 1, layers: float = 1.0, phase: str = "decode") -> None:
        """Add one traced step ``times`` over; ``layers`` multiplies what belongs to a numbered layer."""
        for call in trace.calls:
            if call.step != step:
                continue
            entry = self.gemms.setdefault(call.gemm.key, PlannedGemm(call.gemm))
            module = re.sub(r"\.\d+(?=\.|$)", ".*", call.module)
            count = round(times * (layers if ".*" in module else 1.0))
            setattr(entry, phase, getattr(entry, phase) + count)
            if module not in entry.modules:
                entry.modules.append(module)

    def merge(self, other: Plan) -> None:
        """Add the products of another workload (another prompt length)."""
        for key, theirs in other.gemms.items():
            ours = self.gemms.setdefault(key, PlannedGemm(theirs.gemm))
            ours.prefill += theirs.prefill
            ours.decode += theirs.decode
            ours.modules += [m for m in theirs.modules if m not in ours.modules]
        self.assumed += [words for words in other.assumed if words not in self.assumed]
        for name, count in other.untunable.items():
            self.untunable[name] = self.untunable.get(name, 0) + count

    def lines(self) -> list[str]:
        """Return the untuned file that ``torch.cuda.tunable.tune_gemm_in_file`` accepts, line by line."""
        return [entry.gemm.line() for entry in self.gemms.values()]

    @property
    def flops(self) -> int:
        return sum(entry.flops for entry in self.gemms.values())


def _traced(model: torch.nn.Module, rules: BlasRules, batch: int, prompt: int, pad: int, **how: Any) -> Trace:
    ids, mask = padded_prompt(batch, prompt, pad)
    with record_gemms(model, rules) as trace:
        generate_fixed(model, ids, mask, **how)
    return trace


def _fewer_layers(config: Any) -> tuple[Any, float] | None:
    """Return the configuration with one repetition of its layer pattern, and how many the model has."""
    small = copy.deepcopy(config)
    text = small.get_text_config(decoder=True)
    total = getattr(text, "num_hidden_layers", None) or 1
    kinds = list(getattr(text, "layer_types", None) or ["same"] * total)
    period = next((p for p in range(1, total + 1) if all(kinds[i] == kinds[i % p] for i in range(total))), total)
    if period == total or total % period or len(kinds) != total:
        return None
    try:
        text.num_hidden_layers = period
        if getattr(text, "layer_types", None):
            text.layer_types = kinds[:period]
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None  # a configuration that computes its own pattern lets nobody shorten it
    return small, total / period


def _predicts(small: Trace, whole: Trace, repeats: float, steps: int) -> bool:
    """Return whether one repetition of the layers, multiplied, asks for what the whole model does at first."""
    for i in range(steps):
        a, b = Plan(), Plan()
        a.add(small, i, layers=repeats)
        b.add(whole, i)
        if [(k, g.calls) for k, g in a.gemms.items()] != [(k, g.calls) for k, g in b.gemms.items()]:
            return False
    return True


def plan_model(
    config: Any,
    *,
    batch: int = 1,
    prompt: int = 128,
    new_tokens: int = 128,
    pad: int = 1,
    cache: str = "dynamic",
    dtype: str = "bfloat16",
    attention: str = "sdpa",
    rules: BlasRules | None = None,
    trust_pattern: bool = False,
) -> Plan:
    """Plan one workload of a transformers configuration: ``batch`` prompts of ``prompt`` tokens, then ``new_tokens``.

    The whole model is traced for the prompt and the first tokens, and so is one repetition of its layer pattern. If
    the decoding steps ask for the same products, so do all others; if not (eager attention on a growing cache) every
    step is traced, on the one repetition when it predicted the whole. ``trust_pattern`` skips the whole model, for
    further workloads of a model whose first plan has ``pattern`` set.

    Raises:
        GuideError: a size below 1, an unknown cache, or a model that decides on values.

    >>> from transformers import LlamaConfig
    >>> config = LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=2, vocab_size=100)
    >>> found = plan_model(config, prompt=5, new_tokens=10, pad=8)
    >>> [(g.gemm.params, g.prefill, g.decode) for g in found.gemms.values()][0]
    ('tn_64_8_64_ld_64_64_64', 128, 0)
    """
    if min(batch, prompt, new_tokens, pad) < 1:
        raise GuideError(f"batch={batch}, prompt={prompt}, new_tokens={new_tokens}, pad={pad}: each is at least 1")
    _check_size(batch, prompt)
    rules = rules or BlasRules()
    how = {"new_tokens": new_tokens, "cache": cache}
    look = min(new_tokens, 3)  # the prompt, and two decoding steps to compare

    said: list[str] = []

    def run(cfg: Any, **more: Any) -> Trace:
        kind = getattr(config, "model_type", type(config).__name__)
        try:
            model, note = _meta_model(cfg, dtype, attention)
            notes = note + with_own_kernels(model, config)
            trace = _traced(model, rules, batch, prompt, pad, **how, **more)
        except GuideError:
            raise
        except Exception as e:  # a model's own code, without weights
            raise GuideError(f"{kind}: cannot be planned ({reason_of(e)}); record it on a GPU instead") from e
        if cfg is config or trust_pattern:
            said[:] = notes
        return trace

    small, repeats = _fewer_layers(config) or (config, 1.0)
    trace = run(small, stop_after=look) if trust_pattern else None
    if trace is None:
        trace = run(config, stop_after=look)
        if small is not config:
            try:
                predicted = _predicts(run(small, stop_after=look), trace, repeats, look)
            except GuideError:  # its configuration says more about each layer than a pattern
                predicted = False
            small = small if predicted else config
        factor = 1.0
    else:
        factor = repeats
    result = Plan(untunable={name: round(n * factor) for name, n in trace.untunable.items()})
    result.assumed = [*trace.assumed, *said]
    result.pattern = small is not config
    result.add(trace, 0, layers=factor, phase="prefill")
    asked = ([(c.module, c.gemm.line()) for c in trace.calls if c.step == i] for i in range(1, look))
    steps = set(map(tuple, asked))
    if len(steps) == 1:
        result.add(trace, 1, times=new_tokens - 1, layers=factor)
    elif steps:
        trace, factor = (run(small), repeats) if result.pattern else (run(config), 1.0)
        for i in range(1, new_tokens):
            result.add(trace, i, layers=factor)
    return result


def _meta_model(config: Any, dtype: str, attention: str) -> tuple[torch.nn.Module, list[str]]:
    """Return the model with this attention, or with its own where transformers has no such one for it, and a note."""
    try:
        return meta_model(config, dtype=dtype, attention=attention).eval(), []
    except ValueError as error:
        if attention == "eager" or "attention" not in str(error):
            raise
    note = f"attention: this model has no {attention} in transformers; planned with eager"
    return meta_model(config, dtype=dtype, attention="eager").eval(), [note]


def _check_size(batch: int, prompt: int) -> None:
    if batch * prompt > (most := _MOST_TOKENS):
        raise GuideError(f"batch={batch}, prompt={prompt}: a plan goes up to {most:,} tokens at once; give less")


def plan(
    model: str | Any,
    *,
    batch: int = 1,
    prompt: int | Iterable[int] = 128,
    pad: int = 1,
    trust_pattern: bool = False,
    progress: bool = False,
    **how: Any,
) -> Plan:
    """Plan a model for one prompt length or many; lengths that pad to the same are traced once and counted each.

    ``model`` is a shape known to the course (``llama-3-70b``, ``random:llama-3-70b``), a hub id or folder with a
    config.json, or a transformers configuration; ``progress`` draws a bar, ``how`` goes to :func:`plan_model`.

    Raises:
        GuideError: see :func:`plan_model`; or the model is not known.

    >>> found = plan("random:llama-2-7b", prompt=[5, 6, 9], new_tokens=4, pad=8, cache="static")
    >>> len(found.gemms), sorted({g.gemm.n for g in found.gemms.values()})
    (10, [1, 8, 16])
    """
    lengths = [prompt] if isinstance(prompt, int) else list(prompt)
    if not lengths or not all(isinstance(n, int) and n >= 1 for n in lengths):
        raise GuideError(f"prompt={lengths}: give one length or several, each at least 1")
    _check_size(batch, max(lengths))
    if isinstance(model, str):
        model = config_from(config_fields(model))
    total = Plan()
    different = Counter(padded_length(n, pad) for n in lengths)
    for length, count in tqdm(different.items(), desc="prompt lengths", leave=False, disable=not progress):
        # Padding is part of the attention mask, so a padded prompt is traced as one; any real length will do.
        real = next(n for n in lengths if padded_length(n, pad) == length)
        trust = trust_pattern or total.pattern
        one = plan_model(model, batch=batch, prompt=real, pad=pad, trust_pattern=trust, **how)
        total.pattern = total.pattern or one.pattern
        for _ in range(count):
            total.merge(one)
    return total
