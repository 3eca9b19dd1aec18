# SPDX-License-Identifier: MIT
"""The columns of a data set: the usual names are mapped to those that TRL trains on, others are refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rocm_guide.base import GuideError, shown
from rocm_guide.zoo.data import chat

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

__all__ = ["held_out_pair", "training_rows"]

Rows = TypeVar("Rows", "Dataset", "DatasetDict")
#: ShareGPT's names of the speakers, and those of chat templates.
_SPEAKERS = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}
_KNOWN = "text; prompt and completion; messages; instruction and output; question and answer; conversations"
#: What SFTTrainer is given of each layout that it knows; it would stumble over further columns.
TRAINED_ON = {"pair": ("prompt", "completion"), "messages": ("messages",), "text": ("text",)}


def kind_of(columns: list[str]) -> str:
    """Which of the known layouts a data set has.

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
    """Whether rows are turns of a conversation, which a model's chat template has to put into text.

    >>> from datasets import Dataset
    >>> is_chat(Dataset.from_list([{"messages": [{"role": "user", "content": "Hi"}]}]))
    True
    """
    kind = kind_of(rows.column_names)
    return kind in ("messages", "sharegpt") or (
        kind == "pair" and len(rows) > 0 and isinstance(rows[0]["prompt"], list)
    )


def training_rows(rows: Rows, tokenizer: Any = None) -> Rows:
    """``rows`` with columns that ``SFTTrainer`` takes: ``prompt`` and ``completion``, ``messages``, or ``text``.

    Alpaca's ``instruction``, ``input`` and ``output`` and the pair ``question`` and ``answer`` become ``prompt`` and
    ``completion``, so that only the answer is learnt; with a tokenizer that has a chat template they are put into it by
    TRL, otherwise into Llama 2's format. ShareGPT's ``conversations`` become ``messages``. The other columns stay.

    Raises:
        GuideError: no known columns, or a row that holds something else under such a name.

    >>> from datasets import Dataset
    >>> training_rows(Dataset.from_list([{"instruction": "Add.", "input": "1 and 2", "output": "3"}]))[0]["prompt"]
    '[INST] Add.\\n1 and 2 [/INST]'
    """
    splits = list(rows.values()) if hasattr(rows, "values") else [rows]
    kind = kind_of(splits[0].column_names)
    if kind in ("pair", "messages", "text"):
        return rows
    template = bool(getattr(tokenizer, "chat_template", None))
    # Columns of the same name with another meaning would be found first.
    extra = [c for c in ("text", "prompt", "completion", "messages") if c in splits[0].column_names]
    plain = rows.remove_columns(extra) if extra else rows
    return plain.map(lambda row: _mapped(row, kind, template))


def _mapped(row: Mapping[str, Any], kind: str, template: bool) -> dict[str, Any]:
    try:
        if kind == "sharegpt":
            turns = row["conversations"]
            return {"messages": [{"role": _SPEAKERS[t["from"]], "content": t["value"]} for t in turns]}
        names = ("instruction", "output") if kind == "alpaca" else ("question", "answer")
        question, answer = (str(row[name]) for name in names)
    except (KeyError, TypeError) as e:
        fix = "each turn is {'from': 'human', 'gpt' or 'system', 'value': text}"
        raise GuideError(f"a row of the data set has an unknown form ({shown(e, 60)}); {fix}") from e
    if kind == "alpaca" and row.get("input"):
        question += f"\n{row['input']}"
    if template:
        pair = {"prompt": [{"role": "user", "content": question}]}
        return pair | {"completion": [{"role": "assistant", "content": answer}]}
    prompt, completion = chat(question, answer)
    return {"prompt": prompt, "completion": completion}


def held_out_pair(row: Mapping[str, Any], tokenizer: Any) -> tuple[str, str]:
    """(prompt, completion) as plain text, for a row of :func:`training_rows`: what is given, and what is judged.

    Of a conversation the last answer is judged. Of a ``text`` in Llama 2's format what follows the last ``[/INST]``;
    of any other text all of it, with an empty prompt.

    >>> held_out_pair({"text": "<s>[INST] 1 + 1? [/INST] 2 </s>"}, None)
    ('[INST] 1 + 1? [/INST]', ' 2 </s>')
    """
    if isinstance(row.get("prompt"), str):
        return row["prompt"], row["completion"]
    turns = row.get("messages") or [*row.get("prompt", ()), *row.get("completion", ())]
    if turns:
        turns = [dict(t) for t in turns]
        while turns and turns[-1].get("role") != "assistant":
            turns.pop()
        if not turns:
            raise GuideError("a conversation of the data set has no answer of the assistant; leave such rows out")
        if not getattr(tokenizer, "chat_template", None):
            return chat("\n".join(t["content"] for t in turns[:-1]), turns[-1]["content"])
        prompt = tokenizer.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(turns, tokenize=False)
        start = len(prompt) if whole.startswith(prompt) else whole.rfind(turns[-1]["content"])
        # The tokenizer adds its own first token.
        first = getattr(tokenizer, "bos_token", None) or ""
        return whole[:start].removeprefix(first), whole[start:]
    text = str(row["text"]).removeprefix("<s>")
    before, mark, after = text.rpartition("[/INST]")
    return (before + mark, after) if mark else ("", text)
