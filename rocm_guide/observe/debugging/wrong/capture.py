# SPDX-License-Identifier: MIT
"""Run a model once and keep what went into and came out of every module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

from rocm_guide.common.base import GuideError

__all__ = []


@dataclass
class ModuleCall:
    """One call of one module: what went in and what came out, copied."""

    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a module's output or input, whatever its shape: tuples, lists, dictionaries, ModelOutput.

    >>> import torch
    >>> [tuple(t.shape) for t in tensors_of({"a": torch.ones(2), "b": (None, [torch.ones(3)])})]
    [(2,), (3,)]
    """
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


def copy_tensors(value: Any) -> Any:
    """Return a copy of the tensors in a value, so that later changes in place do not reach it; the rest as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {k: copy_tensors(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copy_tensors(v) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(copy_tensors(v) for v in value)
    return value


def _run(model: Any, inputs: Mapping[str, Any] | Sequence[Any]) -> Any:
    import torch

    dropout = [
        n for n, m in model.named_modules() if m.training and getattr(m, "p", 0) and "Dropout" in type(m).__name__
    ]
    if dropout:
        raise GuideError(f"{dropout[0]}: dropout is active, two runs always differ; call model.eval() on both models")
    with torch.no_grad():
        if isinstance(inputs, Mapping):
            more = {}
            # A cache would be filled by the run and then seen by the replay.
            if getattr(getattr(model, "config", None), "use_cache", None) and "use_cache" not in inputs:
                more["use_cache"] = False
            return model(**inputs, **more)
        return model(*inputs)


def capture_calls(model: Any, inputs: Mapping[str, Any] | Sequence[Any]) -> list[ModuleCall]:
    """Run a model and keep every module's inputs and outputs, in the order in which the calls ended.

    A module therefore comes behind everything that it calls itself. Memory: a copy of all activations.

    Args:
        model: a ``torch.nn.Module`` in evaluation mode.
        inputs: keyword arguments, or positional ones.

    Raises:
        GuideError: dropout is active.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> [c.path for c in capture_calls(net, [torch.ones(1, 2)])]
    ['0', '1', '']
    """
    calls: list[ModuleCall] = []
    waiting: list[tuple[Any, Any]] = []

    def before(_: Any, args: Any, kwargs: Any) -> None:
        waiting.append((copy_tensors(args), copy_tensors(kwargs)))

    def after(path: str) -> Any:
        def hook(_: Any, __: Any, ___: Any, output: Any) -> None:
            args, kwargs = waiting.pop()
            calls.append(ModuleCall(path, args, kwargs, copy_tensors(output)))

        return hook

    hooks = []
    try:
        for path, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(module.register_forward_hook(after(path), with_kwargs=True))
        _run(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return calls
