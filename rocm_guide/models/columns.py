# SPDX-License-Identifier: MIT
"""The columns of a data set: the usual names are mapped to those that TRL trains on, others are refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rocm_guide.common.base import GuideError, shown
from rocm_guide.models.course_data import chat

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

__all__ = ["TRAINED_ON", "held_out_pair", "is_chat", "kind_of", "training_rows"]

Rows = TypeVar("Rows", "Dataset", "DatasetDict")
#: ShareGPT's names of the speakers, and those of chat templates.
_SPEAKERS = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}
_KNOWN = "text; prompt and completion; messages; instruction and output; question and answer; conversations"
#: What SFTTrainer is given of each layout that it knows; it would stumble over further columns.
TRAINED_ON = {"pair": ("prompt", "completion"), "text": ("text",)}


def kind_of(columns: list[str]) -> str:
    """Return which of the known layouts a data set has.

    Raises:
        GuideError: none of them.

    >>> kind_of(["instruction", "input", "output", "text"]), kind_of(["prompt", "completion", "answer"])
    ('alpaca', 'pair')
    """
    has = set(columns)
    for kind, needed in (
        ("pair", {"prompt", "completion"}),
        ("messages", {"messages"}),
        ("sharegpt", {"conversations"}),
        ("alpaca", {"instruction", "output"}),
        ("question", {"question", "answer"}),
        ("text", {"text"}),
    ):
        if needed <= has:
            return kind
    found = shown(", ".join(columns) or "none", 120)
    raise GuideError(f"the data set has the columns {found}; one of these is needed: {_KNOWN}")


def is_chat(rows: Dataset) -> bool:
    """Return whether rows are turns of a conversation, which a model's chat template has to put into text.

    >>> from datasets import Dataset
    >>> is_chat(Dataset.from_list([{"messages": [{"role": "user", "content": "Hi"}]}]))
    True
    """
    kind = kind_of(rows.column_names)
    turns = kind == "pair" and len(rows) > 0 and isinstance(rows[0]["prompt"], list)
    return turns or kind in ("messages", "sharegpt")


def training_rows(rows: Rows, tokenizer: Any = None) -> Rows:
    """Return ``rows`` with columns that ``SFTTrainer`` takes: ``prompt`` and ``completion``, or ``text``.

    Of a pair only the completion is learnt. Conversations (``messages``, ShareGPT's ``conversations``) become one pair
    for each answer of the assistant: all that was said before it, and the answer, so that no question is learnt.
    Alpaca's ``instruction``, ``input`` and ``output`` and the pair ``question`` and ``answer`` become pairs too; with a
    tokenizer that has a chat template they are put into it by TRL, otherwise into Llama 2's format. A ``text`` is
    learnt as a whole. A first token that the tokenizer adds by itself is taken off a prompt or text that brings it
    along. Columns of another layout are left out, and all others stay.

    Raises:
        GuideError: no known columns, a conversation without an answer, or a row that holds something else under such a
            name.

    >>> from datasets import Dataset
    >>> training_rows(Dataset.from_list([{"instruction": "Add.", "input": "1 and 2", "output": "3"}]))[0]["prompt"]
    '[INST] Add.\\n1 and 2 [/INST]'
    """
    splits = list(rows.values()) if hasattr(rows, "values") else [rows]
    columns = splits[0].column_names
    kind = kind_of(columns)
    own = TRAINED_ON.get(kind, ())
    # Columns of the same name with another meaning would be found first.
    extra = [c for c in ("text", "prompt", "completion", "messages", "conversations") if c in columns and c not in own]
    if kind in ("messages", "sharegpt"):
        return rows.map(lambda part: _answers(part, kind), batched=True, remove_columns=extra)
    rows = rows.remove_columns(extra) if extra else rows
    if kind in ("alpaca", "question"):
        template = bool(getattr(tokenizer, "chat_template", None))
        return rows.map(lambda row: _mapped(row, kind, template))
    first, name = first_added(tokenizer), own[0]
    if first and any(str(text).startswith(first) for split in splits for text in split[name]):
        return rows.map(lambda row: {name: _without(first, row[name])})
    return rows


def _without(first: str, text: Any) -> Any:
    return text.removeprefix(first) if isinstance(text, str) else text


def first_added(tokenizer: Any) -> str:
    """Return the text of the token that a tokenizer puts before every text; empty if it adds none.

    A template or a data set may begin with that token, too, and two of them are not what a model was trained with.
    Without a tokenizer it is Llama's.

    >>> first_added(None)
    '<s>'
    """
    if tokenizer is None:
        return "<s>"
    first = getattr(tokenizer, "bos_token", None) or ""
    return first if first and tokenizer("").input_ids[:1] == [tokenizer.bos_token_id] else ""


def _answers(part: Mapping[str, list[Any]], kind: str) -> dict[str, list[Any]]:
    """Return a batch of conversations as pairs, one for each answer; what stands in other columns is repeated."""
    name = "messages" if kind == "messages" else "conversations"
    others = [c for c in part if c not in ("text", "prompt", "completion", "messages", "conversations")]
    made: dict[str, list[Any]] = {c: [] for c in ("prompt", "completion", *others)}
    for i, turns in enumerate(part[name]):
        try:
            if kind == "sharegpt":
                turns = [{"role": _SPEAKERS[t["from"]], "content": t["value"]} for t in turns]
            answers = [n for n, turn in enumerate(turns) if turn["role"] == "assistant"]
        except (KeyError, TypeError) as e:
            each = "'from': 'human', 'gpt' or 'system', 'value': text"
            each = each if kind == "sharegpt" else "'role': 'user', 'assistant' or 'system', 'content': text"
            form = f"has an unknown form ({shown(e, 60)})"
            raise GuideError(f"a row of the data set {form}; each turn is {{{each}}}") from e
        if not answers:
            raise GuideError("a conversation of the data set has no answer of the assistant; leave such rows out")
        for n in answers:
            made["prompt"].append(turns[:n])
            made["completion"].append(turns[n : n + 1])
            for c in others:
                made[c].append(part[c][i])
    return made


def _mapped(row: Mapping[str, Any], kind: str, template: bool) -> dict[str, Any]:
    names = ("instruction", "output") if kind == "alpaca" else ("question", "answer")
    for name in names:
        if row[name] is None or isinstance(row[name], (list, dict)):
            held = type(row[name]).__name__.replace("NoneType", "nothing")
            raise GuideError(f"a row of the data set holds {held} as {name}, where a text belongs; leave such rows out")
    question, answer = (str(row[name]) for name in names)
    if kind == "alpaca" and row.get("input"):
        question += f"\n{row['input']}"
    if template:
        pair = {"prompt": [{"role": "user", "content": question}]}
        return pair | {"completion": [{"role": "assistant", "content": answer}]}
    prompt, completion = chat(question, answer)
    return {"prompt": prompt, "completion": completion}


def held_out_pair(row: Mapping[str, Any], tokenizer: Any) -> tuple[str, str]:
    """Return (prompt, completion) as text, for a row of :func:`training_rows`: what is given, and what is judged.

    Both are without the first token where the tokenizer adds it. Of a ``text`` in Llama 2's format what follows the
    last ``[/INST]`` is judged; of any other text all of it, with an empty prompt.

    >>> held_out_pair({"text": "<s>[INST] 1 + 1? [/INST] 2 </s>"}, None)
    ('[INST] 1 + 1? [/INST]', ' 2 </s>')
    """
    first = first_added(tokenizer)
    if "completion" not in row:
        before, mark, after = str(row["text"]).removeprefix(first).rpartition("[/INST]")
        return (before + mark, after) if mark else ("", after)
    if isinstance(row["prompt"], str):
        return row["prompt"].removeprefix(first), row["completion"]
    asked, answer = [dict(t) for t in row["prompt"]], [dict(t) for t in row["completion"]]
    if not getattr(tokenizer, "chat_template", None):
        return chat("\n".join(t["content"] or "" for t in asked), answer[-1]["content"] or "")
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*asked, *answer], tokenize=False)
    start = len(prompt) if whole.startswith(prompt) else whole.rfind(answer[-1]["content"])
    return whole[:start].removeprefix(first), whole[start:]
