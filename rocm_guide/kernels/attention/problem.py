# SPDX-License-Identifier: MIT
"""The arguments of the attention kernels, checked once and brought into one form for forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_guide.kernels.arguments import (
    KernelError,
    check_dtype,
    check_number,
    check_same_device,
    check_shape,
    next_power_of_2,
)

if TYPE_CHECKING:
    import torch

__all__ = []

_LAYOUTS = ("bhsd", "bshd", "thd")
_FLOATS = ("float16", "bfloat16", "float32")
_STARTS = ("cu_seqlens_q", "cu_seqlens_k")


@dataclass(frozen=True)
class AttentionProblem:
    """What a kernel needs to know beside the pointers.

    Attributes:
        q, k, v: views (batch, heads, rows, D); packed sequences are a batch of one.
        sizes: (sequences, query heads, query heads per KV head, most queries, most keys).
        d: the head size.
        scale: factor of the products, log2(e) not included.
        causal: aligned to the bottom right.
        bias: None or a view (batch, heads, queries, keys), broadcast by strides of 0.
        slopes: None or ALiBi's (sequences, heads) in fp32.
        cu: None or the two int32 arrays of sequence starts.
        drop: None or (threshold of 24 bits, seed, 1 / (1 - probability)).
        layout: how the caller gave q, k and v.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    sizes: tuple[int, int, int, int, int]
    d: int
    scale: float
    causal: bool
    bias: torch.Tensor | None
    slopes: torch.Tensor | None
    cu: tuple[torch.Tensor, torch.Tensor] | None
    drop: tuple[int, int, float] | None
    layout: str

    @property
    def columns(self) -> int:
        """The head size as a tile holds it: a power of two, at least 16, or 32 for NVIDIA's products of 8 bits."""
        return max(32 if self.q.element_size() == 1 else 16, next_power_of_2(self.d))

    @property
    def extras(self) -> tuple[Any, ...]:
        """bias, slopes, sequence starts and the strides of bias, as the kernels take them."""
        return self.bias, self.slopes, self.cu, None if self.bias is None else self.bias.stride()

    @property
    def operations(self) -> int:
        """Of the forward pass's two products; half of it where causal."""
        sequences, heads, _, max_q, max_k = self.sizes
        return 4 * sequences * heads * max_q * max_k * self.d

    @property
    def launch_sizes(self) -> tuple[int, int, int, int, int]:
        """``sizes`` as the kernels take them, with both lengths doubled.

        Triton compiles an argument of 1 in as a constant, and with a constant length its pipeliner fails and ptxas
        crashes (seen with 3.6 for sm_90). No doubled length is 1.
        """
        return (*self.sizes[:3], 2 * self.sizes[3], 2 * self.sizes[4])

    def output(self, rows: int, heads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of a tensor in the caller's layout, and the strides of its (batch, heads, rows, D) view."""
        batch, d = self.q.shape[0], self.d
        if self.layout == "bhsd":
            return (batch, heads, rows, d), contiguous_strides((batch, heads, rows, d))
        across, step, head, one = contiguous_strides((batch, rows, heads, d))
        return (batch, rows, heads, d)[self.layout == "thd" :], (across, head, step, one)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a new tensor.

    >>> contiguous_strides((2, 3, 4)), contiguous_strides((2, 0, 4))
    ((12, 4, 1), (4, 4, 1))
    """
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))


def heads_second(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A view (batch, heads, rows, D) of a tensor in ``layout``.

    >>> import torch
    >>> [tuple(heads_second(torch.empty(2, 3, 4, 5)[0] if x == "thd" else torch.empty(2, 3, 4, 5), x).shape)
    ...  for x in ("bhsd", "bshd", "thd")]
    [(2, 3, 4, 5), (2, 4, 3, 5), (1, 4, 3, 5)]
    """
    if layout == "bhsd":
        return x
    return (x if layout == "bshd" else x.unsqueeze(0)).transpose(1, 2)


def dropout_state(p: float, seed: int) -> tuple[int, int, float] | None:
    """Probability and seed as the kernels take them: keep where 24 random bits reach a threshold; None for 0.

    Raises:
        KernelError: a probability outside [0, 1), or a seed that is not a non-negative 63-bit integer.

    >>> dropout_state(0.25, 7)
    (4194304, 7, 1.3333333333333333)
    """
    if not 0 <= check_number("dropout", p) < 1:
        raise KernelError(f"dropout={p}: give a probability from 0 up to, not including, 1")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise KernelError(f"seed={seed!r}: give an integer from 0 to 2**63 - 1")
    threshold = round(p * 2**24)
    return (threshold, seed, 1.0 / (1.0 - threshold / 2**24)) if threshold else None


def is_packed(options: Mapping[str, Any]) -> bool:
    """Whether sequences are packed, so that the starts of each call have to be looked at."""
    return any(options.get(name) is not None for name in _STARTS)


def kind_of(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[int, int, float] | None]:
    """The options of all calls like this one, and dropout's state, which is new in each.

    >>> kind_of({"causal": True}), kind_of({"dropout": 0.25, "seed": 7})
    (({'causal': True}, None), ({'dropout': 0.5}, (4194304, 7, 1.3333333333333333)))
    """
    if "dropout" not in options:
        return options, None
    others = {name: value for name, value in options.items() if name not in ("dropout", "seed")}
    drop = dropout_state(options["dropout"], options.get("seed", 0))
    return (others if drop is None else others | {"dropout": 0.5}), drop


def _longest(name: str, cu: torch.Tensor, rows: int, given: int | None) -> int:
    """The length of the longest sequence. If it is given, the starts on a GPU are not read: that would wait for it."""
    import torch

    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= rows):
        raise KernelError(f"max_seqlen_{name}={given!r}: give the length of the longest sequence, at most {rows}")
    if given is not None and cu.device.type != "cpu":
        return given
    steps = cu[1:] - cu[:-1]
    first, last, least, most = torch.stack([cu[0], cu[-1], steps.min(), steps.max()]).tolist()
    if first < 0 or least < 0 or last > rows:
        raise KernelError(f"cu_seqlens_{name} runs from {first} to {last}: give starts that never fall, up to {rows}")
    if given is not None and given < most:
        raise KernelError(f"max_seqlen_{name}={given}: the longest sequence has {most}")
    return most if given is None else given


def _checked_cu(
    starts: Sequence[Any], longest: tuple[int | None, int | None], q: torch.Tensor, keys: int
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    import torch

    cu_q, cu_k = starts
    if cu_q is None or cu_k is None:
        raise KernelError("layout 'thd' needs cu_seqlens_q and cu_seqlens_k: int32 starts, the last one the total")
    check_dtype("cu_seqlens_q", cu_q, (torch.int32,))
    check_shape("cu_seqlens_q", cu_q, (None,))
    if cu_q.shape[0] < 2:
        raise KernelError(f"cu_seqlens_q has {cu_q.shape[0]} entries: give the starts of all sequences and the total")
    check_dtype("cu_seqlens_k", cu_k, (torch.int32,))
    check_shape("cu_seqlens_k", cu_k, tuple(cu_q.shape))
    check_same_device(q=q, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    most = _longest("q", cu_q, q.shape[2], longest[0]), _longest("k", cu_k, keys, longest[1])
    return (cu_q.contiguous(), cu_k.contiguous()), most


def attention_problem(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    layout: str = "bhsd",
    scale: float | None = None,
    causal: bool = False,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dtypes: Sequence[str] = _FLOATS,
) -> AttentionProblem:
    """Check everything that can be checked without waiting for the GPU. Arguments as in ``attention_forward``.

    Raises:
        KernelError: a shape, type, device, layout or number that the kernels cannot take.
    """
    import torch

    if layout not in _LAYOUTS:
        raise KernelError(f"layout={layout!r}: give one of {', '.join(_LAYOUTS)}")
    dims = 3 if layout == "thd" else 4
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_dtype(name, x, [getattr(torch, d) for d in dtypes])
        check_shape(name, x, (None,) * dims)
        if dtypes is _FLOATS:  # a caller that allows more types checks their combinations itself
            check_dtype(name, x, (q.dtype,))
    check_same_device(q=q, k=k, v=v, bias=bias, alibi_slopes=alibi_slopes)
    q, k, v = (heads_second(x, layout) for x in (q, k, v))
    batch, heads, len_q, d = q.shape
    check_shape("k (batch, heads, keys, head size)", k, (batch, None, None, d))
    check_shape("v (batch, heads, keys, head size)", v, tuple(k.shape))
    kv_heads, len_k = k.shape[1:3]
    if not kv_heads or heads % kv_heads:
        raise KernelError(f"{heads} query heads and {kv_heads} KV heads: the first must be a multiple of the second")
    if not 1 <= d <= 256:
        raise KernelError(f"head size {d}: give 1 to 256")
    for name, x in (("q", q), ("k", k)):
        if d > 1 and x.stride(-1) != 1:
            raise KernelError(f"{name} has stride {x.stride(-1)} along the head size: call .contiguous()")
    if 1 not in (v.stride(-1), v.stride(-2)) and v.numel() > 1:
        raise KernelError("v: neighbours along the head size or along the keys must be neighbours in memory")
    cu, sequences = None, batch
    if layout == "thd":
        cu, (len_q, len_k) = _checked_cu((cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k), q, len_k)
        sequences = cu[0].shape[0] - 1
        if bias is not None:
            raise KernelError("bias with packed sequences: pad them, or use alibi_slopes")
    if bias is not None:
        check_dtype("bias", bias, [getattr(torch, x) for x in _FLOATS])
        try:
            bias = bias.expand(batch, heads, len_q, len_k)
        except RuntimeError as e:
            want = (batch, heads, len_q, len_k)
            raise KernelError(f"bias has shape {tuple(bias.shape)}: give one that broadcasts to {want}") from e
    if alibi_slopes is not None:
        check_dtype("alibi_slopes", alibi_slopes, (torch.float32,))
        if tuple(alibi_slopes.shape) not in ((heads,), (sequences, heads)):
            shape = tuple(alibi_slopes.shape)
            raise KernelError(f"alibi_slopes has shape {shape}: give ({heads},) or ({sequences}, {heads})")
        alibi_slopes = alibi_slopes.expand(sequences, heads).contiguous()
    scale = d**-0.5 if scale is None else check_number("scale", scale)
    if scale <= 0:
        raise KernelError(f"scale={scale}: give a positive number")
    return AttentionProblem(
        q=q,
        k=k,
        v=v,
        sizes=(sequences, heads, heads // kv_heads, len_q, len_k),
        d=d,
        scale=scale,
        causal=bool(causal),
        bias=bias,
        slopes=alibi_slopes,
        cu=cu,
        drop=dropout_state(dropout, seed),
        layout=layout,
    )
