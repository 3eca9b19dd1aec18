# SPDX-License-Identifier: MIT
"""Find where a NaN or an infinity is born, in the forward or in the backward pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rocm_guide.observe.debugging.wrong.compare import tensors_of

__all__ = ["nan_origin"]


@dataclass(frozen=True)
class NanOrigin:
    """The origin of the first value that is not finite.

    Attributes:
        path, cls: the module.
        where: "input" (it was in the model's inputs), "parameter", "forward", "backward" or "loss" (the loss function
            made it, from outputs that are finite).
        detail: one line.
    """

    path: str
    cls: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path or 'the model itself'} ({self.cls}), {self.where}: {self.detail}"


def _bad(value: Any) -> int:
    return sum(int((~t.isfinite()).sum()) for t in tensors_of(value) if t.is_floating_point())


def _bad_inputs(args: Any, kwargs: Mapping[str, Any]) -> int:
    # Infinities alone do not count in what is called a mask: there they are meant.
    masks = {k: v for k, v in kwargs.items() if "mask" in k}
    rest = {k: v for k, v in kwargs.items() if "mask" not in k}
    nans = sum(int(t.isnan().sum()) for t in tensors_of(masks) if t.is_floating_point())
    return _bad(args) + _bad(rest) + nans


def nan_origin(
    model: Any, inputs: Mapping[str, Any] | Sequence[Any], *, loss: Callable[[Any], Any] | None = None
) -> NanOrigin | None:
    """Return the first module whose output is not finite although its inputs are.

    Args:
        inputs: keyword arguments, or positional ones.
        loss: makes a scalar of the model's output; when given, gradients are followed too, backwards. The gradients
            of the parameters are left as they were found.

    Returns:
        None when everything is finite.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> with torch.no_grad():
    ...     _ = net[0].weight.fill_(float("inf"))
    >>> print(nan_origin(net, [torch.ones(1, 2)]))
    0 (Linear), parameter: 4 of the 4 values of weight are not finite
    """
    found: list[NanOrigin] = []
    passed: list[str] = []  # layers that the backward pass has left behind
    hooks: list[Any] = []

    def forward(path: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            bad = 0 if found else _bad(output)
            if not bad or _bad_inputs(args, kwargs):
                return
            cls = type(module).__name__
            for name, p in module.named_parameters(recurse=False):
                if n := _bad(p):
                    text = f"{n} of the {p.numel()} values of {name} are not finite"
                    found.append(NanOrigin(path, cls, "parameter", text))
                    return
            total = sum(t.numel() for t in tensors_of(output))
            found.append(NanOrigin(path, cls, "forward", f"{bad} of {total} outputs are not finite, its inputs are"))

        return hook

    def backward(path: str) -> Any:
        def hook(module: Any, grad_in: Any, grad_out: Any) -> None:
            if found:
                return
            if _bad(grad_out):
                # No layer made it: it was born in the code between this layer and the one before.
                parent = _common(path, passed[-1] if passed else "")
                text = f"its own code: what arrives at {path} is not finite, what left the layer before it is"
                found.append(NanOrigin(parent, type(model.get_submodule(parent)).__name__, "backward", text))
            elif _bad(grad_in):
                text = f"{_bad(grad_in)} gradients of its inputs are not finite, those of its outputs are"
                found.append(NanOrigin(path, type(module).__name__, "backward", text))
            passed.append(path)

        return hook

    def from_loss(what: str) -> None:
        if not found:
            text = f"{what} not finite, although every output of the model is"
            found.append(NanOrigin("", type(model).__name__, "loss", text))

    kept = [(p, p.grad) for p in model.parameters()] if loss else []
    given = inputs if isinstance(inputs, Mapping) else {str(i): v for i, v in enumerate(inputs)}
    for name, value in given.items():
        if n := _bad_inputs((), {name: value}):
            return NanOrigin("", type(model).__name__, "input", f"{n} values of input {name} are not finite")
    try:
        for path, module in model.named_modules():
            hooks.append(module.register_forward_hook(forward(path), with_kwargs=True))
            if loss and not any(True for _ in module.children()):
                hooks.append(module.register_full_backward_hook(backward(path)))
        with torch.set_grad_enabled(loss is not None):
            output = model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)
            if loss and not found:
                for p, _ in kept:
                    p.grad = None
                with warnings.catch_warnings():
                    # A layer whose input needs no gradient is watched through its output; nothing to tell.
                    warnings.filterwarnings("ignore", message="Full backward hook is firing")
                    for tensor in tensors_of(output):
                        if tensor.requires_grad:
                            message = "the gradient that the loss sends back is"
                            tensor.register_hook(lambda grad, m=message: from_loss(m) if _bad(grad) else None)
                    value = loss(output)
                    if _bad(value):
                        from_loss("the loss is")
                    value.backward()
                if not found:
                    _from_gradients(model, found)
    finally:
        for hook in hooks:
            hook.remove()
        for p, grad in kept:
            p.grad = grad
    return found[0] if found else None


def _common(one: str, other: str) -> str:
    inside = []
    for a, b in zip(one.split(".")[:-1], other.split(".")[:-1], strict=False):
        if a != b:
            break
        inside.append(a)
    return ".".join(inside)


def _from_gradients(model: Any, found: list[NanOrigin]) -> None:
    """Find a module whose weights' gradient overflows although all that flows through it is finite."""
    for path, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            if p.grad is not None and (n := _bad(p.grad)):
                text = f"{n} of the {p.numel()} gradients of {name} are not finite"
                found.append(NanOrigin(path, type(module).__name__, "backward", text))
                return
