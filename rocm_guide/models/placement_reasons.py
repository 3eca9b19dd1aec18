# SPDX-License-Identifier: MIT
"""Read a device map: why each device holds what it holds, tables, and a strip of layers for each device."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocm_guide.models.placement import Placement

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

__all__ = ["bytes_by_device", "draw_placement", "explain_placement", "memory_table", "runs_of"]


def runs_of(plan: Placement) -> dict[Any, list[str]]:
    """Return what each device holds, neighbours joined: {0: ["embed_tokens", "layers 0-20"], …}.

    >>> from rocm_guide.models.placement import plan_placement
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
    """Return the bytes of parameters and buffers where they are now,
    by device ("cuda:0", "cpu"; "meta" for what is on disk).

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
    """Draw a strip of pieces for every device, its width their gigabytes, one panel for each plan. Notebook 04.

    Each layer is a block; the text at the end of a strip gives its layers and bytes.
    """
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
