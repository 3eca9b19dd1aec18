# SPDX-License-Identifier: MIT
"""Run a model without weights and write down every matrix product it asks BLAS for.

Floating-point tensors live on the meta device (sizes and strides, no numbers, no memory), integers and booleans are
real: so the model's own control flow (generation loops, caches, masks) runs as it is, and 70 billion parameters cost
nothing.

transformers computes the experts of a layer as one grouped product. Where a fused kernel does that, TunableOp never
sees it. Where there is none, PyTorch's fallback (``aten::_grouped_mm`` without a kernel for the GPU) and transformers'
eager loop ask for one ordinary product an expert, and that is what is recorded here. Which expert gets how many tokens
is known only with real weights; we take the even spread that training with a balancing loss aims at (Shazeer et al.,
arXiv:1701.06538, section 4; Fedus et al., arXiv:2101.03961, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from rocm_guide.models.described import without_weights
from rocm_guide.tune.tunableop.blas_calls import (
    BlasRules,
    addmm_gemm,
    bmm_gemm,
    matrix_of,
    mm_gemm,
    mv_gemm,
    scaled_mm_gemm,
    torch_type_name,
)
from rocm_guide.tune.tunableop.gemm import Gemm

__all__ = ["record_gemms"]


@dataclass(frozen=True, slots=True)
class RecordedGemm:
    """One product: what BLAS gets, which module asked (``model.layers.0.mlp.up_proj``), in which forward pass."""

    gemm: Gemm
    module: str
    step: int


@dataclass(slots=True)
class Trace:
    """Everything recorded: ``calls`` in order; ``untunable`` counts products that TunableOp never sees, by name.

    ``assumed`` says in words what was taken for granted where a product depends on the weights (experts).
    """

    calls: list[RecordedGemm] = field(default_factory=list)
    untunable: dict[str, int] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    step: int = -1

    def lines(self) -> list[str]:
        """Return the untuned file's lines: each product once, in the order of first use."""
        return list(dict.fromkeys(call.gemm.line() for call in self.calls))


def sdpa_needs_gemms(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    causal: bool,
    gqa: bool,
    cudnn: bool = False,
) -> bool:
    """Return whether ``scaled_dot_product_attention`` falls back to matrix products, with no fused kernel to run.

    The rules are those of PyTorch's CUDA and ROCm back ends: FlashAttention takes 16-bit types without a mask and
    head sizes to 256; the memory-efficient kernel also takes float32 and masks, but no grouped heads; cuDNN (NVIDIA
    only) takes 16-bit types with masks and grouped heads if the head size is a multiple of 8.

    >>> import torch
    >>> q, kv = torch.empty(1, 8, 4, 64, device="meta"), torch.empty(1, 2, 4, 64, device="meta")
    >>> sdpa_needs_gemms(q, kv, kv, None, causal=True, gqa=True)  # float32 with grouped heads: no fused kernel
    True
    >>> sdpa_needs_gemms(q.half(), kv.half(), kv.half(), None, causal=True, gqa=True)
    False
    """
    half = str(query.dtype) in ("torch.float16", "torch.bfloat16")
    head, same_head = query.shape[-1], query.shape[-1] == key.shape[-1] == value.shape[-1]
    square = query.shape[-2] == key.shape[-2]
    flash = half and mask is None and same_head and head <= 256 and (square or not causal)
    aligned = all(t.shape[-1] % (8 if half else 4) == 0 for t in (query, key, value))
    grouped = gqa and query.shape[1] != key.shape[1]
    both = mask is not None and causal
    efficient = (half or str(query.dtype) == "torch.float32") and aligned and not grouped and not both
    return not (flash or efficient or (cudnn and half and aligned and head <= 256 and not both))


#: The words that a plan with experts says about itself.
ASSUMED = (
    "experts: each token's top-k experts, all experts chosen equally often, one product for each expert that gets "
    "tokens; a fused grouped kernel is outside TunableOp"
)


def even_rows(rows: int, experts: int) -> list[int]:
    """Return how many of ``rows`` each expert gets that gets any, when they are spread as evenly as possible.

    >>> even_rows(10, 4), even_rows(2, 8)
    ([3, 3, 2, 2], [1, 1])
    """
    less, more = divmod(rows, experts)
    return [n for n in [less + 1] * more + [less] * (experts - more) if n]


def expert_products(rows: torch.Tensor, weights: torch.Tensor, mat: Callable[[torch.Tensor], Any]) -> list[Gemm] | None:
    """Return the products of ``rows`` [S, in] with experts' ``weights`` [experts, in, out]; None for other groupings.

    >>> import torch
    >>> rows, weights = (torch.empty(*s, device="meta", dtype=torch.bfloat16) for s in ((6, 64), (4, 128, 64)))
    >>> found = expert_products(rows, weights.transpose(1, 2), matrix_of)
    >>> [g.params for g in found]
    ['tn_128_2_64_ld_64_64_128', 'tn_128_2_64_ld_64_64_128', 'tn_128_1_64_ld_64_64_128', 'tn_128_1_64_ld_64_64_128']
    """
    if rows.dim() != 2 or weights.dim() != 3:
        return None
    one = mat(weights[0])
    made = {n: mm_gemm(mat(rows[:n]), one) for n in set(even_rows(len(rows), len(weights)))}
    return [gemm for n in even_rows(len(rows), len(weights)) if (gemm := made[n]) is not None]


def _attention(record: Trace, rules: BlasRules) -> Any:
    """Stand in for scaled_dot_product_attention: a fused kernel asks BLAS for nothing, only its result matters."""
    sdpa = torch.nn.functional.scaled_dot_product_attention

    class Attention(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is not sdpa:
                return func(*args, **kwargs)
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            call = dict(zip(names, args, strict=False)) | kwargs
            q, k, v = call["query"], call["key"], call["value"]
            mask, causal, gqa = call.get("attn_mask"), call.get("is_causal", False), call.get("enable_gqa", False)
            if sdpa_needs_gemms(q, k, v, mask, causal=causal, gqa=gqa, cudnn=rules.cudnn_attention):
                return torch.ops.aten._scaled_dot_product_attention_math(
                    q, k, v, mask, call.get("dropout_p", 0.0), causal, scale=call.get("scale"), enable_gqa=gqa
                )[0]
            if q.is_meta:
                batch, heads, rows, _ = q.shape
                return q.new_empty(batch, rows, heads, v.shape[-1]).transpose(1, 2)
            # Real tensors get their real result; what this machine's kernel asks for on the way is its own affair.
            calls, others = len(record.calls), dict(record.untunable)
            out = func(*args, **kwargs)
            del record.calls[calls:]
            record.untunable = others
            return out

    return Attention()


def _dispatcher(record: Trace, rules: BlasRules, where: list[str]) -> Any:
    aten = torch.ops.aten

    def note(gemm: Gemm | None) -> None:
        if gemm is not None:
            record.calls.append(RecordedGemm(gemm, where[-1] if where else "", record.step))

    def mat(t: torch.Tensor) -> Any:
        return matrix_of(t, rules)

    def addmm(args: Any, kwargs: Any, in_place: bool = False) -> None:
        bias, a, b = args[:3]
        note(addmm_gemm(mat(bias), mat(a), mat(b), rules, beta=float(kwargs.get("beta", 1)), in_place=in_place))

    def mv(a: torch.Tensor, x: torch.Tensor) -> None:
        gemm = mv_gemm(mat(a), mat(x))
        note(gemm)
        if gemm is None:
            record.untunable["mv"] = record.untunable.get("mv", 0) + 1

    def scaled(args: Any, kwargs: Any) -> None:
        names = ("a", "b", "scale_a", "scale_b", "bias", "scale_result", "out_dtype")
        call = dict(zip(names, args, strict=False)) | kwargs
        a, b, bias = call["a"], call["b"], call.get("bias")
        scales, sizes = (call["scale_a"], call["scale_b"]), (a.shape[0], b.shape[1])
        # One scale each is PyTorch's first choice; a single row has one too, beside a weight with one a column.
        rowwise = any(s.numel() > 1 for s in scales) and all(
            s.dtype == torch.float32 and s.numel() == n for s, n in zip(scales, sizes, strict=True)
        )
        note_scaled(a, b, call.get("out_dtype") or a.dtype, bias, rowwise)

    def scaled_v2(args: Any, kwargs: Any) -> None:
        names = ("a", "b", "scale_a", "recipe_a", "swizzle_a", "scale_b", "recipe_b", "swizzle_b", "bias", "out_dtype")
        call = dict(zip(names, args, strict=False)) | kwargs
        row = int(torch.nn.functional.ScalingType.RowWise.value)
        rowwise = all([int(getattr(r, "value", r)) for r in call[k]] == [row] for k in ("recipe_a", "recipe_b"))
        note_scaled(call["a"], call["b"], call.get("out_dtype") or call["a"].dtype, call.get("bias"), rowwise)

    def note_scaled(a: torch.Tensor, b: torch.Tensor, out: Any, bias: torch.Tensor | None, rowwise: bool) -> None:
        with_bias = None if bias is None else torch_type_name(bias.dtype)
        note(scaled_mm_gemm(mat(a), mat(b), torch_type_name(out), rules, rowwise=rowwise, bias=with_bias))

    def grouped(args: Any) -> None:
        products = expert_products(args[0], args[1], mat)
        if products is None:
            record.untunable["_grouped_mm"] = record.untunable.get("_grouped_mm", 0) + 1
            return
        for gemm in products:
            note(gemm)
        if ASSUMED not in record.assumed:
            record.assumed.append(ASSUMED)

    watched: dict[Any, Callable[[Any, Any], None]] = {
        aten.mm: lambda a, k: note(mm_gemm(mat(a[0]), mat(a[1]))),
        aten.addmm: addmm,
        aten.addmm_: lambda a, k: addmm(a, k, in_place=True),
        aten._addmm_activation: addmm,
        aten.bmm: lambda a, k: note(bmm_gemm(mat(a[0]), mat(a[1]))),
        aten.baddbmm: lambda a, k: note(bmm_gemm(mat(a[1]), mat(a[2]))),
        aten.baddbmm_: lambda a, k: note(bmm_gemm(mat(a[1]), mat(a[2]))),
        aten._scaled_mm: scaled,
        getattr(aten, "_scaled_mm_v2", None): scaled_v2,  # torch.nn.functional.scaled_mm, since torch 2.10
        aten.mv: lambda a, k: mv(a[0], a[1]),
        aten.addmv: lambda a, k: mv(a[1], a[2]),
        aten._grouped_mm: lambda a, k: grouped(a),
    }
    others = {
        getattr(aten, n, None) for n in ("_int_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "convolution", "dot")
    }

    def watch(packet: Any, args: Any, kwargs: Any) -> None:
        if str(packet) == "transformers.grouped_mm_fallback":
            grouped(args)
        elif packet in watched:
            watched[packet](args, kwargs)
        elif packet in others:
            record.untunable[packet.__name__] = record.untunable.get(packet.__name__, 0) + 1

    return without_weights(watch, lambda: where[-1] if where else "")


@contextmanager
def record_gemms(model: torch.nn.Module | None = None, rules: BlasRules | None = None) -> Iterator[Trace]:
    """Record the products of everything that runs inside; each call of ``model`` is one step, counted from 0.

    >>> import torch
    >>> layer = torch.nn.Linear(8, 16, device="meta", dtype=torch.float16)
    >>> with record_gemms(layer) as trace:
    ...     _ = layer(torch.empty(4, 8, device="meta", dtype=torch.float16))
    >>> trace.lines()
    ['GemmAndBiasTunableOp_Half_TN,tn_16_4_8_ld_8_8_16']
    """
    trace, where, rules = Trace(), [], rules or BlasRules()
    hooks = []
    for name, module in model.named_modules() if model is not None else ():
        first = module is model

        def enter(_module: Any, _args: Any, name: str = name, first: bool = first) -> None:
            trace.step += first
            where.append(name)

        def leave(_module: Any, _args: Any, _out: Any) -> None:
            where.pop()

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        with _attention(trace, rules), _dispatcher(trace, rules, where):
            yield trace
    finally:
        for hook in hooks:
            hook.remove()
