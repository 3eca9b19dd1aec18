# SPDX-License-Identifier: MIT
"""Find the module that makes a model wrong: compare with a version that is right, module by module.

Comparing final outputs says that something is wrong; comparing every layer's output says where the error has already
arrived, and rounding makes even that unclear. The cure is isolation: each module of the suspect is given the very
inputs that it had in the reference. What differs then is its own doing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rocm_guide.common.base import GuideError

__all__ = ["first_difference"]


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
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


def copy_tensors(value: Any, device: Any = None) -> Any:
    """Return a copy of the tensors in a value, so that later changes in place do not reach it, on ``device`` if one is
    given; the rest as it is.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device or value.device)
    if isinstance(value, Mapping):
        return {k: copy_tensors(v, device) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copy_tensors(v, device) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(copy_tensors(v, device) for v in value)
    return value


def _run(model: Any, inputs: Mapping[str, Any] | Sequence[Any]) -> Any:
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
    """Run a model in evaluation mode and keep every module's inputs and outputs, in the order in which calls ended.

    A module therefore comes behind everything that it calls itself. Memory: a copy of all activations.

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


#: Largest |a - b| / largest |a| that another order of summation may cause in one module.
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


@dataclass(frozen=True)
class Difference:
    """The first module that is wrong by itself.

    Attributes:
        path, cls: the module.
        kind: "value", "nan", "dtype", "shape" or "error" (it raised; ``detail`` says what).
        relative: largest |suspect - reference| / largest |reference|; ``allowed`` is the tolerance it broke.
        parameters: its own parameters and buffers that differ: name -> what is different.
        checked: how many calls were compared until then.
    """

    path: str
    cls: str
    kind: str
    relative: float
    allowed: float
    detail: str
    parameters: dict[str, str] = field(default_factory=dict)
    checked: int = 0

    def __str__(self) -> str:
        line = f"{self.path or 'the model itself'} ({self.cls}): {self.detail}"
        for name, what in self.parameters.items():
            line += f"\n  its {name}: {what}"
        return line


def _distance(want: Any, got: Any, tolerance: float | None) -> tuple[str, float, float, str] | None:
    """Return (kind, relative, allowed, detail) of the first tensor that differs; None if all agree."""
    wanted, gotten = tensors_of(want), tensors_of(got)
    if len(wanted) != len(gotten):
        return "shape", float("inf"), 0.0, f"returns {len(gotten)} tensors, the reference {len(wanted)}"
    for a, b in zip(wanted, gotten, strict=True):
        if a.shape != b.shape:
            return "shape", float("inf"), 0.0, f"returns shape {tuple(b.shape)}, the reference {tuple(a.shape)}"
        if a.dtype != b.dtype:
            return "dtype", float("inf"), 0.0, f"returns {b.dtype}, the reference {a.dtype}"
        if not a.numel():
            continue
        name = str(a.dtype).removeprefix("torch.")
        if not a.is_floating_point():
            if bool((a != b.to(a.device)).any()):
                return "value", float("inf"), 0.0, "returns other integers than the reference"
            continue
        allowed = tolerance if tolerance is not None else TOLERANCE.get(name, 4e-2)
        x, y = a.double(), b.to(a.device).double()
        new = (~y.isfinite() & x.isfinite()).sum().item()
        if new:
            detail = f"{new} of {a.numel()} values are not finite, in the reference they are"
            return "nan", float("inf"), allowed, detail
        # Infinities that are meant, as in a mask, are values like any other.
        lost = (~x.isfinite() & ~((x == y) | (x.isnan() & y.isnan()))).sum().item()
        if lost:
            detail = f"{lost} of {a.numel()} values are not finite in the reference, and something else here"
            return "value", float("inf"), allowed, detail
        both = x.isfinite() & y.isfinite()
        largest = x[both].abs().max().item() if bool(both.any()) else 0.0
        error = (x - y)[both].abs().max().item() if bool(both.any()) else 0.0
        relative = error / largest if largest else (0.0 if error == 0 else float("inf"))
        if relative > allowed:
            return "value", relative, allowed, f"differs by {relative:.2g} of the largest value (allowed {allowed:.2g})"
    return None


def _parameters(reference: Any, suspect: Any) -> dict[str, str]:
    """Return what is different in a module's own parameters and buffers."""
    found = {}
    a, b = (dict([*m.named_parameters(recurse=False), *m.named_buffers(recurse=False)]) for m in (reference, suspect))
    for name in {**a, **b}:
        x, y = a.get(name), b.get(name)
        if x is None or y is None:
            found[name] = "missing in the suspect" if y is None else "only in the suspect"
        elif x.shape != y.shape or x.dtype != y.dtype:
            found[name] = f"{tuple(y.shape)} {y.dtype}, in the reference {tuple(x.shape)} {x.dtype}"
        else:
            unequal = (x != y.to(x.device)).sum().item()
            if unequal:
                nans = (~y.isfinite()).sum().item() if y.is_floating_point() else 0
                found[name] = f"{unequal} of {x.numel()} values differ" + (f", {nans} not finite" if nans else "")
    return found


def first_difference(
    reference: Any, suspect: Any, inputs: Mapping[str, Any] | Sequence[Any], *, tolerance: float | None = None
) -> Difference | None:
    """Return the first module of ``suspect`` that, given the reference's inputs, does not give the reference's outputs.

    Args:
        reference: the model that is right: the same weights with plain kernels, another release, another device.
        suspect: the model that is wrong; modules are matched by path. May be on another device.
        inputs: for both models, keyword arguments or positional ones.
        tolerance: largest allowed |a - b| / largest |a| per module; by default from the dtype of the output.

    Returns:
        None when no module differs for these inputs: a fault that they do not reach cannot show. A parent is named only
        if none of the modules inside it is to blame.

    Raises:
        GuideError: dropout is active.

    >>> import copy, torch
    >>> _ = torch.manual_seed(0)
    >>> right = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    >>> wrong = copy.deepcopy(right)
    >>> with torch.no_grad():
    ...     wrong[0].weight[1, 3] += 0.5
    >>> found = first_difference(right, wrong, [torch.ones(1, 4)])
    >>> found.path, found.kind, found.parameters
    ('0', 'value', {'weight': '1 of 16 values differ'})
    """
    calls = capture_calls(reference, inputs)
    theirs = dict(reference.named_modules())
    ours = dict(suspect.named_modules())
    device = next((p.device for p in suspect.parameters()), None)
    checked = 0
    for call in calls:
        if call.path not in ours:
            continue  # replaced by something else: its parent will be compared
        checked += 1
        module = ours[call.path]
        try:
            with torch.no_grad():
                output = module(*copy_tensors(call.args, device), **copy_tensors(call.kwargs, device))
        except Exception as e:  # noqa: BLE001 - whatever the module raises is the finding
            found: tuple[str, float, float, str] | None = "error", float("inf"), 0.0, f"raises {type(e).__name__}: {e}"
        else:
            found = _distance(call.output, output, tolerance)
        if found:
            kind, relative, allowed, detail = found
            changed = _parameters(theirs[call.path], module)
            return Difference(call.path, type(module).__name__, kind, relative, allowed, detail, changed, checked)
    return None
