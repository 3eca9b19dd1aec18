# SPDX-License-Identifier: MIT
"""Rows that would spoil a training are refused before it starts, in one line that names the row and the fix."""

import pytest
from datasets import Dataset

from rocm_guide.common.base import GuideError
from rocm_guide.finetune import check_preferences, check_rows
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


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"prompt": "Hi", "completion": None},
            "row 0 of those to train on holds prompt: a text, completion: NoneType; give",
        ),
        ({"prompt": 1, "completion": 2}, "holds prompt: int, completion: int; give both as texts, or both as turns"),
        ({"prompt": "Hi", "completion": ["Yes"]}, "holds prompt: a text, completion: list"),
        ({"text": 3}, "holds text: int; give texts"),
        ({"text": {"a": 1}}, "holds text: dict; give texts"),
        ({"instruction": "Add.", "output": None}, "holds nothing as output, where a text belongs; leave"),
        ({"question": ["Why?"], "answer": "So."}, "holds list as question, where a text belongs; leave"),
        (
            chat(("assistant", "Hello"), ("user", "Hi")),
            "row 0 of those to train on: nothing is asked before the answer",
        ),
        ({"messages": [{"role": 5, "content": "Hi"}, {"role": 6, "content": "a"}]}, "no answer of the assistant"),
        ({"messages": [{"role": "user", "content": 1}, {"role": "assistant", "content": 2}]}, "prompt: list"),
    ],
)
def test_what_is_no_text_and_no_turn_stops_it(row, told, words):
    words.chat_template = words.chat_template or REFUSES
    assert told in refused([row], words)


def test_a_question_without_words_is_written_without_a_template(words, capsys):
    words.chat_template = None
    turns = [{"role": "user", "content": None}, {"role": "assistant", "content": "Hello."}]
    check_rows(training_rows(Dataset.from_list([{"messages": turns}]), words), words, 64)
    assert capsys.readouterr().out.startswith("[OK]   1 row of ")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"text": "a"}\n', "has 1 row to train on and no split 'test'; give two rows at least"),
        (b'{"text": "a"}\n{"text": "\xe9"}\n', "rows.jsonl: byte 24 is not UTF-8; save the file in UTF-8"),
        (b'{"text": "a"}\n{"text": "' + b"a" * (1 << 20) + "é".encode()[:1], "byte 1,048,600 is not UTF-8"),
    ],
    ids=["one row", "latin-1", "cut in a letter"],
)
def test_a_file_that_cannot_be_split_or_read(tmp_path, data, told):
    (tmp_path / "rows.jsonl").write_bytes(data)
    for spec in (tmp_path / "rows.jsonl", tmp_path):
        with pytest.raises(GuideError) as e:
            load_data(str(spec))
        assert told in str(e.value) and "\n" not in str(e.value)


PAIR = {"prompt": "[INST] Hi [/INST]", "chosen": " Hello. </s>", "rejected": " Go away. </s>"}


def turns(*said):
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]


def not_preferred(rows, words, length=64):
    with pytest.raises(GuideError) as e:
        check_preferences(Dataset.from_list(rows), words, length)
    assert "\n" not in str(e.value)
    return str(e.value)


def test_pairs_of_every_layout_are_counted_alike(words, capsys):
    """The same pair as texts, as turns, as two whole conversations, and those beside a prompt that is a text."""
    asked, said = turns("Hi"), {"chosen": "Hello.", "rejected": "Go away."}
    answers = {name: [{"role": "assistant", "content": text}] for name, text in said.items()}
    whole = {name: asked + turn for name, turn in answers.items()}
    for row in (PAIR, {"prompt": asked, **answers}, whole, {"prompt": "Hi", **whole}):
        check_preferences(Dataset.from_list([row]), words, 64)
    one, *others = capsys.readouterr().out.splitlines()
    assert others == [one] * 3 and one.startswith("[OK]   1 pair of up to ")
    given, chosen, rejected = (len(words(PAIR["prompt"] + PAIR.get(n, "")).input_ids) for n in ("", *said))
    assert f"chosen answer has {chosen - given} tokens, the rejected one {rejected - given}" in one


def test_what_is_not_used_or_cut_is_said(words, capsys):
    long = {**PAIR, "rejected": " Go" * 60, "score": 1.0}
    check_preferences(Dataset.from_list([{**PAIR, "score": 0.5}, long]), words, 40)
    said = capsys.readouterr().out
    tokens = len(words(long["prompt"] + long["rejected"]).input_ids)
    assert "[WARN] columns that are not used: score" in said
    assert f"the longest pair has {tokens} tokens: the end of what is longer than LENGTH=40 is cut" in said


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"question": "Hi", "answer": "Hello"}, "has the columns question, answer and no chosen or rejected; rename"),
        ({"prompt": "Hi", "chosen": "Hello"}, "has the columns prompt, chosen and no rejected"),
        ({**PAIR, "rejected": " Hello. </s> "}, "row 1 of those to train on: chosen and rejected are equal ('Hello."),
        ({**PAIR, "chosen": " </s>"}, "('[INST] Hi [/INST]') has an empty answer in chosen; leave"),
        ({**PAIR, "rejected": None}, "holds prompt: str, chosen: str, rejected: NoneType; give all three as texts"),
        ({**PAIR, "prompt": "Hi " * 80}, "fills LENGTH=64, and TRL would drop it; raise LENGTH"),
    ],
)
def test_pairs_that_teach_nothing_stop_it(row, told, words):
    rows = [row] if "chosen" not in row or "rejected" not in row else [PAIR, row]
    assert told in not_preferred(rows, words)


@pytest.mark.parametrize(
    ("chosen", "rejected", "told"),
    [
        (turns("Hi", "Hello."), turns("Hi", "Hello."), "are equal ('Hello."),
        (turns("Hi", "Hello."), turns("Hi", " "), "('[INST] Hi [/INST]') has an empty answer in rejected"),
        ([{"says": "Hi"}], [{"says": "Ho"}], "has an unknown form ([{'says': 'Hi'}]); each turn is {'role'"),
        (turns("Hi"), turns("Ho"), "nothing is asked before the answer; leave such rows out"),
    ],
)
def test_conversations_that_teach_nothing_stop_it(chosen, rejected, told, words):
    assert told in not_preferred([{"chosen": chosen, "rejected": rejected}], words)


def test_conversations_need_a_template_that_takes_them(words):
    row = {"chosen": [{"role": "system", "content": "Be kind."}, *turns("Hi", "Hello.")]}
    row["rejected"] = [*row["chosen"][:2], *turns("Hi", "Go.")[1:]]
    words.chat_template = REFUSES
    assert "template refuses its turns: no system role; leave" in not_preferred([row], words)
    words.chat_template = None
    assert "MODEL: has no chat template, and DATASET holds conversations; take its chat" in not_preferred([row], words)
