# SPDX-License-Identifier: MIT
"""Fine-tuning: it learns within the promised bounds whatever the seed, and refuses what would mislead."""

import logging
import warnings

import pytest
import torch

from rocm_guide.common.base import GuideError
from rocm_guide.finetune.sft import _quiet_liger, fine_tune, recipe, sft_settings, trainable_parameters
from rocm_guide.models.evaluation import answer, exact_match
from rocm_guide.models.load import load_data, load_model
from tests.in_turn import in_shares

LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}


def adapter(**changes):
    from peft import LoraConfig

    return LoraConfig(**{**LORA, "task_type": "CAUSAL_LM", **changes})


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_shares([1, 2], 6))
def test_other_seeds_stay_within_the_bounds(seed, tmp_path):
    """The bounds that notebook 02 asserts of seed 0: base <= 5 %, LoRA >= 80 %, full >= 90 %, LoRA trains <= 5 %."""
    data = load_data("tiny")
    scores = {}
    for method, config in (("lora", adapter()), ("full", None)):
        model, tokenizer = load_model("tiny", device="cpu", seed=seed)
        if not scores:
            scores["base"] = exact_match(model, tokenizer, data["test"])[0]
        settings = sft_settings(tmp_path, device="cpu", seed=seed, **recipe("tiny", method))
        run = fine_tune(model, tokenizer, data["train"], settings, adapter=config)
        scores[method], _ = exact_match(run.model, tokenizer, data["test"])
        if method == "lora":
            assert 0 < run.trainable / run.total <= 0.05
        assert len(run.losses) == (204 if method == "lora" else 136)
        assert run.losses[-1] < 0.5 < run.losses[0] and run.tokens_per_second > 0 and run.peak_bytes > 2**26
    print(scores)
    assert scores["base"] <= 0.05 and scores["lora"] >= 0.8 and scores["full"] >= 0.9


def test_a_short_run_logs_its_loss_all_the_same(tmp_path):
    """The recipe of a large model logs every fifth step; cut to four steps it must not end without a loss."""
    large = recipe("random:llama-2-7b", "lora")
    assert sft_settings(tmp_path, device="cpu", **large).logging_steps == 5
    assert sft_settings(tmp_path, device="cpu", **{**large, "max_steps": 4}).logging_steps == 1
    model, tokenizer = load_model("tiny", device="cpu")
    size = {"max_steps": 2, "per_device_train_batch_size": 1, "max_length": 64}
    settings = sft_settings(tmp_path, device="cpu", **{**large, **size})
    run = fine_tune(model, tokenizer, load_data("tiny")["train"], settings, adapter=adapter())
    assert run.loss_steps == [1, 2] and run.tokens == 128 and run.tokens_per_second > 0


def test_the_process_is_left_as_it_was(tmp_path):
    """Filters of warnings and the progress bars of datasets belong to the caller, whether training works or fails."""
    import datasets

    model, tokenizer = load_model("tiny", device="cpu")
    rows, settings = load_data("tiny")["train"].select(range(4)), sft_settings(tmp_path, device="cpu", max_steps=1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        fine_tune(model, tokenizer, rows, settings, adapter=adapter())
        with pytest.raises(AttributeError, match="on_init_end"):
            fine_tune(load_model("tiny", device="cpu")[0], tokenizer, rows, settings, callbacks=[3])
        assert warnings.filters == before
    assert not [w for w in heard if "is_gradient_checkpointing" in str(w.message)]
    assert not datasets.are_progress_bars_disabled()


def test_token_count_is_that_of_the_samples(tmp_path):
    model, tokenizer = load_model("tiny", device="cpu")
    rows = load_data("tiny")["train"].select(range(8))
    settings = sft_settings(tmp_path, device="cpu", per_device_train_batch_size=4, num_train_epochs=1, max_length=64)
    run = fine_tune(model, tokenizer, rows, settings)
    assert run.tokens == sum(len(tokenizer(r["prompt"] + r["completion"]).input_ids) for r in rows)


def test_only_the_completion_is_learnt(tmp_path):
    """With a completion that is always the same, the loss goes to nearly zero although the prompts are random."""
    from datasets import Dataset

    model, tokenizer = load_model("tiny", device="cpu")
    rows = Dataset.from_list(
        [{"prompt": f"[INST] {i * 7919 % 1000} [/INST]", "completion": " yes </s>"} for i in range(64)]
    )
    settings = sft_settings(tmp_path, device="cpu", learning_rate=1e-3, num_train_epochs=3, max_length=64)
    run = fine_tune(model, tokenizer, rows, settings)
    assert run.losses[-1] < 0.05
    assert answer(run.model, tokenizer, ["[INST] 123 [/INST]"]) == ["yes"]


def test_lora_leaves_the_base_weights_alone(tmp_path):
    model, tokenizer = load_model("tiny", device="cpu")
    before = {n: p.clone() for n, p in model.named_parameters()}
    settings = sft_settings(tmp_path, device="cpu", max_steps=2, learning_rate=1e-2, max_length=64)
    run = fine_tune(model, tokenizer, load_data("tiny")["train"].select(range(32)), settings, adapter=adapter())
    after = dict(run.model.base_model.model.named_parameters())
    for name, weight in before.items():
        found = after.get(name, after.get(name.replace(".weight", ".base_layer.weight")))
        assert torch.equal(weight, found), name
    assert (
        run.trainable == trainable_parameters(run.model)[0] == sum(p.numel() for n, p in after.items() if "lora_" in n)
    )


def test_bad_input_is_one_clear_line(tmp_path):
    from peft import get_peft_model

    model, tokenizer = load_model("tiny", device="cpu")
    settings = sft_settings(tmp_path, device="cpu", max_steps=1)
    with pytest.raises(GuideError, match="0 rows"):
        fine_tune(model, tokenizer, load_data("tiny")["train"].select([]), settings)
    with pytest.raises(GuideError, match="adapter already"):
        fine_tune(get_peft_model(model, adapter()), tokenizer, load_data("tiny")["train"], settings)
    with pytest.raises(GuideError, match="target_modules=c_attn: LlamaForCausalLM has none"):
        rows = load_data("tiny")["train"]
        fine_tune(
            load_model("tiny", device="cpu")[0], tokenizer, rows, settings, adapter=adapter(target_modules=["c_attn"])
        )
    with pytest.raises(GuideError, match="'prefix'"):
        recipe("tiny", "prefix")
    with pytest.raises(GuideError, match="'prompt' and 'answer'"):
        exact_match(model, tokenizer, [])


def test_answers_do_not_depend_on_their_neighbours():
    model, tokenizer = load_model("tiny", device="cpu")
    prompts = [r["prompt"] for r in load_data("tiny")["test"].select(range(6))] + ["[INST] Hello! [/INST]"]
    together = answer(model, tokenizer, prompts, new_tokens=8)
    assert together == [answer(model, tokenizer, [p], new_tokens=8)[0] for p in prompts]
    assert together == answer(model, tokenizer, prompts, new_tokens=8, batch=3)


def test_liger_is_silent_about_other_makers_kernels_and_about_nothing_else(caplog):
    """On an AMD GPU two of its imports must fail; that of its Triton kernels must not."""
    log = logging.getLogger("liger_kernel.backends.registry")
    said = "Backend impl 'liger_kernel.ops.backends.%s.rope' for op 'rope' could not be imported"
    with _quiet_liger():
        for name in ("_ascend", "_cutedsl", "_triton"):
            log.warning(said, name)
    assert [r.args for r in caplog.records] == [("_triton",)]
    log.warning(said, "_ascend")
    assert len(caplog.records) == 2


def test_what_a_library_replaces_for_one_training_is_put_back(tmp_path):
    """As Liger replaces the rotary embedding of all Llamas, which then cannot run on a CPU any more."""
    from transformers import TrainerCallback
    from transformers.models.llama import modeling_llama

    original = modeling_llama.apply_rotary_pos_emb
    seen = []

    class Replaces(TrainerCallback):
        def on_train_begin(self, *_, **__):
            modeling_llama.apply_rotary_pos_emb = lambda *a, **k: (seen.append(1), original(*a, **k))[1]

    model, tokenizer = load_model("tiny", device="cpu")
    settings = sft_settings(tmp_path, device="cpu", max_steps=1, max_length=64)
    rows = load_data("tiny")["train"].select(range(8))
    fine_tune(model, tokenizer, rows, settings, callbacks=[Replaces()])
    assert seen and modeling_llama.apply_rotary_pos_emb is original
