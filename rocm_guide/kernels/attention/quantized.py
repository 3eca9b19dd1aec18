# SPDX-License-Identifier: MIT
r"""Attention on 8-bit numbers: int8 in the document's three ways, and fp8; the softmax is always in fp32.

- int8 q, k, v with q, k and v scales: the first product is int8 x int8 in int32; p stays in 16 bits and v is converted.
- the same and ``p_scale``: the second product is int8 x int8 too, with p = round(p / p_scale).
- int8 k, v with k and v scales, q in 16 bits: k and v are converted and both products run in the type of q.
- fp8 (e4m3) q, k, v with scales: both products are fp8 x fp8 in fp32, p times a power of two.

A scale belongs to one head of one sequence, so it moves out of both sums: those of q and k into the softmax's own
scale, that of v to the end. Converting int8 to 16 bits is exact. p lies in [0, 1]; before it becomes 8 bits it is
stretched to the type's range by adding to the exponent, and the sum that it is divided by is stretched with it.

Error bounds against exact attention on the dequantised q, k and v, for a row of n keys whose largest probability is
P: int8 p adds at most :math:`n P \max|v| / 127` (each p is off by half a step of P / 127, in the sum too), e4m3 p at
most :math:`2^{-4} \max|v|` (three bits of mantissa). Both are worst cases; errors of both signs cancel in practice.
On Hopper the fp8 scores themselves are less exact: an instruction adds 32 products to the sum so far, and keeps of each
only what lies within 14 bits of the largest (emulated in the tests; an H100 showed the same deviations).

Source: the document's flash-attention.py, "INT8 Quantization Support".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import KernelError, architecture, check_dtype, check_number, check_same_device
from rocm_guide.kernels.attention.forward_launch import plan_forward
from rocm_guide.kernels.attention.problem import attention_problem, is_packed
from rocm_guide.kernels.fp8 import fp8_dtype, fp8_format
from rocm_guide.kernels.launch import planned
from rocm_guide.kernels.tracing import operator

if TYPE_CHECKING:
    import torch

__all__ = ["attention_quantized", "quantize_heads"]

#: Options with which a call can become an operator, and their defaults.
USUAL = {"bias": None, "alibi_slopes": None, "layout": "bhsd", "scale": None, "causal": False}
_FLOATS = ("float16", "bfloat16", "float32")
_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")


def quantize_heads(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(batch, heads, rows, D) -> int8 or fp8 codes of that shape, and one fp32 scale per (batch, head).

    A code times its scale is about the number it stands for.

    The largest value of a head becomes the largest code; int8 rounds to nearest and stays in [-127, 127].

    >>> import torch
    >>> codes, scale = quantize_heads(torch.tensor([[[[1.0, -2.0]]]]), torch.int8)
    >>> codes.tolist(), round(scale.item(), 5)
    ([[[[64, -127]]]], 0.01575)
    """
    import torch

    top = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    size = x.abs().amax((-1, -2), keepdim=True).float().clamp(min=1e-12)
    scaled = x.float() * (top / size)
    codes = scaled.round().clamp(-127, 127) if dtype == torch.int8 else scaled.clamp(-top, top)
    return codes.to(dtype), (size / top)[..., 0, 0].contiguous()


def dequantize_heads(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What the codes of :func:`quantize_heads` stand for, in float64 or ``dtype``."""
    import torch

    return (codes.double() * scale.double()[..., None, None]).to(dtype or torch.float64)


def _p_bits(p_scale: float | None, dtype: torch.dtype, second: torch.dtype) -> float:
    """log2 of the factor on p."""
    import torch

    if p_scale is not None and dtype == torch.int8 and second == torch.int8:
        return -math.log2(check_number("p_scale", p_scale, 1 / 127, 1.0))
    # A power of two, so that the factor itself rounds nothing: 256 of 448 (e4m3fn), 128 of 240 (e4m3fnuz).
    return float(math.floor(math.log2(torch.finfo(second).max))) if second.itemsize == 1 else 0.0


def attention_quantized(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    q_scale: torch.Tensor | None = None,
    p_scale: float | None = None,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp, as ``attention_forward``, from 8-bit q, k and v (or k and v only).

    Args:
        q, k, v: int8 or this GPU's e4m3, of :func:`quantize_heads`; ``q`` may stay in fp16 or bf16 if k and v are int8.
        q_scale, k_scale, v_scale: fp32, (batch, heads) and (batch, KV heads); None for a q that is not quantised.
        p_scale: int8 only: quantise the probabilities too, 1/127 for full range; None keeps them in ``out_dtype``.
        out_dtype: of the output; the type of q if that is not quantised, else fp16.
        options: ``layout``, ``scale``, ``causal``, ``bias``, ``alibi_slopes``, ``dropout``, ``cu_seqlens_q``, …,
            ``schedule`` and ``config``, as for ``attention_forward``.

    Raises:
        KernelError: types that do not belong together, a missing scale, the other GPU's kind of fp8.
    """
    if USUAL.keys() >= options.keys() and (traced := operator("attention_quantized")) is not None:
        out, lse = traced(q, k, v, k_scale, v_scale, q_scale, p_scale, out_dtype, *(USUAL | options).values())
        return out, lse
    bias, slopes = options.pop("bias", None), options.pop("alibi_slopes", None)
    tensors = q, k, v, q_scale, k_scale, v_scale, bias, slopes
    choice = p_scale, out_dtype, tuple(options), *options.values()
    # A new seed, or starts that have to be looked at, make a plan that serves once.
    once = is_packed(options) or options.get("dropout")
    plan = _plan(*tensors, *choice) if once else planned(_plan, tensors, *choice)
    return plan(*tensors)


def _plan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: torch.Tensor | None,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    bias: torch.Tensor | None,
    slopes: torch.Tensor | None,
    p_scale: float | None,
    out_dtype: torch.dtype | None,
    names: tuple[str, ...],
    *values: Any,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    import torch

    check_same_device(q=q, k=k, v=v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    options = dict(zip(names, values, strict=True))
    choice = {name: options.pop(name) for name in ("schedule", "config") if name in options}
    dtypes = ("int8", *_FP8, *_FLOATS)
    problem = attention_problem(q, k, v, dtypes=dtypes, bias=bias, alibi_slopes=slopes, **options)
    quantised = q.dtype.itemsize == 1
    out_dtype = out_dtype or (torch.float16 if quantised else q.dtype)
    if out_dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise KernelError(f"out_dtype={out_dtype}: give torch.float16, bfloat16 or float32")
    if k.dtype.itemsize != 1 or v.dtype != k.dtype or (quantised and q.dtype != k.dtype):
        raise KernelError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: quantise all three alike, or k and v to int8")
    if k.dtype != torch.int8:
        native = fp8_dtype(fp8_format("e4m3", architecture(q)))
        if not quantised or k.dtype != native:
            raise KernelError(f"q is {q.dtype} and k {k.dtype}: this GPU multiplies {native}, for all of q, k and v")
    if p_scale is not None and (k.dtype != torch.int8 or not quantised):
        raise KernelError("p_scale with unquantised q, or with fp8: it belongs to int8 q, k and v")
    sequences, heads, *_ = problem.sizes
    kv_heads = problem.k.shape[1]
    if q_scale is None and quantised:
        raise KernelError(f"q is {q.dtype} and q_scale is missing: pass what quantize_heads returned")
    ones = torch.ones((), device=q.device) if q_scale is None else q_scale
    spread = []
    for name, scale, count in (
        ("q_scale", ones, heads),
        ("k_scale", k_scale, kv_heads),
        ("v_scale", v_scale, kv_heads),
    ):
        check_dtype(name, scale, (torch.float32,))
        try:
            same = scale.expand(sequences, count).is_contiguous() and scale.shape == (sequences, count)
        except RuntimeError as e:
            raise KernelError(f"{name} has shape {tuple(scale.shape)}: give ({sequences}, {count})") from e
        spread.append(None if same else (sequences, count))
    second = v.dtype if (v.dtype != torch.int8 or p_scale is not None) else out_dtype
    p_bits, device = _p_bits(p_scale, v.dtype, second), q.device
    launch = plan_forward(problem, out_dtype, scaled=True, p_bits=p_bits, math=second, **choice)
    cu, drop = problem.cu, problem.drop

    def run(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_scale: torch.Tensor | None, *rest: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        k_scale, v_scale, bias, slopes = rest
        given = torch.ones((), device=device) if q_scale is None else q_scale, k_scale, v_scale
        scales = [x if to is None else x.expand(to).contiguous() for x, to in zip(given, spread, strict=True)]
        slopes = None if slopes is None else slopes.expand(sequences, heads).contiguous()
        # The kernel takes addresses and the strides of the plan: views of the tensors are not needed.
        return launch((q, k, v), (bias, slopes, cu), tuple(scales), drop)

    return run
