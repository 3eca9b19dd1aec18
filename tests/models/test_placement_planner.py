# SPDX-License-Identifier: MIT
"""Device maps: equal to Accelerate's and transformers' own, budgets kept, errors that name the fix."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from rocm_guide.models.load import meta_model
from rocm_guide.models.placement import (
    STRATEGIES,
    PlacementError,
    bytes_by_device,
    draw_placement,
    explain_placement,
    memory_table,
    pieces_of,
    plan_placement,
    runs_of,
)

GB = 10**9


def model_of(name: str, layers: int | None = None):
    changes = {"num_hidden_layers": layers} if layers else {}
    return meta_model(f"random:{name}", **changes).bfloat16()


def accelerates_own(model, budgets: dict, strategy: str) -> dict:
    from accelerate.utils import get_balanced_memory, infer_auto_device_map

    whole = list(model._no_split_modules)
    limits = dict(budgets)
    if strategy != "sequential":
        disk = limits.pop("disk", None)  # Accelerate 1.15 raises on it
        limits = get_balanced_memory(model, limits, whole, low_zero=strategy == "balanced_low_0")
        limits |= {"disk": disk} if disk else {}
    return dict(infer_auto_device_map(model, limits, whole))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        ("llama-2-70b", dict.fromkeys(range(4), 192 * GB)),
        ("llama-3.1-405b", dict.fromkeys(range(8), 192 * GB)),
        ("llama-2-7b", {0: 6 * GB, 1: 12 * GB}),
        ("llama-2-7b", {0: 4 * GB, 1: 4 * GB, "cpu": 20 * GB}),
        ("llama-2-7b", {0: 4 * GB, "cpu": 4 * GB, "disk": 40 * GB}),
        ("gemma-2b", {0: 3 * GB, 1: 3 * GB, 2: 3 * GB}),
        ("opt-1.3b", {0: 2 * GB, 1: 2 * GB}),
    ],
)
def test_maps_equal_accelerates_own(name: str, budgets: dict, strategy: str) -> None:
    from transformers.integrations.accelerate import _get_device_map

    model = model_of(name)
    before = dict(budgets)
    own = accelerates_own(model, budgets, strategy)
    if not set(own.values()) <= set(budgets):  # Accelerate would write to a disk that nobody offered
        with pytest.raises(PlacementError, match="would go to 'disk'"):
            plan_placement(model, budgets, strategy)
        return
    plan = plan_placement(model, budgets, strategy)
    assert budgets == before, "the caller's budgets must not change"
    assert plan.device_map == own
    if not model.config.tie_word_embeddings and "disk" not in budgets:
        assert plan.device_map == dict(_get_device_map(model, strategy, dict(budgets), None))


@pytest.mark.parametrize("seed", range(12))
def test_maps_equal_accelerates_own_for_random_budgets(seed: int) -> None:
    dice = random.Random(seed)
    model = model_of("llama-3-8b", layers=dice.randint(2, 12))
    size = sum(bytes_ for _, bytes_ in pieces_of(model))
    budgets = {i: int(size * dice.uniform(0.4, 1.2)) for i in range(dice.randint(2, 5))} | {"cpu": 4 * size}
    for strategy in STRATEGIES:
        plan = plan_placement(model, budgets, strategy)
        assert plan.device_map == accelerates_own(model, budgets, strategy)
        assert all(used <= budgets[device] for device, used in plan.used.items())
        assert sum(plan.used.values()) == size


def test_pieces_add_up_and_count_shared_weights_once() -> None:
    for name in ("llama-2-7b", "gemma-2b", "gpt2"):
        model = model_of(name)
        tensors = {id(t): t for t in [*model.parameters(), *model.buffers()]}
        assert sum(size for _, size in pieces_of(model)) == sum(t.numel() * t.element_size() for t in tensors.values())


def test_worked_example_70b() -> None:
    model = model_of("llama-2-70b")
    used = {s: plan_placement(model, [192 * GB] * 4, s).used for s in STRATEGIES}
    assert used["auto"] == used["balanced"] and max(used["auto"].values()) < 37 * GB
    assert used["balanced_low_0"][0] == 0
    assert used["sequential"][0] == sum(used["auto"].values()) and used["sequential"][1] == 0


def test_the_70b_that_was_loaded_lies_where_it_was_planned_and_the_notebook_quotes_it() -> None:
    root = Path(__file__).parents[2]
    result = json.loads((root / "benchmarks" / "results" / "place_70b.json").read_text())
    devices = result["devices"]
    assert result["parameters"] > 68e9 and len(devices) == 4 and len(result["answer"]) == result["new_tokens"] > 0
    plan = plan_placement(model_of("llama-2-70b"), [row["total_bytes"] * 9 // 10 for row in devices.values()], "auto")
    cells = json.loads((root / "notebooks" / "04_device_maps.ipynb").read_text())["cells"]
    said = " ".join("".join(cell["source"]).replace("\n", " ") for cell in cells)
    loaded, above = [], []
    for device, row in devices.items():
        assert row["planned_bytes"] == plan.used[int(device)]
        assert row["loaded_bytes"] == pytest.approx(row["planned_bytes"], rel=0.05)
        loaded.append(row["loaded_bytes"] / 1e9)
        above.append((row["peak_bytes"] - row["loaded_bytes"]) / 1e9)
    assert f"{min(loaded):.1f} to {max(loaded):.1f} GB" in said
    assert f"peaked {min(above):.1f} to {max(above):.1f} GB above it" in said
    *shares, last = (f"{100 * share:.0f}" for share in result["busy"].values())
    assert f"the GPUs worked {', '.join(shares)} and {last} % of the time" in said


def test_moves() -> None:
    model = model_of("llama-2-7b", layers=4)
    assert plan_placement(model, [12 * GB // 10] * 3, "auto").moves == 2
    turns = iter(range(100))
    zigzag = plan_placement(model, [4 * GB] * 2, lambda name, size, free: next(turns) % 2)
    assert zigzag.moves >= 4


def test_custom_rule_sees_what_is_free() -> None:
    model, seen = model_of("llama-2-7b", layers=3), []

    def rule(name: str, size: int, free: dict) -> int:
        seen.append(free[0])
        free.clear()  # a rule may do what it likes with its copy
        return 0

    plan = plan_placement(model, {0: 20 * GB, 1: GB}, rule)
    assert seen == sorted(seen, reverse=True) and seen[0] == 20 * GB
    assert plan.used[1] == 0 and plan.strategy == "custom"
    assert plan_placement(model, {0: 20 * GB, 1: GB}, {"": 0}).used == plan.used


@pytest.mark.parametrize(
    ("budgets", "strategy", "told"),
    [
        ([], "auto", "no device"),
        ({}, "auto", "no device"),
        ([-1], "auto", "0 or more"),
        ([float("nan")], "auto", "0 or more"),
        ([float("inf")], "auto", "0 or more"),
        ([True], "auto", "0 or more"),
        ({"gpu": GB}, "auto", "'cpu' or 'disk'"),
        ({-1: GB}, "auto", "'cpu' or 'disk'"),
        ([20 * GB], "fastest", "balanced_low_0"),
        ([GB // 100] * 4, "auto", "one piece of"),
        ([2 * GB] * 2, "auto", "add devices"),
        ([20 * GB], lambda *_: 7, "the devices are 0"),
        ([2 * GB] * 2, lambda *_: 0, "placed there"),
        ([20 * GB], {"model.layers.0": 0}, "not in the device map"),
        ([20 * GB], {"": 3}, "would go to 3"),
        ({0: 6 * GB, 1: 12 * GB}, "balanced_low_0", "take 'sequential'"),
    ],
)
def test_impossible_plans(budgets, strategy, told: str) -> None:
    with pytest.raises(PlacementError, match=told) as caught:
        plan_placement(model_of("llama-2-7b"), budgets, strategy)
    assert "\n" not in str(caught.value)


def test_offload_only_when_named() -> None:
    model = model_of("llama-2-7b")
    plan = plan_placement(model, {0: 8 * GB, "cpu": 20 * GB})
    assert plan.used["cpu"] > 0
    with pytest.raises(PlacementError, match="'disk'"):
        plan_placement(model, [8 * GB])


def test_explanations_name_layers_limits_and_the_piece_that_did_not_fit() -> None:
    model = model_of("llama-2-70b")
    text = explain_placement(plan_placement(model, [192 * GB] * 4, "auto"))
    assert len(text) == 4 and "limit lowered to" in text[0] and "model.layers.20" in text[0]
    assert "kept free for the largest layer" in text[0] and "kept free" not in text[1]
    assert "left free for the work" in explain_placement(plan_placement(model, [192 * GB] * 4, "balanced_low_0"))[0]
    assert "sufficed" in explain_placement(plan_placement(model, [192 * GB] * 4, "sequential"))[3]


def test_runs_cover_every_layer_once() -> None:
    held = runs_of(plan_placement(model_of("llama-2-70b"), [192 * GB] * 4, "auto"))
    ranges = [name.removeprefix("layers ").split("-") for names in held.values() for name in names if "layers" in name]
    numbers = [n for a, b in ranges for n in range(int(a), int(b) + 1)]
    assert numbers == list(range(80))


def test_drawing_has_a_block_for_each_piece() -> None:
    import matplotlib

    matplotlib.use("Agg")
    model = model_of("llama-2-7b", layers=4)
    plans = [plan_placement(model, [12 * GB // 10] * 3, s) for s in ("auto", "sequential")]
    axes = draw_placement(plans, title="four layers")
    for ax, plan in zip(axes, plans, strict=True):
        widths = sum(patch.get_width() for patch in ax.patches)
        assert widths == pytest.approx(sum(plan.used.values()) / 1e9)
        assert len(ax.get_yticklabels()) == 3
    axes[0].figure.canvas.draw()


def test_memory_table_and_bytes_by_device() -> None:
    table = memory_table({0: (50 * 2**20, 100 * 2**20), 1: (0, 0)})
    assert "50%" in table and len({len(line) for line in table.splitlines() if line.startswith("=")}) == 1
    tied = torch.nn.Linear(4, 4, bias=False)
    both = torch.nn.ModuleList([tied, torch.nn.Linear(4, 4, bias=False)])
    both[1].weight = tied.weight
    assert bytes_by_device(both) == {"cpu": 64}
