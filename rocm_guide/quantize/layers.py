# SPDX-License-Identifier: MIT
"""Quantise a Llama layer by layer: what every linear layer sees on calibration data, and each method applied to it.

The layers are quantised in the order in which data flows, and each one is calibrated on what the layers before it give
*after* their quantisation, so that it can make up for their errors too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rocm_guide.quantize.awq import awq_grid, search_clip, search_scales
from rocm_guide.quantize.calibration import calibration_samples, linear_layers, recorded_inputs
from rocm_guide.quantize.gptq import gptq, hessian
from rocm_guide.quantize.grid import QuantizationError, Quantized, check_grid, output_error, round_to_nearest
from rocm_guide.quantize.packing import PackedLinear

__all__ = ["quantize_layers"]

#: Linear layers of a decoder layer that read the same inputs, in the order in which data flows.
SUBSETS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
#: What AWQ compares for each subset, and what stands before it and can take over the division by the scales.
BLOCKS = ("self_attn", "self_attn.o_proj", "mlp", "mlp.down_proj")
BEFORE = ("input_layernorm", "self_attn.v_proj", "post_attention_layernorm", "mlp.up_proj")


@dataclass
class Done:
    """The result of :func:`quantize_layers`: relative output error of every layer, by name, and the seconds it took."""

    errors: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def quantize_layers(
    model: Any,
    method: str,
    samples: Sequence[Mapping[str, Any]] = (),
    *,
    bits: int = 4,
    group: int = 128,
    progress: bool = True,
    **options: Any,
) -> Done:
    """Replace every linear layer of the decoder by a :class:`PackedLinear`, in place.

    Embeddings and the output head stay as they are, as in the libraries.

    Args:
        model: of transformers; for "gptq" and "awq" with the seven matrices of a Llama in every decoder layer (Qwen,
            Mistral and Gemma have them).
        method: "nearest", "gptq" or "awq".
        samples: calibration data, as :func:`calibration_samples` takes it; not needed for "nearest".
        options: for "nearest" symmetric; for "gptq" act_order, damping, symmetric; for "awq" clip (default True).

    Raises:
        QuantizationError: another method, a model with other layers or whose layers do not hand on their results
            unchanged, no samples, or settings that do not fit.
    """
    from tqdm.auto import tqdm

    if method not in _METHODS:
        raise QuantizationError(f"method={method!r}: choose {', '.join(map(repr, _METHODS))}")
    for linear in linear_layers(model).values():
        check_grid(linear.in_features, bits, group)
    layers = _decoder_layers(model, method)
    began, done = time.perf_counter(), Done()
    hidden: list[torch.Tensor] = []
    arguments: list[list[Any]] = []
    if method != "nearest":
        hidden, arguments = _recorded_calls(model, layers, calibration_samples(samples))
    with torch.inference_mode():
        for i, layer in enumerate(tqdm(layers, desc=f"{method}, {bits} bits", leave=False, disable=not progress)):
            # Layers differ in more than their weights: in Gemma some see all tokens and some a window of them, each
            # kind with a mask and rotary angles of its own.
            others = arguments[i] if arguments else ()
            calls = [((x, *args), kwargs) for x, (args, kwargs) in zip(hidden, others, strict=True)]
            results = _METHODS[method](layer, calls, bits, group, done.errors, f"model.layers.{i}.", **options)
            hidden = [_tensor(layer(*args, **kwargs)) for args, kwargs in calls]
            for name, packed in results.items():
                layer.set_submodule(name, packed)
    done.seconds = time.perf_counter() - began
    return done


def _decoder_layers(model: Any, method: str) -> Any:
    """Return the decoder layers; checked for a Llama's seven matrices where ``method`` goes from one to the next."""
    layers = next(m for n, m in model.named_modules() if n.endswith("layers") and isinstance(m, torch.nn.ModuleList))
    for number, layer in enumerate(layers if method != "nearest" else ()):
        linears = {n for n, m in layer.named_modules() if isinstance(m, torch.nn.Linear)}
        if missing := [n for part in SUBSETS for n in part if n not in linears]:
            raise QuantizationError(
                f"{type(model).__name__}: its layers are not those of a Llama (layer {number} has no {missing[0]}); "
                "quantise this model with a library, or load a Llama-like one"
            )
    return layers


def _tensor(out: Any) -> torch.Tensor:
    return out[0] if isinstance(out, tuple) else out


def _recorded_calls(
    model: Any, layers: Any, samples: Iterable[dict[str, torch.Tensor]]
) -> tuple[list[torch.Tensor], list[list[tuple[tuple[Any, ...], dict[str, Any]]]]]:
    """Return what every decoder layer is called with, from one pass over the samples.

    Returns:
        The hidden states that the first layer is given, one for each sample, and for each layer its other arguments,
        one pair (positional, by name) for each sample.

    Raises:
        QuantizationError: a layer is given something else than what the layer before it returned.
    """
    first: list[torch.Tensor] = []
    arguments: list[list[Any]] = [[] for _ in layers]
    last: list[torch.Tensor] = []

    def before(number: int) -> Callable[..., None]:
        def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x, rest = (args[0], args[1:]) if args else (kwargs["hidden_states"], ())
            if not number:
                first.append(x)
            elif x is not last[0] and not torch.equal(x, last[0]):
                raise QuantizationError(
                    f"{type(model).__name__}: layer {number} is given something else than what layer {number - 1} "
                    "returned, which is not repeated here; quantise this model with a library"
                )
            arguments[number].append((rest, {k: v for k, v in kwargs.items() if k != "hidden_states"}))

        return keep

    def after(_module: Any, _args: Any, out: Any) -> None:
        last[:] = [_tensor(out)]

    handles = [m.register_forward_pre_hook(before(i), with_kwargs=True) for i, m in enumerate(layers)]
    handles += [m.register_forward_hook(after) for m in layers]
    try:
        with torch.inference_mode():
            for sample in samples:
                model(**{k: v.to(model.device) for k, v in sample.items()}, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return first, arguments


def _inputs_of(layer: Any, names: Iterable[str], calls: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return (tokens, in) of linear layers inside ``layer``, from one pass over all calls."""
    with recorded_inputs({name: layer.get_submodule(name) for name in names}) as seen:
        for args, kwargs in calls:
            layer(*args, **kwargs)
    return {name: torch.cat(parts) for name, parts in seen.items()}


def _settle(linear: Any, quantized: Quantized) -> PackedLinear:
    """Return the packed layer; until it takes its place, ``linear`` computes with the same weights, only faster."""
    packed = PackedLinear(quantized, linear.bias)
    linear.weight.data = packed.unpacked().dequantize().to(linear.weight.dtype)
    return packed


def _nearest(
    layer: Any, _calls: Any, bits: int, group: int, _errors: Any, _prefix: str, **options: Any
) -> dict[str, PackedLinear]:
    linears = {n: m for n, m in layer.named_modules() if isinstance(m, torch.nn.Linear)}
    return {n: _settle(li, round_to_nearest(li.weight, bits, group, **options)) for n, li in linears.items()}


def _gptq(
    layer: Any, calls: Any, bits: int, group: int, errors: dict[str, float], prefix: str, **options: Any
) -> dict[str, PackedLinear]:
    """Quantise subset by subset, each on what the subsets before it give after their quantisation."""
    results = {}
    for part in SUBSETS:
        x = _inputs_of(layer, part[:1], calls)[part[0]]
        h = hessian([x])
        for name in part:
            linear = layer.get_submodule(name)
            q = gptq(linear.weight, h, bits, group, **options)
            errors[prefix + name] = output_error(linear.weight, q.dequantize(), x)
            results[name] = _settle(linear, q)
    return results


def _awq(
    layer: Any, calls: Any, bits: int, group: int, errors: dict[str, float], prefix: str, clip: bool = True
) -> dict[str, PackedLinear]:
    """Find scales for every subset and limits for its layers (not queries and keys), on the unquantised layer."""
    inputs = _inputs_of(layer, [part[0] for part in SUBSETS], calls)
    found = {}
    for part, block, before in zip(SUBSETS, BLOCKS, BEFORE, strict=True):
        x, linears = inputs[part[0]], [layer.get_submodule(name) for name in part]
        weights = [linear.weight.detach() for linear in linears]
        scales = torch.ones(x.shape[1], device=x.device)
        # Something must divide the inputs by the scales: a norm, or a layer of the same width. With grouped queries
        # v_proj is narrower than o_proj's input, and o_proj goes without.
        if layer.get_submodule(before).weight.shape[0] == len(scales):
            scales = search_scales(weights, x, _outputs(layer, block, linears, x, calls), bits, group).scales
        for name, weight in zip(part, weights, strict=True):
            scaled = weight.float() * scales
            if clip and not name.endswith(("q_proj", "k_proj")):
                limit = search_clip(scaled, x.float() / scales, bits, group)[..., None]
                scaled = scaled.reshape(*limit.shape[:2], -1).clamp(-limit, limit).reshape(scaled.shape)
            q = awq_grid(scaled, bits, group)
            found[name] = Quantized(q.codes, q.scale, q.zero, q.groups, bits, scales)
            errors[prefix + name] = output_error(weight, found[name].dequantize(), x)
    return {name: _settle(layer.get_submodule(name), q) for name, q in found.items()}


def _outputs(
    layer: Any, block: str, linears: Sequence[Any], x: torch.Tensor, calls: Any
) -> Callable[..., torch.Tensor]:
    """Return a function from candidate weights of ``linears`` to what ``block`` gives with them, over all calls."""
    module = layer.get_submodule(block)
    if module is linears[0]:
        return lambda candidates: x @ candidates[0].T

    def outputs(candidates: Sequence[torch.Tensor]) -> torch.Tensor:
        originals, given = [linear.weight.data for linear in linears], []
        handle = module.register_forward_hook(lambda _m, _a, out: given.append(_tensor(out).flatten(0, -2)))
        try:
            for linear, candidate in zip(linears, candidates, strict=True):
                linear.weight.data = candidate
            for args, kwargs in calls:
                layer(*args, **kwargs)
        finally:
            handle.remove()
            for linear, original in zip(linears, originals, strict=True):
                linear.weight.data = original
        return torch.cat(given)

    return outputs


_METHODS: dict[str, Callable[..., dict[str, PackedLinear]]] = {"nearest": _nearest, "gptq": _gptq, "awq": _awq}
