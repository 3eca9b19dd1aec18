# SPDX-License-Identifier: MIT
"""Move a factor of each channel from a norm into the linear layers behind it: the function stays what it was.

A norm ends with a multiplication by its weight, and the linear layers that read it begin with one by their columns. So
the norm's weight may be divided by any positive factors, one for each channel, if the columns are multiplied by them.
SmoothQuant does this with factors that make the channels of the activations more alike.
Source: Xiao et al., "SmoothQuant", https://arxiv.org/abs/2211.10438, section 4 and figure 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from rocm_guide.quantize.calibration import calibration_samples, linear_layers
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.int8 import smoothing_scales

__all__ = ["add_outliers", "fold", "input_ranges", "norm_groups", "smooth_model"]

#: Norms of a decoder layer and the linear layers that read them: Llama and its relatives, then OPT.
_GROUPS = (
    {
        "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
    },
    {
        "self_attn_layer_norm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "final_layer_norm": ("fc1",),
    },
)


def norm_groups(model: Any) -> dict[str, list[str]]:
    """Return every norm that feeds linear layers, with their names: what :func:`smooth_model` works on.

    Raises:
        QuantizationError: a model whose layers are neither those of a Llama nor those of an OPT, one whose norms come
            after the layers (OPT-350m), or norms that add 1 to their weight (Gemma).
    """
    layers = {n: m for n, m in model.named_modules() if ".layers." in n and n.rpartition(".")[2].isdigit()}
    found: dict[str, list[str]] = {}
    for prefix, layer in layers.items():
        for group in _GROUPS:
            if {n for norm, linears in group.items() for n in (norm, *linears)} <= dict(layer.named_modules()).keys():
                found |= {f"{prefix}.{norm}": [f"{prefix}.{x}" for x in linears] for norm, linears in group.items()}
    kind = type(model).__name__
    if not found or len(found) != 2 * len(layers):
        raise QuantizationError(
            f"{kind}: no norm is known to feed its linear layers; give a Llama-like model or an OPT"
        )
    if not getattr(model.config, "do_layer_norm_before", True):
        raise QuantizationError(
            f"{kind}: its norms come after the layers and cannot take scales over; give another OPT"
        )
    if any(not _scales_with_its_weight(model.get_submodule(norm)) for norm in found):
        raise QuantizationError(
            f"{kind}: its norms multiply by 1 + weight, which is not divided here; give a Llama-like model"
        )
    return found


def _scales_with_its_weight(norm: Any) -> bool:
    """Return whether a norm without weight and bias gives 0, as it does if it multiplies by its weight."""
    empty = {name: torch.zeros_like(p) for name, p in norm.named_parameters()}
    probe = torch.linspace(-1, 1, norm.weight.shape[0], device=norm.weight.device, dtype=norm.weight.dtype)
    return not bool(torch.func.functional_call(norm, empty, (probe[None],)).any())


def fold(norm: Any, linears: Sequence[Any], scales: torch.Tensor) -> None:
    """Divide the output of ``norm`` by ``scales`` (channels,) and multiply the columns of ``linears``, in place.

    Computed in float32 and rounded once to the type of the parameters: in float32 the function stays the same up to
    rounding, in 16 bits each parameter moves by up to half a step of its type.

    Raises:
        QuantizationError: scales of another shape, or not all positive and finite.

    >>> norm, linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)
    >>> x = torch.tensor([[1.0, 5.0, -2.0, 0.5]])
    >>> before = linear(norm(x))
    >>> fold(norm, [linear], torch.tensor([1.0, 2.0, 4.0, 0.5]))
    >>> torch.allclose(linear(norm(x)), before, atol=1e-6), norm.weight.tolist()
    (True, [1.0, 0.5, 0.25, 2.0])
    """
    if scales.shape != norm.weight.shape or not bool((scales.isfinite() & (scales > 0)).all()):
        shape, channels = tuple(scales.shape), norm.weight.shape[0]
        raise QuantizationError(
            f"scales of shape {shape}: give one positive number for each of the {channels} channels"
        )
    scales = scales.to(norm.weight.device, torch.float32)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(parameter.float() / scales)
        for linear in linears:
            linear.weight.copy_(linear.weight.float() * scales.to(linear.weight.device))


def add_outliers(model: Any, size: float, channels: int = 4, seed: int = 0) -> dict[str, list[int]]:
    """Make ``channels`` channels behind every norm ``size`` times larger, and the columns that read them smaller.

    Large language models have such channels (Dettmers et al., https://arxiv.org/abs/2208.07339), small ones do not.
    The model computes what it did before, so whatever a quantised copy gets wrong is the quantisation's fault.

    Returns:
        norm -> numbers of its channels.

    Raises:
        QuantizationError: as :func:`norm_groups`; a size that is not positive, or more channels than there are.
    """
    generator, chosen = torch.Generator().manual_seed(seed), {}
    for norm_name, names in norm_groups(model).items():
        norm = model.get_submodule(norm_name)
        width = norm.weight.shape[0]
        if not 0 < channels <= width or not 0 < size < float("inf"):
            raise QuantizationError(
                f"size={size}, channels={channels}: give a positive size, and 1 to {width} channels"
            )
        picked = torch.randperm(width, generator=generator)[:channels]
        scales = torch.ones(width)
        scales[picked] = 1 / size
        fold(norm, [model.get_submodule(name) for name in names], scales)
        chosen[norm_name] = sorted(picked.tolist())
    return chosen


def input_ranges(model: Any, samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Return the largest magnitude of linear layers' input channels over calibration data: name -> (in,) float32.

    Only the maxima are kept, so the data may be as long as you like.

    Raises:
        QuantizationError: samples or a model that do not fit, or activations that are not finite.
    """
    ranges: dict[str, torch.Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(_module: Any, args: tuple[torch.Tensor, ...]) -> None:
            largest = args[0].detach().abs().flatten(0, -2).amax(0).float()
            ranges[name] = torch.maximum(ranges[name], largest) if name in ranges else largest

        return keep

    handles = [linear.register_forward_pre_hook(hook(name)) for name, linear in linear_layers(model).items()]
    try:
        with torch.inference_mode():
            for sample in calibration_samples(samples):
                model(**{k: v.to(model.device) for k, v in sample.items()}, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    broken = [name for name, largest in ranges.items() if not bool(largest.isfinite().all())]
    if broken:
        raise QuantizationError(f"{broken[0]}: its inputs are not finite; run the calibration in float32 or bfloat16")
    return {name: largest.clone() for name, largest in ranges.items()}


def _range(ranges: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in ranges:
        raise QuantizationError(f"{name}: not calibrated; give what input_ranges(model, samples) returned")
    return ranges[name]


def group_scales(model: Any, ranges: Mapping[str, torch.Tensor], alpha: float) -> Iterator[tuple[str, list[str], Any]]:
    """Yield (norm, its linear layers, smoothing scales) of every norm of :func:`norm_groups`."""
    for norm, names in norm_groups(model).items():
        largest = torch.stack([_range(ranges, name) for name in names]).amax(0)
        weights = [model.get_submodule(name).weight.detach().abs().amax(0).float() for name in names]
        columns = torch.stack(weights).amax(0)
        yield norm, names, smoothing_scales(largest.to(columns.device), columns, alpha)


def smooth_model(model: Any, ranges: Mapping[str, torch.Tensor], alpha: float = 0.5) -> dict[str, torch.Tensor]:
    """Smooth every norm's channels, in place: s = max|X|^alpha / max|W|^(1 - alpha) leaves the norm for the weights.

    Args:
        alpha: how much of the difficulty goes into the weights; 0.5 shares it evenly.

    Returns:
        The ranges of the smoothed model: the input channels behind norms are divided by their scales.

    Raises:
        QuantizationError: alpha outside 0 to 1, a layer without calibration, or a model as in :func:`norm_groups`.
    """
    after = dict(ranges)
    for norm, names, scales in list(group_scales(model, ranges, alpha)):
        fold(model.get_submodule(norm), [model.get_submodule(name) for name in names], scales)
        after |= {name: ranges[name] / scales.to(ranges[name].device) for name in names}
    return after
