# SPDX-License-Identifier: MIT
"""An OPT decoder layer on the five INT8 operators: attention's products are int8 too, only norms and softmax are not.

OPT suits INT8: its activation is ReLU, which works on codes, its positions are added before the first layer, and the
biases fit into the operators' D. So the output of one product can be the input of the next without leaving 8 bits.
Source: the ROCm LLM guide, "INT8 model performance"; the layer's parts have the names of the SmoothQuant authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rocm_guide.kernels.int8_gemm import to_int8
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.smoothquant.linear import quantize_weight, scale_of
from rocm_guide.quantize.smoothquant.operators import run_operator

__all__ = ["Int8OPTLayer", "opt_ranges"]

#: Modules of an OPT layer whose outputs become codes, and what else becomes codes: the inputs of out_proj and fc2.
_OUTPUTS = ("self_attn_layer_norm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "final_layer_norm")
_INPUTS = ("self_attn.out_proj", "fc2")


def opt_ranges(layer: Any, inputs: Sequence[torch.Tensor]) -> dict[str, float]:
    """Return the largest magnitude of all in an OPT layer that becomes int8, over (batch, tokens, hidden) inputs.

    Raises:
        QuantizationError: a layer that is not OPT's, or no inputs.
    """
    missing = [n for n in (*_OUTPUTS, *_INPUTS) if n not in dict(layer.named_modules())]
    if missing:
        raise QuantizationError(f"{type(layer).__name__}: has no {missing[0]}; give a layer of an OPT model")
    if not len(inputs):
        raise QuantizationError("no inputs to calibrate with; give at least one (batch, tokens, hidden) tensor")
    found: dict[str, float] = {}

    def keep(name: str, x: torch.Tensor) -> None:
        found[name] = max(found.get(name, 0.0), float(x.detach().abs().max()))

    def after(name: str) -> Callable[..., None]:
        return lambda _m, _a, out: keep(name, out)

    def before(name: str) -> Callable[..., None]:
        return lambda _m, args: keep(name, args[0])

    handles = [layer.get_submodule(n).register_forward_hook(after(n)) for n in _OUTPUTS]
    handles += [layer.get_submodule(n).register_forward_pre_hook(before(n)) for n in _INPUTS]
    try:
        with torch.inference_mode():
            for x in inputs:
                layer(x, attention_mask=causal_mask(x.shape[1], x.device, x.dtype))
    finally:
        for handle in handles:
            handle.remove()
    return found


def causal_mask(tokens: int, device: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return (1, 1, tokens, tokens): 0 where a token may look, a very negative number where it may not."""
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(1)
    return torch.zeros(tokens, tokens, dtype=dtype, device=device).masked_fill(hidden, torch.finfo(dtype).min)[
        None, None
    ]


class Int8OPTLayer(torch.nn.Module):
    """An OPT decoder layer in INT8, built from a layer of transformers and the ranges of its activations.

    Each weight has one scale, each activation too, and both are known beforehand: every ``alpha`` and ``beta`` below is
    a plain number of Python, so that nothing waits for the GPU.
    """

    def __init__(self, layer: Any, ranges: dict[str, float]) -> None:
        """
        Args:
            layer: an ``OPTDecoderLayer``; smooth it before, if it has outliers. It is not changed.
            ranges: from :func:`opt_ranges` on the same layer.

        Raises:
            QuantizationError: ranges of another layer, or norms that come after the products.
        """
        super().__init__()
        missing = [name for name in (*_OUTPUTS, *_INPUTS) if name not in ranges]
        if missing:
            raise QuantizationError(f"{missing[0]}: not calibrated; give what opt_ranges(layer, inputs) returned")
        if not layer.do_layer_norm_before:
            raise QuantizationError("the norms of this OPT come after its products; give a layer with them before")
        attention = layer.self_attn
        self.heads, self.scaling = attention.num_heads, float(attention.scaling)
        self.scale = {name: float(scale_of(torch.tensor(largest))) for name, largest in ranges.items()}
        self.norms = torch.nn.ModuleDict()
        for key, name in (("attention", "self_attn_layer_norm"), ("mlp", "final_layer_norm")):
            self.norms[key] = _norm_in_steps(layer.get_submodule(name), self.scale[name])
        self.weight_scale: dict[str, float] = {}
        self.bias_scale: dict[str, float] = {}
        for name in ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"):
            linear = getattr(attention, name, None) or getattr(layer, name)
            codes, scale = quantize_weight(linear.weight, "tensor")
            bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().float()
            self.weight_scale[name], self.bias_scale[name] = float(scale), 1.0
            if name not in ("out_proj", "fc2"):  # their output stays in 8 bits, and so does their bias
                self.bias_scale[name] = float(scale_of(bias.abs().max()))
                bias = to_int8(bias / self.bias_scale[name])
            self.register_buffer(f"{name}_weight", codes)
            self.register_buffer(f"{name}_bias", bias.to(codes.device))

    def _linear(self, operator: str, name: str, codes: torch.Tensor, scale: float, out: float = 1.0) -> torch.Tensor:
        """Apply a linear layer to (rows, in) codes of scale ``scale``; ``out`` is the scale of int8 results."""
        weight, bias = self.get_buffer(f"{name}_weight"), self.get_buffer(f"{name}_bias")
        alpha, beta = scale * self.weight_scale[name] / out, self.bias_scale[name] / out
        return run_operator(operator, codes, weight.T, bias, alpha, beta)

    def _heads(self, x: torch.Tensor, batch: int) -> torch.Tensor:
        # (batch * tokens, hidden) -> (batch * heads, tokens, head).
        return x.unflatten(0, (batch, -1)).unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, tokens, hidden) to the same, float32; every token sees itself and those before it."""
        batch, tokens, _ = x.shape
        s, x = self.scale, x.float()
        codes, scale = to_int8(self.norms["attention"](x)).flatten(0, 1), s["self_attn_layer_norm"]
        q, k, v = (
            self._heads(self._linear("Linear_ABDE_I8", name, codes, scale, s[f"self_attn.{name}"]), batch)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        alpha = s["self_attn.q_proj"] * s["self_attn.k_proj"] * self.scaling
        scores = run_operator("BMM_AB_I8_E_F32", q, k.transpose(1, 2), alpha=alpha)
        probabilities = to_int8(127 * (scores + causal_mask(tokens, x.device)[0]).softmax(-1))
        alpha = s["self_attn.v_proj"] / 127 / s["self_attn.out_proj"]
        mixed = run_operator("BMM_ABE_I8", probabilities, v, alpha=alpha)
        mixed = mixed.unflatten(0, (batch, self.heads)).transpose(1, 2).flatten(0, 1).flatten(1)
        attended = self._linear("Linear_AB_I8_DE_F32", "out_proj", mixed, s["self_attn.out_proj"])
        x = x + attended.unflatten(0, (batch, tokens))
        codes, scale = to_int8(self.norms["mlp"](x)).flatten(0, 1), s["final_layer_norm"]
        inner = self._linear("Linear_ReLU_ABDE_I8", "fc1", codes, scale, s["fc2"])
        return x + self._linear("Linear_AB_I8_DE_F32", "fc2", inner, s["fc2"]).unflatten(0, (batch, tokens))


def _norm_in_steps(norm: Any, scale: float) -> torch.nn.LayerNorm:
    """Return a copy of a LayerNorm that gives its output in steps of ``scale``, still to be rounded (LayerNormQ)."""
    copy = torch.nn.LayerNorm(norm.normalized_shape, eps=norm.eps, device=norm.weight.device)
    with torch.no_grad():
        copy.weight.copy_(norm.weight.float() / scale)
        copy.bias.copy_(norm.bias.float() / scale)
    return copy
