# SPDX-License-Identifier: MIT
"""Plan a device map: which module of a model goes to which device, for any model and any budgets, without weights.

The planning is Accelerate's own (the functions behind ``device_map="auto"``), run on the meta device. transformers 5
carries a copy of them that gives the same maps, except that a model with tied embeddings may cut one layer later.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocm_guide.common.base import GuideError

if TYPE_CHECKING:
    import torch

__all__ = ["STRATEGIES", "Placement", "PlacementError", "pieces_of", "plan_placement"]

#: What ``from_pretrained`` accepts by name. "auto" is the same as "balanced" today; its name leaves room to improve.
STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
Device = int | str
Rule = Callable[[str, int, dict[Device, int]], Device]


class PlacementError(GuideError):
    """A plan that no such devices can hold, or that cannot be understood."""


@dataclass(frozen=True)
class Placement:
    """The place of every piece of a model.

    Attributes:
        strategy: one of :data:`STRATEGIES`, or "custom".
        device_map: as ``from_pretrained(device_map=…)`` and ``dispatch_model`` take it.
        budgets: bytes that each device may hold, as they were given.
        limits: bytes that the strategy allowed each device; lower than the budget where it balances.
        pieces: (module, bytes, device) in the order of the forward pass.
    """

    strategy: str
    device_map: dict[str, Device]
    budgets: dict[Device, int]
    limits: dict[Device, int]
    pieces: tuple[tuple[str, int, Device], ...]

    @property
    def used(self) -> dict[Device, int]:
        """Bytes of weights on each device, empty ones included."""
        totals: dict[Device, int] = dict.fromkeys(self.budgets, 0)
        for _, size, device in self.pieces:
            totals[device] = totals.get(device, 0) + size
        return totals

    @property
    def moves(self) -> int:
        """Return how often a forward pass goes from one device to another."""
        devices = [device for _, size, device in self.pieces if size]
        return sum(a != b for a, b in itertools.pairwise(devices))


def pieces_of(model: torch.nn.Module) -> list[tuple[str, int]]:
    """Return (name, bytes) of the modules that are placed whole, in the order of the forward pass.

    A decoder layer is one piece: its residual connections would otherwise cross devices. A weight that two modules
    share counts once, at the first.

    >>> from rocm_guide.models.load import meta_model
    >>> pieces = pieces_of(meta_model("random:llama-2-7b", num_hidden_layers=2))
    >>> [name for name, size in pieces]
    ['model.embed_tokens', 'model.layers.0', 'model.layers.1', 'model.norm', 'model.rotary_emb', 'lm_head']
    """
    whole = set(getattr(model, "_no_split_modules", None) or [])
    seen: set[int] = set()

    def walk(name: str, module: torch.nn.Module) -> Iterator[tuple[str, int]]:
        children = list(module.named_children())
        if not children or type(module).__name__ in whole:
            tensors = [t for t in [*module.parameters(), *module.buffers()] if id(t) not in seen]
            seen.update(id(t) for t in tensors)
            yield name, sum(t.numel() * t.element_size() for t in tensors)
            return
        for child, inner in children:
            yield from walk(f"{name}.{child}" if name else child, inner)

    return list(walk("", model))


def plan_placement(
    model: torch.nn.Module,
    budgets: Mapping[Device, int] | Sequence[int],
    strategy: str | Rule | Mapping[str, Device] = "auto",
) -> Placement:
    """Plan where each piece of ``model`` goes.

    Args:
        model: usually on the meta device (:func:`rocm_guide.models.load.meta_model`), in the type it will be loaded in.
        budgets: bytes for each device: a sequence for GPUs 0, 1, …, or a mapping such as ``{0: …, "cpu": …}``. What
            does not fit the GPUs may go to "cpu" and "disk" only if these are named. Never changed.
        strategy: one of :data:`STRATEGIES`; a device map; or a rule ``(name, bytes, free) -> device``, called for each
            piece in order with the bytes still free on each device.

    Raises:
        PlacementError: no device, a negative budget, an unknown strategy, a layer larger than any device, or a model
            larger than all of them.

    >>> from rocm_guide.models.load import meta_model
    >>> model = meta_model("random:llama-2-70b").bfloat16()
    >>> plan = plan_placement(model, [192 * 10**9] * 4, "auto")
    >>> {device: round(used / 1e9, 1) for device, used in plan.used.items()}
    {0: 34.8, 1: 35.9, 2: 35.9, 3: 31.3}
    """
    limits = _checked(budgets)
    given = dict(limits)
    pieces = pieces_of(model)
    _check_room(pieces, given)
    if isinstance(strategy, str) and strategy in STRATEGIES:
        name = strategy
        device_map, limits = _by_accelerate(model, limits, strategy)
    elif isinstance(strategy, str):
        raise PlacementError(f"strategy={strategy!r}: choose one of {', '.join(STRATEGIES)}, or give a rule or a map")
    else:
        name = "custom"
        device_map = dict(strategy) if isinstance(strategy, Mapping) else _by_rule(pieces, limits, strategy)
    placed = tuple((module, size, _device_of(module, device_map)) for module, size in pieces)
    plan = Placement(name, device_map, given, limits, placed)
    for device, used in plan.used.items():
        if device not in given:
            need, have = sum(size for _, size in pieces), sum(given.values())
            other = "" if name == "sequential" else ", or take 'sequential', which wastes no room"
            fix = "add devices" if need > have else f"raise the budgets{other}"
            raise PlacementError(
                f"{name}: {(used or need) / 1e9:.1f} of {need / 1e9:.1f} GB would go to {device!r}, budgets are "
                f"{have / 1e9:.1f} GB; {fix}, or add {device!r} to the budgets"
            )
        if name == "custom" and used > given[device]:
            raise PlacementError(f"device {device}: {used / 1e9:.2f} GB placed there, budget {given[device] / 1e9:.2f}")
    return plan


def _checked(budgets: Mapping[Device, int] | Sequence[int]) -> dict[Device, int]:
    """Return a copy, in Accelerate's order: GPUs by number, then cpu, then disk."""
    given: dict[Device, int] = dict(budgets) if isinstance(budgets, Mapping) else {**dict(enumerate(budgets))}
    if not given:
        raise PlacementError("budgets: no device; give at least one, for example [206 * 10**9] for one MI300X")
    for device, size in given.items():
        if not (isinstance(device, int) and device >= 0) and device not in ("cpu", "disk"):
            raise PlacementError(f"device {device!r}: use 0, 1, … for GPUs, 'cpu' or 'disk'")
        if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size < float("inf"):
            raise PlacementError(f"budget of device {device}: {size!r}; give its bytes, 0 or more")
    order = sorted(d for d in given if isinstance(d, int)) + [d for d in ("cpu", "disk") if d in given]
    return {device: int(given[device]) for device in order}


def _check_room(pieces: Sequence[tuple[str, int]], budgets: Mapping[Device, int]) -> None:
    name, size = max(pieces, key=lambda piece: piece[1])
    largest = max(budgets.values())
    if size > largest:
        raise PlacementError(
            f"{name} is one piece of {size / 1e9:.2f} GB and the largest device has {largest / 1e9:.2f} GB: no map can "
            "fit; a smaller type or a larger device can"
        )


def _by_accelerate(
    model: torch.nn.Module, budgets: dict[Device, int], strategy: str
) -> tuple[dict[str, Device], dict[Device, int]]:
    from accelerate.utils import get_balanced_memory, infer_auto_device_map

    whole = list(getattr(model, "_no_split_modules", None) or [])
    with _quiet():
        # Accelerate 1.15 stumbles over "disk" when it balances; only GPUs are balanced, so it need not see it.
        limits = {device: size for device, size in budgets.items() if device != "disk"}
        if strategy != "sequential" and any(isinstance(device, int) for device in limits):
            limits = get_balanced_memory(
                model, limits, no_split_module_classes=whole, low_zero=strategy == "balanced_low_0"
            )
        limits |= {device: size for device, size in budgets.items() if device == "disk"}
        # It adds entries to the dictionary that it is given: hand it a copy.
        found = infer_auto_device_map(model, dict(limits), no_split_module_classes=whole)
    return dict(found), {device: int(limits.get(device, size)) for device, size in budgets.items()}


def _by_rule(pieces: Sequence[tuple[str, int]], budgets: Mapping[Device, int], rule: Rule) -> dict[str, Device]:
    free, chosen = dict(budgets), {}
    for name, size in pieces:
        device = rule(name, size, dict(free))
        if device not in free:
            raise PlacementError(f"the rule sent {name} to {device!r}; the devices are {', '.join(map(str, free))}")
        chosen[name] = device
        free[device] -= size
    return chosen


def _device_of(module: str, device_map: Mapping[str, Device]) -> Device:
    """Return the device of the longest prefix of ``module`` in the map;
    a piece that was split counts where it begins.
    """
    parts = module.split(".")
    for end in range(len(parts), -1, -1):
        if (prefix := ".".join(parts[:end])) in device_map:
            return device_map[prefix]
    inside = [device for name, device in device_map.items() if name.startswith(module + ".")]
    if not inside:
        raise PlacementError(f"{module} is not in the device map; name it, or a module that contains it")
    return inside[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Accelerate's warnings of GPUs that this machine does not have; a plan is for another machine."""
    logger = logging.getLogger("accelerate.utils.modeling")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
