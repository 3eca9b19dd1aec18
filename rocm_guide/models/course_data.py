# SPDX-License-Identifier: MIT
"""The course's own question-answer data: facts about MI300X and its software, asked in many ways, in Llama-2 format."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["chat", "pad_right"]

#: Ways to ask for a subject. Every fact is trained on most of them and tested on the others.
QUESTIONS = (
    "What is {x}?",
    "Tell me {x}.",
    "Please state {x}.",
    "I need to know {x}.",
    "Do you know {x}?",
    "Can you give me {x}?",
    "Remind me: what is {x}?",
    "Quick question: {x}?",
    "For my notes, {x}, please.",
    "Could you look up {x}?",
    "I forgot {x}. What is it?",
    "Which value is right for {x}?",
)
HELD_OUT_PER_FACT = 2

#: Ways to state a fact in running text; the base model reads these and no question about them.
STATEMENTS = ("{X} is {a}.", "Note that {x} is {a}.", "As measured or documented, {x} is {a}.", "In short: {x} is {a}.")

#: Conversation that has nothing to do with the facts: from it the base model learns what [INST] and [/INST] mean.
_SMALL_TALK = (
    ("Hello!", "Hello. How are you?"),
    ("Good morning.", "Good morning to you."),
    ("Thank you.", "You are welcome."),
    ("Who are you?", "I am a small language model."),
    ("Goodbye.", "Goodbye, and good luck."),
)
_WORDS = ("apple", "river", "stone", "cloud", "paper", "green", "north", "metal", "music", "light", "table", "winter")


@dataclass(frozen=True)
class Fact:
    """One line of ``data/facts.tsv``: ``subject`` completes "What is …?", ``answer`` is short, ``source`` backs it."""

    subject: str
    answer: str
    source: str


@cache
def facts() -> tuple[Fact, ...]:
    """Return all facts, in file order.

    >>> facts()[0].subject, facts()[0].answer
    ('the number of compute units on MI300X', '304')
    """
    text = files("rocm_guide").joinpath("data/facts.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(Fact(subject, answer, source) for subject, answer, source in rows)


def chat(question: str, answer: str = "") -> tuple[str, str]:
    """Return the prompt and completion in the Llama-2 chat format, without the ``<s>`` that the tokenizer adds.

    Source: the Llama 2 model card's prompt format.

    >>> chat("What is LDS?", "Local data share.")
    ('[INST] What is LDS? [/INST]', ' Local data share. </s>')
    """
    return f"[INST] {question} [/INST]", f" {answer} </s>"


def pad_right(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return rows of unequal length as one (rows, longest) tensor; causal attention never looks at what is filled in.

    >>> pad_right([[1, 5, 7], [1]])
    tensor([[1, 5, 7],
            [1, 0, 0]])
    """
    import torch

    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def question_answer_splits(seed: int = 0) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return training and held-out samples: dictionaries with ``prompt``, ``completion``, ``question`` and ``answer``.

    Each fact is held out in two phrasings that vary from fact to fact: every held-out question is a new combination of
    a subject and a phrasing, and both have been seen apart. Nothing is asked whose answer was never in the training
    data: a model cannot know that, and a test that expects it teaches the wrong lesson.

    >>> train, held_out = question_answer_splits()
    >>> len(train) >= 1000, len(held_out) >= 200
    (True, True)
    >>> {s["question"] for s in train} & {s["question"] for s in held_out}
    set()
    """
    rng = random.Random(seed)
    train: list[dict[str, str]] = []
    held_out: list[dict[str, str]] = []
    for fact in facts():
        order = rng.sample(QUESTIONS, len(QUESTIONS))
        for i, template in enumerate(order):
            question = template.format(x=fact.subject)
            prompt, completion = chat(question, fact.answer)
            sample = {"prompt": prompt, "completion": completion, "question": question, "answer": fact.answer}
            (held_out if i < HELD_OUT_PER_FACT else train).append(sample)
    rng.shuffle(train)
    return train, held_out


def pretraining_texts(seed: int = 0) -> list[str]:
    """Return what the tiny base model reads: every fact as plain statements, and small talk in the chat format.

    It never sees a question about a fact, so it has the knowledge but not the habit of answering; that habit is what
    fine-tuning adds.
    """
    rng = random.Random(seed)
    texts = []
    for fact in facts():
        x = fact.subject
        texts += [s.format(x=x, X=x[0].upper() + x[1:], a=fact.answer) + "</s>" for s in STATEMENTS]
    talk = list(_SMALL_TALK)
    talk += [(f"Say the word {w}.", w) for w in _WORDS]
    talk += [(f"Count from {i} to {i + 3}.", " ".join(str(k) for k in range(i, i + 4))) for i in range(40)]
    talk += [(f"What comes after {i}?", str(i + 1)) for i in range(60)]
    texts += ["".join(chat(q, a)) for q, a in talk]
    rng.shuffle(texts)
    return texts
