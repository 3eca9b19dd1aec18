# SPDX-License-Identifier: MIT
"""The memory formulae against parameter counts, live bytes of real steps, the measured cases, and each other."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

import rocm_guide.models.step as activations
from rocm_guide.common.base import GuideError
from rocm_guide.models import step
from rocm_guide.models.memory_planner import fit, generate_moments
from rocm_guide.models.quantized import NF4_BYTES
from rocm_guide.models.shapes import SHAPES, config_of
from rocm_guide.models.sizes import LORA_TARGETS as SEVEN
from rocm_guide.models.sizes import sizes_of
from rocm_guide.models.step import sharded_moments, step_moments, work_states
from rocm_guide.models.work import FitError, Workload
from tests.models.live_bytes import training_step

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
QV = ("q_proj", "v_proj")


def small(layers: int = 6, vocab: int = 512):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160}
    return AutoConfig.for_model("llama", num_hidden_layers=layers, vocab_size=vocab, **sizes)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of the loss as small as the models here, or they would hide everything else."""
    import trl.trainer.utils as trl_utils

    monkeypatch.setattr(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 64)
    monkeypatch.setattr(activations, "LOSS_WORDS", 64)


CASES = {
    "full": Workload("full", 4, 256, kernels="torch"),
    "mixed": Workload("full", 4, 256, precision="mixed", kernels="torch"),
    "qv": Workload("lora", 4, 256, kernels="torch", rank=4, targets=QV),
    "all": Workload("lora", 4, 256, kernels="torch", rank=4),
    "bf16 adapters": Workload("lora", 4, 256, kernels="torch", rank=4, adapter_fp32=False),
    "down": Workload("lora", 4, 256, kernels="torch", rank=4, targets=("down_proj",)),
}


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_of_a_layer_are_exactly_those_of_a_real_forward_pass(name: str, small_tiles) -> None:
    work = CASES[name]
    four, two = (training_step(small(layers), work) for layers in (4, 2))
    # Two models that differ by two layers: whatever lies outside the layers cancels.
    per_layer = ((four["forward"] - four["rest"]) - (two["forward"] - two["rest"])) / 2
    assert sum(activations.layer_saved(sizes_of(small()), work).values()) == per_layer


@pytest.mark.parametrize("tokens", [(4, 256), (1, 16)], ids=["activations", "states"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["keep", "again"])
def test_peak_of_a_real_step(name: str, tokens: tuple[int, int], checkpointing: bool, small_tiles) -> None:
    # On a CPU the tile of the loss goes through several fp32 copies that the GPU's kernel does not make: 10 %.
    work = replace(CASES[name], batch=tokens[0], seq=tokens[1], checkpointing=checkpointing)
    found = training_step(small(), work)
    peak = max(sum(parts.values()) for parts in step_moments(sizes_of(small()), work).values())
    assert peak == pytest.approx(found["peak"], rel=0.10)


@pytest.mark.parametrize("name", [name for name in CASES if name != "mixed"])
def test_peak_of_a_step_with_offloading(name: str, small_tiles, monkeypatch) -> None:
    import trl.trainer.utils as trl_utils

    # A CPU's copies of the loss's tile would be all that one sees. What the stand-in offloads is away at once, and one
    # tensor at a time comes back.
    monkeypatch.setattr(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 8)
    monkeypatch.setattr(activations, "LOSS_WORDS", 8)
    monkeypatch.setattr(step, "IN_FLIGHT", 1)
    work = replace(CASES[name], checkpointing=True, offloading=True)
    found = training_step(small(), work)
    peak = max(sum(parts.values()) for parts in step_moments(sizes_of(small()), work).values())
    assert peak == pytest.approx(found["peak"], rel=0.10)


def test_states_at_rest(small_tiles) -> None:
    for work in CASES.values():
        stored = work_states(sizes_of(small()), work)
        stored.pop("gradients")
        # One fp32 counter of steps for each trained tensor, and the ids, lie beside them.
        assert sum(stored.values()) == pytest.approx(training_step(small(), work)["rest"], rel=0.03)


@pytest.fixture
def measured_cases(monkeypatch):
    """The script that made the table, and the rows that were measured."""
    monkeypatch.syspath_prepend(str(RESULTS.parent))
    from benchmarks.memory import cases as fit_cases

    return fit_cases, fit_cases.read(RESULTS)


def test_measured_cases_stay_within_the_promise(measured_cases) -> None:
    from benchmarks.memory.report import predict

    _, rows = measured_cases
    plans = {name: predict(row) for name, row in rows.items()}
    ran = {name for name, row in rows.items() if row["outcome"] == "ran"}
    errors = sorted(abs(plans[name].peak / rows[name]["peak"] - 1) for name in ran)
    assert len(ran) >= 16
    assert {"full", "lora", "qlora"} <= {rows[name]["case"]["method"] for name in ran}
    assert sum(rows[name]["case"].get("gpus", 1) > 1 for name in ran) >= 2
    assert statistics.median(errors) <= 0.05 and errors[-1] <= 0.12
    over = set(rows) - ran
    assert len(over) == 5 and not any(plans[name].fits for name in over)
    # Not by a hair: the closest of them is refused by any margin above 5.1 %, and with the present one by 2.35 GB.
    assert min(plans[name].total - plans[name].budget for name in over) > 2e9


def test_the_committed_table_is_what_the_program_says_today(measured_cases) -> None:
    from benchmarks.memory.report import report

    _, rows = measured_cases
    text, missed = report(rows)
    assert not missed
    assert text == (RESULTS / "fit_cases.md").read_text(), (
        "run benchmarks/memory/cases.py compare --out benchmarks/results"
    )
    assert "25 cases ran, 5 ran out of memory. Error of the computed peak: median 0.25 %, worst 3.65 %." in text
    assert "fit says today that they fit: none." in text


def test_a_margin_of_three_percent_would_be_reported_as_the_mistake_it_was(measured_cases, monkeypatch) -> None:
    import rocm_guide.models.memory_planner as memory_plan
    from benchmarks.memory.report import report

    monkeypatch.setattr(memory_plan, "FRAGMENTED", 0.03)
    text, missed = report(measured_cases[1])
    assert missed == ["7b-lora-largest ran out of memory and fit says that it fits"]
    assert "says today that they fit: 7b-lora-largest." in text


def test_the_notebook_quotes_the_measurements_as_they_are(measured_cases) -> None:
    from benchmarks.memory.report import predict

    _, rows = measured_cases
    ran = [row for row in rows.values() if row["outcome"] == "ran"]
    sizes = sorted(100 * abs(predict(row).peak / row["peak"] - 1) for row in ran)
    cells = json.loads((RESULTS.parents[1] / "notebooks" / "04_device_maps.ipynb").read_text())["cells"]
    said = " ".join(" ".join("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown")
    for words in (
        f"We measured {len(rows)} cases",
        f"{len(ran)} of them ran",
        f"the median error is {statistics.median(sizes):.2f} %, the largest {sizes[-1]:.2f} %",
    ):
        assert words in said, words
    assert len(rows) - len(ran) == 5 and not any(predict(row).fits for row in rows.values() if row["outcome"] != "ran")


def test_results_of_another_gpu_make_a_table_too(measured_cases) -> None:
    from benchmarks.memory.report import picture, report

    few = {name: {**row, "hardware": "AMD Instinct MI300X"} for name, row in list(measured_cases[1].items())[:4]}
    text, missed = report(few)
    assert not missed and "came within 10 %" in text and "predictions" not in text
    assert picture(few).startswith(b"\x89PNG")


def test_more_of_anything_needs_more_memory() -> None:
    config = config_of("llama-2-7b")
    for work in (
        Workload("full", 2, 512),
        Workload("lora", 2, 512),
        Workload("qlora", 2, 512),
        Workload("inference", 2, 512),
    ):
        base = fit(config, work).peak
        assert fit(config, replace(work, seq=4096)).peak > base
        assert fit(config, replace(work, batch=64)).peak > base
    assert fit(config, Workload("lora", 8, 2048, checkpointing=True)).peak < fit(config, Workload("lora", 8, 2048)).peak
    assert (
        fit(config, Workload("full", 4, 512, precision="mixed")).peak > 1.9 * fit(config, Workload("full", 4, 512)).peak
    )


def test_accumulated_gradients_stay_during_the_forward_pass() -> None:
    shape = sizes_of(config_of("llama-2-7b"))
    once, twice = (step_moments(shape, Workload("full", 8, 2048, accumulation=n)) for n in (1, 2))
    assert once["loss"]["gradients"] == 0 and twice["loss"]["gradients"] == 2 * shape.parameters


@pytest.mark.parametrize("method", ["full", "lora", "qlora", "inference", "serve"])
def test_largest_batch_is_the_largest(method: str) -> None:
    config, work = config_of("llama-3-8b"), Workload(method, 1, 2048)
    best = fit(config, work).largest_batch
    assert best >= 1
    assert fit(config, replace(work, batch=best)).fits and not fit(config, replace(work, batch=best + 1)).fits


def test_largest_batch_is_zero_when_not_even_one_row_fits() -> None:
    assert fit(config_of("llama-2-70b"), Workload("full")).largest_batch == 0


def test_the_memory_of_a_device_is_not_that_of_the_package() -> None:
    plan = fit(config_of("llama-2-7b"), Workload("full", 6, 1024), gpu="MI250X")
    assert plan.budget == (64 << 30) - (16 << 20) and not plan.fits
    assert fit(config_of("llama-2-7b"), plan.work, gpu="H100").fits


def test_a_plot_gives_a_kind_the_same_colour_in_every_plan() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from rocm_guide.models.memory_planner import draw_fit

    config, work = config_of("llama-2-7b"), Workload("full", 1, 2048, precision="mixed")
    axes = [draw_fit({"a": fit(config, work, count=2, fsdp=shards)}) for shards in (False, True)]
    axes.append(draw_fit({"a": fit(config, Workload("serve", 4, 2048))}))
    colours: dict[str, set] = {}
    for ax in axes:
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
            colours.setdefault(text, set()).add(handle[0].get_facecolor())
    assert {"gathered by FSDP", "KV cache", "overhead"} < set(colours)
    assert all(len(found) == 1 for found in colours.values())
    assert len({colour for found in colours.values() for colour in found}) == len(colours)


def test_shards_shrink_with_the_number_of_gpus() -> None:
    shape, work = sizes_of(config_of("llama-2-13b")), Workload("full", 1, 512, precision="mixed")
    two, eight = (sharded_moments(shape, work, n)["optimizer"] for n in (2, 8))
    assert sum(two.values()) == pytest.approx(4 * sum(eight.values()), rel=1e-6)
    whole = fit(config_of("llama-2-13b"), work, count=4)
    assert "DDP buckets" in whole.parts and whole.peak > fit(config_of("llama-2-13b"), work, count=4, fsdp=True).peak


def test_sharded_adapters_cost_a_share_of_the_frozen_weights_and_no_gradients_of_them() -> None:
    config, work = config_of("llama-3-70b"), Workload("lora", 1, 2048, checkpointing=True)
    alone, shared = fit(config, work), fit(config, work, count=4, fsdp=True)
    assert alone.parts["parameters"] > 3.99 * shared.parts["parameters"]
    assert shared.parts.get("gathered", 0) < 2.2 * (2 * sizes_of(config).largest_layer + 2 * sizes_of(config).outside)
    assert shared.fits and shared.peak < alone.peak / 2


@pytest.mark.parametrize(("count", "checkpointing", "total"), [(8, False, 122.93), (4, True, 169.18)])
def test_hand_checked_plans_with_fsdp(count: int, checkpointing: bool, total: float) -> None:
    work = Workload("full", 1, 2048, checkpointing=checkpointing)
    assert fit(config_of("llama-3-70b"), work, count=count, fsdp=True).total / 1e9 == pytest.approx(total, abs=0.005)


@pytest.mark.parametrize(
    ("model", "count"), [("llama-3.1-405b", 5), ("llama-3-8b", 3), ("gpt2", 8), ("phi-3-mini", 64)]
)
def test_a_server_splits_heads_and_not_parts_of_them(model: str, count: int) -> None:
    with pytest.raises(FitError, match=f"count={count}: tensor parallelism has to divide"):
        fit(config_of(model), Workload("serve", seq=1024), count=count)


@pytest.mark.parametrize(("model", "positions"), [("gpt2", 1024), ("opt-13b", 2048)])
def test_learned_positions_end_a_text(model: str, positions: int) -> None:
    assert fit(config_of(model), Workload("inference", 1, positions)).peak > 0
    with pytest.raises(FitError, match=f"seq={positions + 1}: this model .* {positions:,} positions"):
        fit(config_of(model), Workload("inference", 1, positions + 1))
    assert fit(config_of("llama-2-7b"), Workload("inference", 1, 100_000)).peak > 0, "rotary positions have no end"


def test_more_gpus_than_kv_heads_hold_copies_of_the_cache() -> None:
    config, work = config_of("llama-3-70b"), Workload("serve", 8, 4096)
    eight, sixteen = (fit(config, work, count=n).parts["KV cache"] for n in (8, 16))
    assert eight == sixteen == fit(config, work, count=1, memory_gb=999).parts["KV cache"] // 8


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def test_a_quantised_checkpoint_is_counted_as_it_is() -> None:
    plain = config_of("llama-2-7b").to_dict()
    stored = {**plain, "quantization_config": GPTQ}
    whole, four = (fit(fields, Workload("inference", 1, 512)) for fields in (plain, stored))
    linear = sizes_of(plain).linear
    assert four.stored_as == "gptq, 4 bits"
    assert whole.parts["parameters"] - four.parts["parameters"] == pytest.approx(linear * (2 - 4.15625 / 8), rel=1e-3)
    with pytest.raises(FitError, match="stored as gptq, 4 bits: they cannot be trained"):
        fit(stored, Workload("full"))
    adapters = fit(stored, Workload("qlora", 1, 512, adapter_fp32=False))
    assert adapters.parts["parameters"] == four.parts["parameters"]


def test_the_ten_cases_of_other_families_stay_within_three_percent(measured_cases) -> None:
    from benchmarks.memory.report import report

    cases, _ = measured_cases
    folder = RESULTS / "fit_families"
    rows = cases.read(folder)
    text, missed = report(rows)  # a case of this group is missed beyond 3 %
    assert set(rows) == {name for name, case in cases.CASES.items() if case.get("group") == "families"}
    assert len(rows) == 10 and all(row["outcome"] == "ran" for row in rows.values()) and not missed
    assert text == (folder / "fit_cases.md").read_text()


def test_every_family_has_a_plan_and_a_mixture_costs_all_of_its_experts() -> None:
    for name in SHAPES:
        for method in ("full", "lora", "inference", "serve"):
            plan = fit(SHAPES[name], Workload(method, 1, 512), memory_gb=9999)
            assert plan.peak > 2 * sizes_of(SHAPES[name]).parameters * 0.99, (name, method)


FAMILIES = {
    "qwen3": {"head_dim": 32},
    "gemma3_text": {"head_dim": 32, "sliding_window": 4096},
    "phi3": {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_bytes_of_other_families(family: str, small_tiles) -> None:
    work = Workload("lora", 2, 128, kernels="torch", rank=4)
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160}

    def config(layers: int):
        return AutoConfig.for_model(family, num_hidden_layers=layers, vocab_size=512, **sizes, **FAMILIES[family])

    four, two = (training_step(config(layers), work) for layers in (4, 2))
    per_layer = ((four["forward"] - four["rest"]) - (two["forward"] - two["rest"])) / 2
    # A few numbers a row that no formula is worth: the router's scores, Gemma's 1 + weight.
    found = sum(activations.layer_saved(sizes_of(config(4)), work).values())
    assert found == pytest.approx(per_layer, rel=0.012)


def test_adapters_and_four_bits() -> None:
    shape = sizes_of(config_of("llama-2-7b"))
    assert shape.lora_parameters(QV, 64) == 33_554_432
    assert "adapter" not in work_states(shape, Workload("full"))
    assert pytest.approx(4.127, abs=1e-3) == 8 * NF4_BYTES
    four = work_states(shape, Workload("qlora", adapter_fp32=False))["parameters"]
    assert 3.6e9 < four < 4.0e9


def test_kv_cache_is_that_of_the_inference_module() -> None:
    from rocm_guide.serve.generate_cost import kv_cache_bytes

    config = config_of("llama-3-8b")
    sizes = sizes_of(config)
    assert generate_moments(sizes, Workload("inference", 3, 100))["decode"]["KV cache"] == kv_cache_bytes(
        config, 100, batch=3
    )
    parts = generate_moments(sizes, Workload("serve", batch=3, seq=100))["decode"]
    assert parts["KV cache"] == kv_cache_bytes(config, 112, batch=3), "in whole blocks of 16"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"method": "magic"}, "choose one of full, lora, qlora"),
        ({"precision": "fp8"}, "bf16, mixed"),
        ({"kernels": "cuda"}, "liger, torch"),
        ({"offloading": True}, "without checkpointing"),
        ({"batch": 0}, "whole number from 1"),
        ({"seq": -1}, "whole number from 1"),
        ({"rank": 0}, "whole number from 1"),
        ({"batch": 1.5}, "whole number"),
        ({"dropout": 1.0}, "less than 1"),
        ({"targets": ("qkv",)}, ", ".join(SEVEN)),
    ],
)
def test_work_that_means_nothing(change: dict, told: str) -> None:
    with pytest.raises(FitError, match=told) as caught:
        Workload(**change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        ("llama-2-7b", {"gpu": "MI999"}, "MI300X"),
        ("llama-2-7b", {"count": 0}, "one GPU or more"),
        ("llama-2-7b", {"count": -2}, "one GPU or more"),
        ("llama-2-7b", {"memory_gb": -1}, "more than 0"),
        ("llama-2-7b", {"memory_gb": float("nan")}, "more than 0"),
        ("llama-2-7b", {"fsdp": True}, "2 or more GPUs"),
        ("llama-3.1-405b", {"memory_gb": 2}, "no split of layers"),
    ],
)
def test_impossible_plans(model: str, options: dict, told: str) -> None:
    with pytest.raises(GuideError, match=told) as caught:
        fit(config_of(model), Workload(), **options)
    assert "\n" not in str(caught.value)
