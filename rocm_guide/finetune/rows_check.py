# SPDX-License-Identifier: MIT
"""Check the rows of a data set as a trainer will see them, before it trains: what is learnt and what is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError, shown
from rocm_guide.models.columns import held_out_pair

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["check_preferences", "check_rows"]

_TURN = "{'role': 'user', 'assistant' or 'system', 'content': text}"
_MOST = 20_000  # rows that are looked at: a minute's work at the most


def check_rows(rows: Dataset, tokenizer: Any, length: int, *, vocabulary: int = 0) -> None:
    """Check that every row has an answer to learn within ``length`` tokens, and print one line: how long they are.

    The first 20,000 rows are looked at.

    Args:
        rows: from :func:`rocm_guide.models.columns.training_rows`.
        length: ``max_length`` of the trainer, in tokens.
        vocabulary: rows of the model's embedding; 0 if it is not known.

    Raises:
        GuideError: a role that the chat template refuses, an empty answer, a tokenizer of another model, or a row whose
            answer begins behind ``length`` tokens. The message names the row and the fix.

    >>> from datasets import Dataset
    >>> from rocm_guide.models.load import load_tokenizer
    >>> row = {"prompt": "[INST] Hi [/INST]", "completion": " Hello. </s>"}
    >>> check_rows(Dataset.from_list([row]), load_tokenizer(), 64)
    [OK]   1 row of 15 to 15 tokens, 6 of 15 are learnt
    """
    few = rows.select(range(min(len(rows), _MOST)))
    if not len(few):
        raise GuideError("DATASET: has 0 rows to train on; check the split and the filter that made it")
    lengths, learnt, behind = [], 0, []
    for i, row in enumerate(few):
        where = f"DATASET: row {i} of those to train on"
        prompt, answer = _texts(row, tokenizer, where)
        if not answer.replace(tokenizer.eos_token or "\0", "").strip():
            raise GuideError(f"{where} ('{shown(prompt, 60)}') has an empty answer; leave such rows out")
        given, ids = (tokenizer(text).input_ids for text in (prompt, prompt + answer))
        start = len(given) if prompt else 0
        if vocabulary and max(ids) >= vocabulary:
            fix = "save the tokenizer of this model beside its weights, or resize the model's embeddings"
            word = shown(tokenizer.convert_ids_to_tokens(max(ids)), 30)
            told = f"its tokenizer makes number {max(ids):,} of '{word}', and the model has {vocabulary:,} embeddings"
            raise GuideError(f"MODEL: {told}; {fix}")
        lengths.append(len(ids))
        learnt += max(0, min(len(ids), length) - start)
        if start >= length:
            behind.append((i, len(ids), prompt))
    if behind:
        i, tokens, prompt = behind[0]
        also = f" (and {len(behind) - 1:,} more)" if behind[1:] else ""
        longest = max(n for _, n, _ in behind)
        fix = f"raise LENGTH to {longest}, or leave such rows out"
        told = f"row {i} of those to train on{also}, '{shown(prompt, 40)}', has nothing to learn within LENGTH={length}"
        raise GuideError(f"DATASET: {told} of its {tokens} tokens; {fix}")
    longer = [n - length for n in lengths if n > length]
    if longer:
        told = f"{len(longer):,} of {len(lengths):,} rows are longer than LENGTH={length}: up to {max(longer):,} tokens"
        print(f"[WARN] {told} of an answer's end are cut; LENGTH={max(lengths)} would keep all")
    all_tokens = sum(min(n, length) for n in lengths)
    rows_said = f"{len(lengths):,} row{'s' if len(lengths) > 1 else ''}"
    print(f"[OK]   {rows_said} of {min(lengths)} to {max(lengths)} tokens, {learnt:,} of {all_tokens:,} are learnt")


def check_preferences(rows: Dataset, tokenizer: Any, length: int) -> None:
    """Check that preference rows can be learnt from, and print one line: how long their answers are.

    The first 20,000 rows are looked at.

    Args:
        rows: columns ``prompt``, ``chosen`` and ``rejected``, as texts or as turns of a conversation; without a prompt
            of turns ``chosen`` and ``rejected`` are whole conversations, and what they begin with is the prompt. A
            column ``answer`` may hold what a program can check. Others are named and left out.
        length: ``max_length`` of the trainer, in tokens.

    Raises:
        GuideError: other columns, no rows, a row that holds something else than texts or turns, an empty answer, two
            equal ones, turns without a chat template or that it refuses, or a prompt that fills ``length``. The
            message names the row and the fix.

    >>> from datasets import Dataset
    >>> from rocm_guide.models.load import load_tokenizer
    >>> row = {"prompt": "[INST] Hi [/INST]", "chosen": " Hello. </s>", "rejected": " Go away, please. </s>"}
    >>> check_preferences(Dataset.from_list([row]), load_tokenizer(), 64)
    [OK]   1 pair of up to 20 tokens; on average the chosen answer has 6 tokens, the rejected one 11
    """
    has = rows.column_names
    if missing := [name for name in ("chosen", "rejected") if name not in has]:
        fix = "rename yours to prompt, chosen and rejected"
        raise GuideError(f"DATASET: has the columns {shown(', '.join(has), 120)} and no {' or '.join(missing)}; {fix}")
    if left := [name for name in has if name not in ("prompt", "chosen", "rejected", "answer")]:
        print(f"[WARN] columns that are not used: {shown(', '.join(left), 120)}")
    few = rows.select(range(min(len(rows), _MOST)))
    if not len(few):
        raise GuideError("DATASET: has 0 rows to train on; check the split and the filter that made it")
    longest, sums = 0, [0, 0]
    for i, row in enumerate(few):
        where = f"DATASET: row {i} of those to train on"
        prompt, *answers = _preference(row, tokenizer, where)
        for name, answer in zip(("chosen", "rejected"), answers, strict=True):
            if not answer.replace(tokenizer.eos_token or "\0", "").strip():
                raise GuideError(f"{where} ('{shown(prompt, 60)}') has an empty answer in {name}; leave such rows out")
        if answers[0].strip() == answers[1].strip():
            told = f"chosen and rejected are equal ('{shown(answers[0].strip(), 40)}')"
            raise GuideError(f"{where}: {told}: no preference can be learnt from them; leave such rows out")
        given = len(tokenizer(prompt).input_ids)
        if given >= length:
            told = f"its prompt of {given} tokens ('{shown(prompt, 40)}') fills LENGTH={length}"
            raise GuideError(f"{where}: {told}, and TRL would drop it; raise LENGTH, or leave such rows out")
        whole = [len(tokenizer(prompt + answer).input_ids) for answer in answers]
        longest = max(longest, *whole)
        sums = [total + tokens - given for total, tokens in zip(sums, whole, strict=True)]
    if longest > length:
        print(f"[WARN] the longest pair has {longest} tokens: the end of what is longer than LENGTH={length} is cut")
    chosen, rejected = (total / len(few) for total in sums)
    pairs = f"{len(few):,} pair{'s' if len(few) > 1 else ''} of up to {longest} tokens"
    means = f"on average the chosen answer has {chosen:.3g} tokens, the rejected one {rejected:.3g}"
    print(f"[OK]   {pairs}; {means}")


def _preference(row: Mapping[str, Any], tokenizer: Any, where: str) -> tuple[str, str, str]:
    """Return prompt, chosen and rejected answer of a row as texts; of turns as the chat template writes them."""
    from jinja2.exceptions import TemplateError

    kinds = {name: type(row[name]) for name in ("prompt", "chosen", "rejected") if name in row}
    if set(kinds.values()) == {str} and len(kinds) == 3:
        both = (row["chosen"], row["rejected"])
        pairs = [held_out_pair({"prompt": row["prompt"], "completion": text}, tokenizer) for text in both]
        return pairs[0][0], pairs[0][1], pairs[1][1]
    if (kinds["chosen"], kinds["rejected"]) != (list, list):
        held = ", ".join(f"{name}: {getattr(kind, '__name__', kind)}" for name, kind in kinds.items())
        fix = "give all three as texts, or chosen and rejected as turns ({'role': …, 'content': …})"
        raise GuideError(f"{where} holds {held}; {fix}")
    if not getattr(tokenizer, "chat_template", None):
        fix = "take its chat or instruct variant, or give prompt, chosen and rejected as texts"
        raise GuideError(f"MODEL: has no chat template, and DATASET holds conversations; {fix}")
    try:
        asked, sides = row.get("prompt"), [row["chosen"], row["rejected"]]
        given = [*sides, *([asked] if isinstance(asked, list) else [])]
        if odd := next((found for found in given if _kind(found) != "turns"), None):
            raise GuideError(f"{where} has an unknown form ({shown(odd, 60)}); each turn is {_TURN}")
        if not isinstance(asked, list):  # what both begin with; each keeps its last turn
            same = [one == other for one, other in zip(*sides, strict=False)]
            shared = min([*same, False].index(False), *(max(0, len(turns) - 1) for turns in sides))
            _refuse_no_question(sides[0][:shared], tokenizer, where)
            asked, sides = sides[0][:shared], [turns[shared:] for turns in sides]
        texts = []
        for turns in sides:  # a template may be unable to write an empty turn
            said = bool(turns) and bool((turns[-1]["content"] or "").strip())
            pair = {"prompt": asked, "completion": turns}
            texts.append(held_out_pair(pair, tokenizer) if said else (str(asked[-1]["content"]) if asked else "", ""))
    except TemplateError as e:
        fix = "leave such turns out, or put a system's words into the first question"
        raise GuideError(f"{where}: the model's chat template refuses its turns: {shown(e, 80)}; {fix}") from e
    return texts[0][0], texts[0][1], texts[1][1]


def _kind(found: Any) -> str:
    """Return what a row holds: "a text", "turns" of a conversation, or the type of something else.

    >>> _kind("Hi"), _kind([{"role": "user", "content": None}]), _kind([]), _kind(["Hi"]), _kind(None)
    ('a text', 'turns', 'turns', 'list', 'NoneType')
    """
    if isinstance(found, str):
        return "a text"
    turns = isinstance(found, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content", 0), str | None)
        for turn in found
    )
    return "turns" if turns else type(found).__name__


def _refuse_no_question(asked: list[Any], tokenizer: Any, where: str) -> None:
    """Refuse a conversation that begins with its answer: no chat template can write that."""
    if not asked and getattr(tokenizer, "chat_template", None):
        raise GuideError(f"{where}: nothing is asked before the answer; leave such rows out, or put a question first")


def _texts(row: Mapping[str, Any], tokenizer: Any, where: str) -> tuple[str, str]:
    """Return what is given and what is learnt of a row; a ``text`` is learnt as a whole."""
    from jinja2.exceptions import TemplateError

    if "completion" not in row:
        if not isinstance(row["text"] or "", str):
            raise GuideError(f"{where} holds text: {type(row['text']).__name__}; give texts")
        return "", row["text"] or ""
    kinds = {name: _kind(row[name]) for name in ("prompt", "completion")}
    if set(kinds.values()) not in ({"a text"}, {"turns"}):
        held = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise GuideError(f"{where} holds {held}; give both as texts, or both as turns ({_TURN})")
    if kinds["prompt"] == "turns":
        _refuse_no_question(row["prompt"], tokenizer, where)
    if not isinstance(row["prompt"], str) and not (row["completion"][-1]["content"] or "").strip():
        return str(row["prompt"][-1]["content"] if row["prompt"] else ""), ""  # a template may be unable to write it
    try:
        return held_out_pair(row, tokenizer)
    except TemplateError as e:
        roles = ", ".join(t["role"] for t in [*row["prompt"], *row["completion"]])
        fix = "leave such turns out, or put a system's words into the first question"
        raise GuideError(
            f"{where}: the model's chat template refuses its turns ({roles}): {shown(e, 80)}; {fix}"
        ) from e
