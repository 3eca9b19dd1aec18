# SPDX-License-Identifier: MIT
"""The kernels as operators of PyTorch, ``torch.ops.rocm_guide.…``: what torch.compile and torch.export keep in a graph.

An operator has a schema, a version that only computes shapes, and its derivative, so a traced model holds it as one
node and never looks inside. The dispatcher that makes this possible costs microseconds for each call, so a wrapper
called from Python does without it and comes here only while something traces it.

Source: https://docs.pytorch.org/tutorials/advanced/python_custom_ops.html.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rocm_guide.kernels.arguments import architecture
from rocm_guide.kernels.attention import attention_backward, attention_forward
from rocm_guide.kernels.decode import attention_decode
from rocm_guide.kernels.fp8.formats import fp8_dtype, fp8_format
from rocm_guide.kernels.fp8.rmsnorm import rmsnorm_fp8
from rocm_guide.kernels.fp8.swiglu import swiglu_fp8
from rocm_guide.kernels.gemm.skinny import gemm_skinny
from rocm_guide.kernels.gemm.tiled import gemm
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.rms_norm import rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward

__all__ = []


def define(
    name: str, schema: str, run: Callable[..., Any], shapes: Callable[..., Any], **autograd: Callable[..., Any]
) -> None:
    op = torch.library.custom_op(f"rocm_guide::{name}", run, mutates_args=(), schema=schema)
    op.register_fake(shapes)
    if autograd:
        op.register_autograd(autograd["backward"], setup_context=autograd["keep"])


def _new(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _row_numbers(x: Tensor) -> Tensor:
    rows = 1
    for size in x.shape[:-1]:
        rows = rows * size
    return x.new_empty(rows, dtype=torch.float32)


def _or_empty(like: Tensor, gradient: Tensor | None) -> Tensor:
    """An operator returns tensors only: an empty one stands for None."""
    return like.new_empty(0) if gradient is None else gradient.clone() if gradient._base is not None else gradient


define("softmax_forward", "(Tensor x) -> Tensor", lambda x: softmax_forward(x), _new,
        keep=lambda ctx, inputs, output: ctx.save_for_backward(output),
        backward=lambda ctx, dy: torch.ops.rocm_guide.softmax_backward(ctx.saved_tensors[0], dy))  # fmt: skip
define(
    "softmax_backward", "(Tensor y, Tensor dy) -> Tensor", lambda y, dy: softmax_backward(y, dy), lambda y, dy: _new(y)
)


def _keep_rms(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _rms_gradients(ctx: Any, dy: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    x, weight, rstd = ctx.saved_tensors
    dx, dw = torch.ops.rocm_guide.rms_norm_backward(x, weight, dy, rstd)
    return dx, None if weight is None else dw, None


def _rms_backward(x: Tensor, weight: Tensor | None, dy: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    dx, dw = rms_norm_backward(x, weight, dy, rstd)
    return dx, _or_empty(x, dw)


define(
    "rms_norm_forward",
    "(Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)",
    lambda x, weight, eps: rms_norm_forward(x, weight, eps),
    lambda x, weight, eps: (_new(x), _row_numbers(x)),
    keep=_keep_rms,
    backward=_rms_gradients,
)
define(
    "rms_norm_backward",
    "(Tensor x, Tensor? weight, Tensor dy, Tensor rstd) -> (Tensor, Tensor)",
    _rms_backward,
    lambda x, weight, dy, rstd: (_new(x), x.new_empty(0) if weight is None else _new(weight)),
)


def _keep_layer(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, weight, output[1], output[2])
    ctx.bias_dtype = None if bias is None else bias.dtype


def _layer_gradients(ctx: Any, dy: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, weight, mean, rstd = ctx.saved_tensors
    bias = ctx.bias_dtype is not None
    dx, dw, db = torch.ops.rocm_guide.layer_norm_backward(x, weight, dy, mean, rstd, bias)
    return dx, None if weight is None else dw, db.to(ctx.bias_dtype) if bias else None, None


def _layer_backward(
    x: Tensor, weight: Tensor | None, dy: Tensor, mean: Tensor, rstd: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dx, dw, db = layer_norm_backward(x, weight, dy, mean, rstd, bias=bias)
    return dx, _or_empty(x, dw), _or_empty(x, db)


def _layer_shapes(
    x: Tensor, weight: Tensor | None, dy: Tensor, mean: Tensor, rstd: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    like = x if weight is None else weight
    full, none = like.new_empty(x.shape[-1:]), x.new_empty(0)
    return _new(x), none if weight is None else full, like.new_empty(x.shape[-1:]) if bias else x.new_empty(0)


define(
    "layer_norm_forward",
    "(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    lambda x, weight, bias, eps: layer_norm_forward(x, weight, bias, eps),
    lambda x, weight, bias, eps: (_new(x), _row_numbers(x), _row_numbers(x)),
    keep=_keep_layer,
    backward=_layer_gradients,
)
define(
    "layer_norm_backward",
    "(Tensor x, Tensor? weight, Tensor dy, Tensor mean, Tensor rstd, bool bias) -> (Tensor, Tensor, Tensor)",
    _layer_backward,
    _layer_shapes,
)


def _fp8(x: Tensor, columns: Any) -> Tensor:
    return x.new_empty((x.shape[0], columns), dtype=fp8_dtype(fp8_format("e4m3", architecture(x))))


def _fp8_scales(x: Tensor, scale: float | None) -> Tensor:
    return x.new_empty((x.shape[0], 1) if scale is None else (0,), dtype=torch.float32)


def _rmsnorm_fp8(
    x: Tensor, residual: Tensor, weight: Tensor, scale: float | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    q, updated, scales = rmsnorm_fp8(x, residual, weight, scale, eps=eps)
    return q, updated, x.new_empty(0, dtype=torch.float32) if scales is None else scales


def _swiglu_fp8(x: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    q, scales = swiglu_fp8(x, scale)
    return q, x.new_empty(0, dtype=torch.float32) if scales is None else scales


define(
    "rmsnorm_fp8",
    "(Tensor x, Tensor residual, Tensor weight, float? scale, float eps) -> (Tensor, Tensor, Tensor)",
    _rmsnorm_fp8,
    lambda x, residual, weight, scale, eps: (_fp8(x, x.shape[1]), _new(x), _fp8_scales(x, scale)),
)
define(
    "swiglu_fp8",
    "(Tensor x, float? scale) -> (Tensor, Tensor)",
    _swiglu_fp8,
    lambda x, scale: (_fp8(x, x.shape[1] // 2), _fp8_scales(x, scale)),
)


def _gemm_shape(
    a: Tensor, b: Tensor, bias: Any, activation: str, alpha: float, out_dtype: torch.dtype | None, tf32: bool
) -> Tensor:
    whole = a.dtype == torch.int8 and activation == "none" and bias is None and alpha == 1.0
    usual = a.dtype if a.element_size() > 1 else torch.int32 if whole else torch.bfloat16
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype or usual)


define(
    "gemm",
    "(Tensor a, Tensor b, Tensor? bias, str activation, float alpha, ScalarType? out_dtype, bool tf32) -> Tensor",
    lambda a, b, bias, activation, alpha, out_dtype, tf32: gemm(
        a, b, bias, activation=activation, alpha=alpha, out_dtype=out_dtype, tf32=tf32
    ),
    _gemm_shape,
)


def _keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)
    ctx.wanted = [t is not None and t.requires_grad for t in inputs]


def _linear_gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    (x, weight), (want_x, want_weight, want_bias) = ctx.saved_tensors, ctx.wanted
    product = torch.ops.rocm_guide.gemm
    plain = (None, "none", 1.0, None, False)
    return (
        product(dy, weight, *plain) if want_x else None,
        product(dy.T, x, *plain) if want_weight else None,
        dy.sum(0, dtype=torch.float32).to(dy.dtype) if want_bias else None,
    )


define(
    "linear",
    "(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    lambda x, weight, bias: gemm(x, weight.T, bias),
    lambda x, weight, bias: x.new_empty((x.shape[0], weight.shape[0])),
    keep=_keep_linear,
    backward=_linear_gradients,
)
define(
    "gemm_skinny",
    "(Tensor x, Tensor weight, float scale_x, float scale_w, ScalarType? out_dtype) -> Tensor",
    lambda x, weight, scale_x, scale_w, out_dtype: gemm_skinny(x, weight, scale_x, scale_w, out_dtype=out_dtype),
    lambda x, weight, scale_x, scale_w, out_dtype: x.new_empty(
        (x.shape[0], weight.shape[0]), dtype=out_dtype or torch.bfloat16
    ),
)
define(
    "attention_decode",
    "(Tensor q, Tensor k, Tensor v, Tensor? lengths, float? scale, int? parts) -> Tensor",
    lambda q, k, v, lengths, scale, parts: attention_decode(q, k, v, lengths=lengths, scale=scale, parts=parts),
    lambda q, *_: _new(q),
)

#: What follows the tensors of both attention operators, and its names.
_OPTIONS = "str layout, float? scale, bool causal, float dropout, int seed, int? max_seqlen_q, int? max_seqlen_k"
_NAMES = ("layout", "scale", "causal", "dropout", "seed", "max_seqlen_q", "max_seqlen_k")
_TENSORS = ("bias", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k")


def _attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return attention_forward(q, k, v, **dict(zip((*_TENSORS, *_NAMES), rest, strict=True)))


def _attention_shapes(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    layout = rest[len(_TENSORS)]
    sizes = {"bhsd": (0, 1, 2), "bshd": (0, 2, 1), "thd": (1, 0)}[layout]
    return _new(q), q.new_empty([q.shape[i] for i in sizes], dtype=torch.float32)


def _attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, wanted: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    options = dict(zip((*_TENSORS, *_NAMES), rest, strict=True))
    *gradients, d_bias = attention_backward(do, q, k, v, out, lse, bias_gradient=wanted, **options)
    bias = options["bias"]
    if d_bias is not None and bias is not None:
        d_bias = d_bias.sum_to_size(bias.shape).to(bias.dtype)  # what was broadcast is summed
    return (*gradients, _or_empty(q, d_bias))


def _keep_attention(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, *rest = inputs
    ctx.save_for_backward(q, k, v, *output, *rest[: len(_TENSORS)])
    ctx.options = rest[len(_TENSORS) :]
    ctx.wanted = rest[0] is not None and rest[0].requires_grad


def _attention_gradients(ctx: Any, do: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    backward = torch.ops.rocm_guide.attention_backward
    dq, dk, dv, d_bias = backward(do, q, k, v, out, lse, ctx.wanted, *tensors, *ctx.options)
    return dq, dk, dv, d_bias if ctx.wanted else None, *[None] * (len(_TENSORS) - 1 + len(_NAMES))


_MASKS = "Tensor? bias, Tensor? alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
define(
    "attention_forward",
    f"(Tensor q, Tensor k, Tensor v, {_MASKS}, {_OPTIONS}) -> (Tensor, Tensor)",
    _attention,
    _attention_shapes,
    keep=_keep_attention,
    backward=_attention_gradients,
)
define(
    "attention_backward",
    f"(Tensor do, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool wanted, {_MASKS}, {_OPTIONS})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_backward,
    lambda do, q, k, v, out, lse, wanted, bias, *rest: (
        *map(_new, (q, k, v)), _new(bias) if wanted else q.new_empty(0)
    ),
)  # fmt: skip
