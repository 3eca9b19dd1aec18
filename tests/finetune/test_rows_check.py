# SPDX-License-Identifier: MIT
"""Rows that would spoil a training are refused before it starts, in one line that names the row and the fix."""

import pytest
from datasets import Dataset

from rocm_guide.common.base import GuideError
from rocm_guide.finetune import check_rows
from rocm_guide.models import load_data, load_tokenizer, training_rows

GOOD = {"prompt": "[INST] Hi [/INST]", "completion": " Hello. </s>"}
REFUSES = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ m.role }}: {{ m.content }} {% endfor %}"
)


@pytest.fixture
def words():
    return load_tokenizer("tiny")


def refused(rows, words, length=64, **options):
    with pytest.raises(GuideError) as e:
        check_rows(training_rows(Dataset.from_list(rows), words), words, length, **options)
    assert "\n" not in str(e.value)
    return str(e.value)


def chat(*turns):
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_good_rows_are_counted(words, capsys):
    check_rows(training_rows(load_data("tiny"), words)["train"], words, 64, vocabulary=1024)
    said = capsys.readouterr().out
    assert said.startswith("[OK]   1,080 rows of ") and said.count("\n") == 1
    ids = [words(text).input_ids for text in (GOOD["prompt"], GOOD["prompt"] + GOOD["completion"])]
    check_rows(Dataset.from_list([GOOD]), words, 64)
    assert f"{len(ids[1]) - len(ids[0])} of {len(ids[1])} are learnt" in capsys.readouterr().out
    check_rows(Dataset.from_list([{"text": "all of it"}]), words, 64)
    count = len(words("all of it").input_ids)
    assert f"{count} of {count} are learnt" in capsys.readouterr().out


def test_long_rows_are_counted_and_the_cut_is_said(words, capsys):
    long = {"prompt": GOOD["prompt"], "completion": " Hello" * 40 + " </s>"}
    tokens = len(words(long["prompt"] + long["completion"]).input_ids)
    check_rows(Dataset.from_list([GOOD, long, GOOD]), words, 32)
    said = capsys.readouterr().out
    assert f"[WARN] 1 of 3 rows are longer than LENGTH=32: up to {tokens - 32} tokens" in said
    assert f"LENGTH={tokens} would keep all" in said


def test_a_row_with_nothing_to_learn_stops_it(words):
    long = {"prompt": "[INST] " + "Hi " * 60 + "[/INST]", "completion": " Yes. </s>"}
    tokens = len(words(long["prompt"] + long["completion"]).input_ids)
    said = refused([GOOD, long, long], words)
    assert "row 1 of those to train on (and 1 more), '[INST] Hi Hi" in said
    assert f"nothing to learn within LENGTH=64 of its {tokens} tokens; raise LENGTH to {tokens}" in said


@pytest.mark.parametrize("empty", ["", " ", " </s>"])
def test_an_empty_answer(empty, words):
    said = refused([GOOD, {"prompt": "[INST] Why? [/INST]", "completion": empty}], words)
    assert said.startswith("DATASET: row 1 of those to train on ('[INST] Why? [/INST]') has an empty answer; leave")
    assert "row 0" in refused([chat(("user", "Why?"), ("assistant", ""))], words)
    assert "empty answer" in refused([{"text": empty.replace("</s>", "")}], words)


def test_a_role_that_the_template_refuses(words):
    words.chat_template = REFUSES
    rows = [
        chat(("user", "Hi"), ("assistant", "Hello")),
        chat(("system", "Be kind"), ("user", "Hi"), ("assistant", "Yo")),
    ]
    said = refused(rows, words)
    assert "row 1 of those to train on: the model's chat template refuses its turns (system, user, assistant)" in said
    assert "no system role; leave such turns out, or put a system's words into the first question" in said


def test_a_tokenizer_of_another_model(words):
    said = refused([GOOD], words, vocabulary=100)
    assert "MODEL: its tokenizer makes number" in said and "the model has 100 embeddings; save the tokenizer" in said


def test_no_rows(words):
    with pytest.raises(GuideError, match="DATASET: has 0 rows to train on; check the split"):
        check_rows(Dataset.from_dict({"text": []}), words, 64)
