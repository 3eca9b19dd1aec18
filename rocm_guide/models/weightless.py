# SPDX-License-Identifier: MIT
"""Run a model that has no weights: every size and stride is there, no number is, and nothing takes memory.

Floating-point tensors live on the meta device, integers and booleans are real: so the model's own control flow
(generation loops, caches, masks, the choice of experts) runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.common.base import GuideError

__all__ = ["reason_of", "without_weights"]


def reason_of(error: BaseException) -> str:
    """Return the kind of an error and the first line that it says.

    >>> reason_of(KeyError("head_dim"))
    "KeyError: 'head_dim'"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def without_weights(watch: Callable[[Any, Any, Any], None] | None = None, where: Callable[[], str] = lambda: "") -> Any:
    """Return a context manager in which a model on the meta device runs.

    Args:
        watch: called with (operation, args, kwargs) before every one of ATen's operations.
        where: the name of the module at work, for the message.

    Raises:
        GuideError: inside, where the model decides on a number that only real weights give.

    >>> import torch
    >>> with without_weights():
    ...     torch.nn.Linear(8, 16, device="meta")(torch.empty(4, 8, device="meta")).argmax(-1).tolist()
    [0, 0, 0, 0]
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

    aten = torch.ops.aten
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

    class Weightless(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            packet = func.overloadpacket
            if packet is aten.histc and not args[0].is_floating_point():
                args = (
                    args[0].float(),
                    *args[1:],
                )  # a CPU counts no integers
            if watch is not None:
                watch(packet, args, kwargs)
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
                name = where() or "the model"
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

    return Weightless()
