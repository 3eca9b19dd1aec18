# SPDX-License-Identifier: MIT
"""Compile a language model's decoding step, and count what the compiler did: graphs, breaks, kernels, recompilations;
and where its text parts from another.

Decoding makes one token at a time, so its shapes stay the same if, and only if, the key/value cache has its full size
from the start. Then one compiled graph serves every token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm.auto import tqdm

from rocm_guide.common.base import GuideError
from rocm_guide.common.device import clock

__all__ = ["Decoder", "count_compilation", "decode_speed", "first_divergence"]


@dataclass(slots=True)
class CompileReport:
    """The record of torch.compile's work inside a ``with count_compilation()`` block.

    ``graphs`` compiled, ``breaks`` (reason -> how often the tracer had to stop and start anew), ``kernels`` that
    inductor generated (on a GPU Triton kernels; on a CPU it counts a loop and its vector and remainder versions each),
    ``seconds`` of wall time of the block. After a warm-up, ``graphs`` is the number of recompilations.
    """

    graphs: int = 0
    breaks: dict[str, int] = field(default_factory=dict)
    kernels: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = {"graph": self.graphs, "break": sum(self.breaks.values()), "kernel": self.kernels}
        return ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in parts.items()) + f", {self.seconds:.1f} s"


@contextmanager
def count_compilation() -> Iterator[CompileReport]:
    """Count what the compiler does inside the block.

    >>> import torch
    >>> double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    >>> with count_compilation() as first:
    ...     _ = double(torch.ones(4))
    >>> with count_compilation() as again:
    ...     _ = double(torch.ones(4))
    >>> with count_compilation() as other_shape:
    ...     _ = double(torch.ones(5))
    >>> first.graphs, again.graphs, other_shape.graphs
    (1, 0, 1)
    """
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    def look() -> tuple[int, dict[str, int], int]:
        breaks: dict[str, int] = {}
        # Releases differ in where they count a break, some in both places. Reasons are long: the first line says it.
        for place in ("graph_break", "unimplemented"):
            here: dict[str, int] = {}
            for reason, count in counters[place].items():
                first = (str(reason).strip() or "no reason given").splitlines()[0]
                here[first] = here.get(first, 0) + count
            breaks |= {reason: max(count, breaks.get(reason, 0)) for reason, count in here.items()}
        return counters["stats"]["unique_graphs"], breaks, metrics.generated_kernel_count

    report = CompileReport()
    graphs, breaks, kernels = look()
    started = time.perf_counter()
    try:
        yield report
    finally:
        report.seconds = time.perf_counter() - started
        graphs_now, breaks_now, kernels_now = look()
        report.graphs = graphs_now - graphs
        more = {reason: count - breaks.get(reason, 0) for reason, count in breaks_now.items()}
        report.breaks = {reason: count for reason, count in more.items() if count > 0}
        report.kernels = kernels_now - kernels


def _one_token(model: torch.nn.Module, token: torch.Tensor, past: Any) -> torch.Tensor:
    """Run one decoding step: token [batch, 1] in, the most likely next token [batch, 1] out."""
    logits = model(token, past_key_values=past, use_cache=True).logits
    return logits[:, -1:].argmax(-1)


class Decoder:
    """Greedy decoding with a cache that is kept between runs, eager or compiled.

    ``cache`` is ``static`` (full size from the start) or ``dynamic`` (one longer at every step). ``mode`` is None
    (eager) or a torch.compile mode: ``default``, ``reduce-overhead`` (records the launches as one GPU graph),
    ``max-autotune``. Prefill stays eager: prompts have many lengths. Another cache is a GuideError.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import torch
    >>> sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    >>> prompt = torch.tensor([[3, 4, 5]])
    >>> static, dynamic = (Decoder(model, 1, 16, cache=c).run(prompt, 5) for c in ("static", "dynamic"))
    >>> static.shape, bool((static == dynamic).all())
    (torch.Size([1, 5]), True)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        batch: int,
        max_length: int,
        *,
        cache: str = "static",
        mode: str | None = None,
        fullgraph: bool = True,
        dynamic: bool | None = False,
    ) -> None:
        if cache not in ("static", "dynamic"):
            raise GuideError(f"cache={cache}: use static (one shape for all steps) or dynamic (grows with every token)")
        self.model, self.batch, self.max_length, self.cache = model, batch, max_length, cache
        self._past: Any = None
        self._graphs = mode is not None and mode != "default"
        self._step: Callable[..., torch.Tensor] = _one_token
        if mode is not None:
            self._step = torch.compile(_one_token, mode=mode, fullgraph=fullgraph, dynamic=dynamic)

    def _fresh_cache(self) -> Any:
        from transformers import DynamicCache, StaticCache

        if self.cache == "dynamic":
            return DynamicCache(config=self.model.config)
        if self._past is None:
            self._past = StaticCache(config=self.model.config, max_cache_len=self.max_length)
        else:
            # The same memory again: a new cache would have new addresses, and a recorded GPU graph holds the old.
            self._past.reset()
        return self._past

    def run(self, ids: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """Return the greedy tokens [batch, new_tokens] after the prompt ``ids`` [batch, prompt].

        Raises:
            GuideError: prompt and new tokens do not fit ``max_length``, or another batch size.
        """
        if ids.shape[0] != self.batch or ids.shape[1] + new_tokens > self.max_length:
            ours = f"this decoder is for batch {self.batch} and {self.max_length} tokens"
            raise GuideError(f"batch {ids.shape[0]}, {ids.shape[1]} + {new_tokens} tokens: {ours}")
        tokens = []
        with torch.no_grad():
            past = self._fresh_cache()
            token = _one_token(self.model, ids, past)
            tokens.append(token)
            for _ in range(new_tokens - 1):
                if self._graphs:
                    torch.compiler.cudagraph_mark_step_begin()
                # A recorded graph writes every result to the same address; the clone keeps this one.
                token = self._step(self.model, token, past).clone()
                tokens.append(token)
        return torch.cat(tokens, 1)


def decode_speed(
    decoder: Decoder, ids: torch.Tensor, new_tokens: int, *, runs: int = 5, warmup: int = 2, progress: str = ""
) -> dict[str, Any]:
    """Time whole runs (prefill and decoding) after a warm-up; says what compiling cost and whether it happened again.

    Returns a dict: ``tokens`` [batch, new_tokens], ``tokens_per_s`` (one figure per run, all sequences together),
    ``warmup`` and ``timed`` (CompileReport each): ``timed.graphs`` is the number of recompilations.
    ``progress`` names a progress bar; none is drawn when it is empty.
    """
    rates = []
    with tqdm(total=warmup + runs, desc=progress, leave=False, disable=not progress) as bar:
        with count_compilation() as warm:
            for _ in range(warmup):
                tokens = decoder.run(ids, new_tokens)
                bar.update()
        with count_compilation() as timed:
            for _ in range(runs):
                started = clock(ids.device.type)
                tokens = decoder.run(ids, new_tokens)
                rates.append(tokens.numel() / (clock(ids.device.type) - started))
                bar.update()
    return {"tokens": tokens, "tokens_per_s": rates, "warmup": warm, "timed": timed}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The point where two greedy texts part: the ``position`` (tokens in common), and how close the choice was there.

    ``gap`` is the distance of the two logits in standard deviations of all logits. Rounding can only swap candidates
    that are almost equal (a few hundredths); a wrong computation picks tokens several standard deviations apart.
    """

    position: int
    gap: float


def first_divergence(
    model: torch.nn.Module, ids: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor
) -> Divergence | None:
    """Compare two continuations [1, tokens] of the prompt ``ids`` [1, prompt]; None when they are equal.

    In 16-bit types a compiled model may choose another token than the eager one, because fused kernels round less
    often. The (eager) model itself then says whether the choice was open.

    Raises:
        GuideError: a batch, or continuations of different lengths.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import torch
    >>> sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    >>> prompt, text = torch.tensor([[3, 4, 5]]), torch.tensor([[7, 8, 9]])
    >>> first_divergence(model, prompt, text, torch.tensor([[7, 8, 1]])).position
    2
    """
    if ours.shape != theirs.shape or len(ids) != 1 or len(ours) != 1:
        shapes = ", ".join(str(tuple(t.shape)) for t in (ids, ours, theirs))
        raise GuideError(f"shapes {shapes}: give a prompt [1, prompt] and two texts [1, tokens]")
    different = (ours != theirs)[0].nonzero()
    if not len(different):
        return None
    position = int(different[0])
    with torch.no_grad():
        logits = model(torch.cat([ids, theirs[:, :position]], 1), use_cache=False).logits[0, -1].float()
    first, second = (logits[int(t[0, position])] for t in (ours, theirs))
    return Divergence(position, float((first - second).abs() / logits.std()))
