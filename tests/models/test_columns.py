# SPDX-License-Identifier: MIT
"""Data sets with the usual columns can be trained on and judged; others are refused in one line."""

import pytest
from datasets import Dataset, DatasetDict

from rocm_guide.common.base import GuideError
from rocm_guide.finetune import adapter_size, sft_settings, training_figures, whole_job
from rocm_guide.models import held_out_pair, load_model, load_tokenizer, training_rows
from rocm_guide.models.columns import TRAINED_ON, first_added, kind_of
from rocm_guide.quantize.calibration import calibration_set
from tests.own_data import RULES, families, layouts

TURNS = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
MORE = [*TURNS, {"from": "human", "value": "Name a GPU."}, {"from": "gpt", "value": "MI300X"}]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("tiny")


@pytest.mark.parametrize(
    ("row", "prompt", "answer"),
    [
        ({"prompt": "[INST] a [/INST]", "completion": " b </s>", "text": "x"}, "[INST] a [/INST]", " b </s>"),
        ({"instruction": "a", "input": "", "output": "b", "text": "x"}, "[INST] a [/INST]", " b </s>"),
        ({"instruction": "a", "input": "c", "output": "b"}, "[INST] a\nc [/INST]", " b </s>"),
        ({"question": "a", "answer": "b"}, "[INST] a [/INST]", " b </s>"),
        ({"conversations": TURNS}, "[INST] Hi [/INST]", " Hello </s>"),
        ({"text": "<s>[INST] a [/INST] b </s>"}, "[INST] a [/INST]", " b </s>"),
        ({"text": "no chat at all"}, "", "no chat at all"),
    ],
)
def test_a_row_becomes_what_is_given_and_what_is_judged(row, prompt, answer, tokenizer):
    for words in (tokenizer, None):  # with a chat template, and without one
        found = training_rows(Dataset.from_list([row]), words)[0]
        given, judged = held_out_pair(found, words)
        assert (given, judged.strip()) == (prompt, answer.strip())


def test_each_answer_of_a_conversation_is_a_row_of_its_own(tokenizer):
    data = Dataset.from_list([{"conversations": MORE, "id": 7}])
    first, second = training_rows(DatasetDict(train=data), tokenizer)["train"]
    assert [t["role"] for t in second["prompt"]] == ["user", "assistant", "user"] and first["id"] == second["id"] == 7
    assert held_out_pair(first, tokenizer) == ("[INST] Hi [/INST]", " Hello </s>")
    prompt, answer = held_out_pair(second, tokenizer)
    assert "Hello" in prompt and "MI300X" not in prompt and answer.split() == ["MI300X", "</s>"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return families(tmp_path_factory.mktemp("families"), "qwen2", "chatml")


QUESTION, RIGHT = layouts()["prompt_messages"][0]["prompt"], layouts()["alpaca"][0]["output"]


@pytest.mark.parametrize("layout", list(layouts()))
@pytest.mark.parametrize("family", ["qwen2", "chatml"])
def test_what_is_learnt_of_each_layout_and_what_is_judged(models, family, layout, tmp_path):
    """As SFTTrainer masks it, decoded: the answers alone, with the token that ends them, after one first token."""
    from trl import SFTTrainer

    model, words = load_model(str(models[family]), device="cpu")
    rows = training_rows(Dataset.from_list(layouts()[layout]), words)
    columns = TRAINED_ON[kind_of(rows.column_names)]
    settings = sft_settings(tmp_path, device="cpu", max_length=512)
    trainer = SFTTrainer(model, settings, train_dataset=rows.select_columns(columns), processing_class=words)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    ids, labels = batch["input_ids"][0], batch["labels"][0]
    learnt, given = words.decode(ids[labels != -100]), words.decode(ids[labels == -100])
    prompt, judged = held_out_pair(rows[0], words)
    if layout == "text":  # as it says: all of it
        assert given == "" and QUESTION in learnt and learnt.endswith(words.eos_token)
        assert learnt.count("<s>") == 1  # chatml's tokenizer knows no <s>, and adds none: the data keep theirs
    else:
        assert learnt == {"qwen2": f" {RIGHT} </s>", "chatml": f"{RIGHT}<|im_end|>\n"}[family]
        assert judged == learnt and QUESTION in given
        assert (RULES in given) == (layout == "system")
        # What is judged is what was trained: the same tokens, the first one too.
        assert words(prompt).input_ids == ids[labels == -100].tolist()
    assert ids[0] == words.bos_token_id or layout == "text"
    assert family == "chatml" or ids.tolist().count(words.bos_token_id) == 1


def test_a_first_token_is_taken_off_only_where_the_tokenizer_adds_it(models):
    llama, chatml = (load_tokenizer(spec) for spec in ("tiny", str(models["chatml"])))
    assert first_added(llama) == "<s>" and first_added(chatml) == ""
    for words, first in ((llama, "<s>"), (chatml, "<|im_start|>")):
        row = {"prompt": f"{first}a", "completion": "b"}
        kept = "a" if words is llama else f"{first}a"
        assert training_rows(Dataset.from_list([row]), words)[0]["prompt"] == kept
        assert held_out_pair(row, words) == (kept, "b")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, "no answer of the assistant"),
        ({"messages": [{"from": "human", "value": "a"}]}, "unknown form .'role'.; each turn is {'role'"),
    ],
)
def test_a_conversation_without_an_answer_is_refused(row, said, tokenizer):
    with pytest.raises(GuideError, match=said):
        training_rows(Dataset.from_list([row]), tokenizer)


def test_unknown_columns_are_refused_in_one_line():
    with pytest.raises(GuideError, match=r"columns a, b; one of these is needed: text; prompt and completion") as e:
        training_rows(Dataset.from_list([{"a": 1, "b": 2}]))
    assert "\n" not in str(e.value)
    with pytest.raises(GuideError, match="unknown form"):
        training_rows(Dataset.from_list([{"conversations": [{"from": "robot", "value": "?"}]}]))


def test_calibration_takes_as_many_rows_as_it_needs(tokenizer):
    rows = Dataset.from_list([{"text": f"row {i} has some words in it"} for i in range(40)])
    texts, samples = calibration_set(rows, tokenizer, 4, 16)
    assert len(samples) == 4 and {len(s["input_ids"]) for s in samples} == {16} and len(texts) < 40
    _, few = calibration_set(rows, tokenizer, 128, 64)
    assert 1 <= len(few) < 128  # a small set gives what it has
    with pytest.raises(GuideError, match="count=0"):
        calibration_set(rows, tokenizer, 0, 16)


def test_the_usual_settings_are_the_guides_and_each_can_be_changed():
    large = whole_job("random:llama-2-7b", "lora")
    assert large["num_train_epochs"] == 1 and "max_steps" not in large and adapter_size("some/hub") == (64, 16)
    given = whole_job("some/hub", "lora", epochs=2, steps=3, rate=1e-4, batch=2, accumulation=8, length=99)
    assert given["max_steps"] == 3 and given["gradient_accumulation_steps"] == 8
    # A short run shows several losses.
    assert [whole_job("some/hub", "lora", steps=n)["logging_steps"] for n in (3, 12, 200)] == [1, 3, 5]
    assert (given["num_train_epochs"], given["learning_rate"], given["max_length"]) == (2, 1e-4, 99)
    with pytest.raises(GuideError, match="batch=-1"):
        whole_job("tiny", "lora", batch=-1)


def test_the_figures_of_a_trainer_are_those_of_its_last_call():
    from types import SimpleNamespace as Some

    import torch

    def trainer(*history):
        return Some(model=torch.nn.Linear(2, 2), state=Some(log_history=list(history)), args=Some(use_cpu=True))

    logged = [{"step": 5, "loss": 2.0, "num_tokens": 500.0}, {"step": 10, "loss": 1.0, "num_tokens": 1000.0}]
    found = training_figures(trainer(*logged, {"step": 10, "train_runtime": 4.0, "num_tokens": 1000.0}))
    assert (found.tokens, found.seconds, found.tokens_per_second) == (1000, 4.0, 250.0)
    assert (found.losses, found.loss_steps, found.trainable) == ([2.0, 1.0], [5, 10], 6)
    half = training_figures(trainer(*logged, {"step": 10, "train_runtime": 4.0}), "log/checkpoint-5")
    assert half.tokens_per_second == 125.0
    over = training_figures(trainer(*logged, {"step": 10, "train_runtime": 0.01}), "log/checkpoint-10")
    assert over.tokens_per_second == 0.0
