# SPDX-License-Identifier: MIT
"""Run a model without weights and write down every matrix product it asks BLAS for.

Floating-point tensors live on the meta device (sizes and strides, no numbers, no memory), integers and booleans are
real: so the model's own control flow (generation loops, caches, masks) runs as it is, and 70 billion parameters cost
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError
from rocm_guide.tune.tunableop.attention import sdpa_needs_gemms
from rocm_guide.tune.tunableop.blas_calls import addmm_gemm, bmm_gemm, mm_gemm, mv_gemm, scaled_mm_gemm
from rocm_guide.tune.tunableop.experts import ASSUMED, expert_products
from rocm_guide.tune.tunableop.gemm import Gemm
from rocm_guide.tune.tunableop.matrices import BlasRules, matrix_of, torch_type_name

if TYPE_CHECKING:
    import torch

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
        """Return the untuned file's lines: each product once, in the order of first use.

        >>> Trace().lines()
        []
        """
        return list(dict.fromkeys(call.gemm.line() for call in self.calls))


def _attention(record: Trace, rules: BlasRules) -> Any:
    """Stand in for scaled_dot_product_attention: a fused kernel asks BLAS for nothing, only its result matters."""
    import torch
    from torch.overrides import TorchFunctionMode

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
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

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
        gemm = mv_gemm(mat(a), mat(x), rules)
        note(gemm)
        if gemm is None:
            record.untunable["mv"] = record.untunable.get("mv", 0) + 1

    def scaled(args: Any, kwargs: Any) -> None:
        names = ("a", "b", "scale_a", "scale_b", "bias", "scale_result", "out_dtype")
        call = dict(zip(names, args, strict=False)) | kwargs
        a, b, bias = call["a"], call["b"], call.get("bias")
        out = torch_type_name(call.get("out_dtype") or a.dtype)
        rowwise = all(call[s].numel() == n > 1 for s, n in (("scale_a", a.shape[0]), ("scale_b", b.shape[1])))
        with_bias = None if bias is None else torch_type_name(bias.dtype)
        note(scaled_mm_gemm(mat(a), mat(b), out, rules, rowwise=rowwise, bias=with_bias))

    def grouped(args: Any) -> None:
        products = expert_products(args[0], args[1], rules, mat)
        if products is None:
            record.untunable["_grouped_mm"] = record.untunable.get("_grouped_mm", 0) + 1
            return
        for gemm in products:
            note(gemm)
        if ASSUMED not in record.assumed:
            record.assumed.append(ASSUMED)

    watched: dict[Any, Callable[[Any, Any], None]] = {
        aten.mm: lambda a, k: note(mm_gemm(mat(a[0]), mat(a[1]), rules)),
        aten.addmm: addmm,
        aten.addmm_: lambda a, k: addmm(a, k, in_place=True),
        aten._addmm_activation: addmm,
        aten.bmm: lambda a, k: note(bmm_gemm(mat(a[0]), mat(a[1]), rules)),
        aten.baddbmm: lambda a, k: note(bmm_gemm(mat(a[1]), mat(a[2]), rules)),
        aten.baddbmm_: lambda a, k: note(bmm_gemm(mat(a[1]), mat(a[2]), rules)),
        aten._scaled_mm: scaled,
        aten.mv: lambda a, k: mv(a[0], a[1]),
        aten.addmv: lambda a, k: mv(a[1], a[2]),
        aten._grouped_mm: lambda a, k: grouped(a),
    }
    others = {getattr(aten, n, None) for n in ("_int_mm", "_scaled_grouped_mm", "convolution", "dot")}

    # What chooses a token: its result is a number that nothing in the shapes depends on, so zeros will do.
    chooses = {aten.argmax, aten.argmin, aten.multinomial, aten.topk, aten.sort}
    decides = {aten._local_scalar_dense, aten.is_nonzero, aten.equal}

    def real(t: torch.Tensor) -> torch.Tensor:
        """Give zeros to an integer or boolean without a value: control flow needs numbers to run."""
        plain = not (t.is_floating_point() or t.is_complex())
        return torch.zeros(t.shape, dtype=t.dtype) if plain and t.is_meta else t

    def unknown(t: torch.Tensor) -> torch.Tensor:
        """Mark the zeros that stand for a comparison of numbers that we do not have."""
        out = real(t)
        if not out.is_meta:
            out.made_up = True
        return out

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            packet = func.overloadpacket
            if packet is aten.histc and not args[0].is_floating_point():
                args = (
                    args[0].float(),
                    *args[1:],
                )  # a CPU counts no integers
            if str(packet) == "transformers.grouped_mm_fallback":
                grouped(args)
            elif packet in watched:
                watched[packet](args, kwargs)
            elif packet in others:
                record.untunable[packet.__name__] = record.untunable.get(packet.__name__, 0) + 1
            # Taken apart once: this runs for every operation of a model with eighty layers.
            leaves, spec = tree_flatten((args, kwargs))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            seen = [real(leaves[i]) for i in places]
            if any(t is not leaves[i] for i, t in zip(places, seen, strict=True)):
                for i, t in zip(places, seen, strict=True):
                    leaves[i] = t
                args, kwargs = tree_unflatten(leaves, spec)
            without_weights = any(t.is_meta for t in seen)
            guessed = any(getattr(t, "made_up", False) for t in seen)
            if packet in decides and (without_weights or guessed):
                name = where[-1] if where and where[-1] else "the model"
                raise GuideError(
                    f"{name}: it decides on a value that only real weights give; trace it on a small real model instead"
                )
            if without_weights:
                if func._schema.is_mutable and isinstance(args[0], torch.Tensor) and not args[0].is_meta:
                    return args[0]
                if not all(t.is_meta for t in seen):
                    for i, t in zip(places, seen, strict=True):
                        leaves[i] = t if t.is_meta else t.to("meta")
                    args, kwargs = tree_unflatten(leaves, spec)
                if "device" in kwargs:
                    kwargs["device"] = torch.device("meta")
                mark = real if packet in chooses else unknown
                out = func(*args, **kwargs)
                return mark(out) if isinstance(out, torch.Tensor) else tree_map_only(torch.Tensor, mark, out)
            out = func(*args, **kwargs)
            if isinstance(out, torch.Tensor) and out.is_meta and real(out) is not out:
                out = func(*args, **{**kwargs, "device": torch.device("cpu")})
            if guessed:
                out = tree_map_only(torch.Tensor, unknown, out)
            return out

    return Products()


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
