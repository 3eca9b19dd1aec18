# SPDX-License-Identifier: MIT
"""Data sets with the usual columns can be trained on and judged; others are refused in one line."""

import pytest
from datasets import Dataset, DatasetDict

from rocm_guide.base import GuideError
from rocm_guide.quantization.calibration import calibration_set
from rocm_guide.training import adapter_size, training_figures, whole_job
from rocm_guide.zoo import held_out_pair, load_tokenizer, training_rows

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


def test_of_a_long_conversation_the_last_answer_is_judged(tokenizer):
    rows = training_rows(DatasetDict(train=Dataset.from_list([{"conversations": MORE}])), tokenizer)
    assert [t["role"] for t in rows["train"][0]["messages"]] == ["user", "assistant", "user", "assistant"]
    prompt, answer = held_out_pair(rows["train"][0], tokenizer)
    assert "Hello" in prompt and "MI300X" not in prompt and answer.split() == ["MI300X", "</s>"]


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
    assert given["max_steps"] == 3 == given["logging_steps"] and given["gradient_accumulation_steps"] == 8
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
