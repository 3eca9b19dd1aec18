# SPDX-License-Identifier: MIT
"""Plan a device map: which module of a model goes to which device, for any model and any budgets, without weights.

The planning is Accelerate's own (the functions behind ``device_map="auto"``), run on the meta device. transformers 5
carries a copy of them that gives the same maps, except that a model with tied embeddings may cut one layer later.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

__all__ = [
    "STRATEGIES",
    "Placement",
    "PlacementError",
    "bytes_by_device",
    "draw_placement",
    "explain_placement",
    "memory_table",
    "pieces_of",
    "plan_placement",
    "runs_of",
]

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
        device_map, limits = by_accelerate(model, limits, strategy)
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
            said = f"{name}: {(used or need) / 1e9:.1f} of {need / 1e9:.1f} GB would go to {device!r}"
            fix = f"budgets are {have / 1e9:.1f} GB; {fix}, or add {device!r} to the budgets"
            raise PlacementError(f"{said}, {fix}")
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
        said = f"{name} is one piece of {size / 1e9:.2f} GB and the largest device has {largest / 1e9:.2f} GB"
        raise PlacementError(f"{said}: no map can fit; a smaller type or a larger device can")


def by_accelerate(
    model: torch.nn.Module, budgets: dict[Device, int], strategy: str
) -> tuple[dict[str, Device], dict[Device, int]]:
    """Return the map that Accelerate makes of one of :data:`STRATEGIES`, and the bytes that it allowed each device."""
    from accelerate.utils import get_balanced_memory, infer_auto_device_map

    whole = list(getattr(model, "_no_split_modules", None) or [])
    with _quiet():
        # Accelerate 1.15 stumbles over "disk" when it balances; only GPUs are balanced, so it need not see it.
        limits = {device: size for device, size in budgets.items() if device != "disk"}
        if strategy != "sequential" and any(isinstance(device, int) for device in limits):
            low = strategy == "balanced_low_0"
            limits = get_balanced_memory(model, limits, no_split_module_classes=whole, low_zero=low)
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
    """Return the device of the longest prefix of ``module`` in the map; a split piece counts where it begins."""
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


def runs_of(plan: Placement) -> dict[Any, list[str]]:
    """Return what each device holds, neighbours joined: {0: ["embed_tokens", "layers 0-20"], …}.

    >>> from rocm_guide.models.load import meta_model
    >>> model = meta_model("random:llama-2-7b", num_hidden_layers=4).bfloat16()
    >>> runs_of(plan_placement(model, [12 * 10**8] * 3, "auto"))
    {0: ['embed_tokens', 'layer 0'], 1: ['layers 1-2'], 2: ['layer 3', 'norm', 'rotary_emb', 'lm_head']}
    """
    held: dict[Any, list[str]] = {device: [] for device in plan.budgets}
    for module, _, device in plan.pieces:
        mine = held[device]
        number = re.search(r"\.(\d+)$", module)
        if not number:
            mine.append(module.rpartition(".")[2])
        elif mine and re.fullmatch(rf"layers \d+-{int(number[1]) - 1}", mine[-1]):
            mine[-1] = re.sub(r"\d+$", number[1], mine[-1])
        else:
            mine.append(f"layers {number[1]}-{number[1]}")
    return {device: [re.sub(r"^layers (\d+)-\1$", r"layer \1", name) for name in held[device]] for device in held}


def explain_placement(plan: Placement) -> list[str]:
    """Return one sentence for each device: what it holds, its limit, and why it stopped there. Notebook 04.

    Accelerate fills the devices in order. A balancing strategy first lowers each limit to an even share plus 1.25
    times the largest layer, so that rounding never leaves a layer over; the last device keeps its whole budget.
    GPU 0 (and the CPU) keep room for the largest layer, to bring back what was offloaded.
    Source: Accelerate, ``get_balanced_memory`` and ``infer_auto_device_map``.
    """
    held, used, lines = runs_of(plan), plan.used, []
    largest = max(size for _, size, _ in plan.pieces)
    for position, device in enumerate(plan.budgets):
        what = ", ".join(held[device]) or "nothing"
        text = f"{_label(device)}: {what} ({_gb(used[device])} of {_gb(plan.budgets[device])})"
        limit = plan.limits[device]
        following = _next_piece(plan, device)
        if plan.strategy == "custom":
            text += "; chosen by the rule"
        elif limit < plan.budgets[device]:
            text += f"; limit lowered to {_gb(limit)} to balance"
        if plan.strategy != "custom" and following is not None:
            name, size = following
            reserve = largest if position == 0 or device == "cpu" else 0
            kept = f" beside {_gb(reserve)} kept free for the largest layer" if reserve else ""
            if used[device] + size > limit - reserve:
                text += f"; {name} ({_gb(size)}) would not fit{kept}"
        if not held[device]:
            text += "; the devices before it sufficed" if position else "; left free for the work around the model"
        lines.append(text)
    return lines


def memory_table(rows: Mapping[Any, tuple[int, int]], *, note: Mapping[Any, str] | None = None) -> str:
    """Return a table in the shape of rocm-smi's: one line a device, share of its memory, used and total bytes in MiB.

    >>> print(memory_table({0: (96 * 2**30, 192 * 2**30), "cpu": (2**20, 2**30)}, note={0: "layers 0-39"}))
    ================ Memory of each device ================
    Device   VRAM%   Used (MiB)  Total (MiB)  Holds
    GPU 0      50%       98,304      196,608  layers 0-39
    cpu         0%            1        1,024
    =======================================================
    """
    lines = [f"{'Device':<8}{'VRAM%':>6}{'Used (MiB)':>13}{'Total (MiB)':>13}  Holds"]
    for device, (used, total) in rows.items():
        share = f"{100 * used / total:.0f}%" if total else "-"
        text = (note or {}).get(device, "")
        lines.append(f"{_label(device):<8}{share:>6}{used / 2**20:>13,.0f}{total / 2**20:>13,.0f}  {text}".rstrip())
    width = max(55, *map(len, lines))
    return "\n".join([" Memory of each device ".center(width, "="), *lines, "=" * width])


def bytes_by_device(model: torch.nn.Module) -> dict[str, int]:
    """Return the bytes of parameters and buffers by the device where they are now ("cuda:0", "cpu").

    A model that Accelerate dispatched keeps offloaded weights elsewhere and shows them as "meta".

    >>> import torch
    >>> bytes_by_device(torch.nn.Linear(4, 4, bias=False))
    {'cpu': 64}
    """
    totals: dict[str, int] = {}
    seen: set[int] = set()
    for tensor in [*model.parameters(), *model.buffers()]:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            totals[str(tensor.device)] = totals.get(str(tensor.device), 0) + tensor.numel() * tensor.element_size()
    return totals


def draw_placement(plans: Placement | Sequence[Placement], *, title: str, axes: Any = None) -> list[Axes]:
    """Draw a strip of pieces for every device, a block a layer, its width gigabytes; one panel a plan. Notebook 04."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    from rocm_guide.common.plots import PALETTE, house_style, strip

    plans = [plans] if isinstance(plans, Placement) else list(plans)
    if axes is None:
        house_style()
        rows = sum(len(p.budgets) for p in plans)
        sizes = [len(p.budgets) for p in plans]
        figure = plt.figure(figsize=(7.6, 0.9 + 0.5 * len(plans) + 0.36 * rows))
        axes = figure.subplots(len(plans), 1, squeeze=False, sharex=True, height_ratios=sizes)[:, 0]
    kinds = {"embedding": PALETTE[0], "layers": PALETTE[5], "output": PALETTE[1]}
    for ax, plan in zip(axes, plans, strict=True):
        # The colour of a kind is its place in the list of all, so an empty first strip names every kind.
        blocks = {_label(d): [(kind, 0.0) for kind in kinds] for d in plan.budgets}
        for module, size, device in plan.pieces:
            blocks[_label(device)].append((_kind(module), size / 1e9))
        strip(blocks, x="GB of weights" if plan is plans[-1] else "", title=f"{title}: {plan.strategy}", ax=ax)
        for patch, kind in zip(ax.patches, (k for row in blocks.values() for k, _ in row), strict=True):
            patch.set_facecolor(kinds[kind])
            patch.set_linewidth(0.4)
        for i, (device, names) in enumerate(runs_of(plan).items()):
            layers = ", ".join(n for n in names if n.startswith("layer")) or "no layer"
            label = f"  {layers}, {_gb(plan.used[device])}" if names else "  nothing"
            text = ax.text(plan.used[device] / 1e9, i, label, va="center", fontsize=8)
            text.set_in_layout(False)  # the axis leaves room for it below
        ax.set_xlim(0, 1.45 * max(used for p in plans for used in p.used.values()) / 1e9)
    handles = [Patch(color=colour, label=kind) for kind, colour in kinds.items()]
    axes[0].figure.legend(handles=handles, ncols=3, fontsize=8, loc="outside lower center")
    return list(axes)


def _kind(module: str) -> str:
    if re.search(r"\.\d+$", module):
        return "layers"
    return "embedding" if "embed" in module or "wte" in module else "output"


def _next_piece(plan: Placement, device: Any) -> tuple[str, int] | None:
    """Return the piece after the last one of ``device`` in the order of the forward pass."""
    devices = [d for *_, d in plan.pieces]
    if device not in devices:
        return None
    last = len(devices) - 1 - devices[::-1].index(device)
    return plan.pieces[last + 1][:2] if last + 1 < len(devices) else None


def _label(device: Any) -> str:
    return f"GPU {device}" if isinstance(device, int) else str(device)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
