# SPDX-License-Identifier: MIT
"""Check the rows of a data set as a trainer will see them, before it trains: what is learnt and what is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError, shown
from rocm_guide.models.columns import held_out_pair

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["check_rows"]

_MOST = 20_000  # rows that are looked at: a minute's work at the most


def check_rows(rows: Dataset, tokenizer: Any, length: int, *, vocabulary: int = 0) -> None:
    """Check that every row has an answer to learn within ``length`` tokens, and print one line: how long they are.

    The first 20,000 rows are looked at.

    Args:
        rows: from :func:`rocm_guide.models.columns.training_rows`.
        tokenizer: the model's.
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


def _texts(row: Mapping[str, Any], tokenizer: Any, where: str) -> tuple[str, str]:
    """Return what is given and what is learnt of a row; a ``text`` is learnt as a whole."""
    from jinja2.exceptions import TemplateError

    if "completion" not in row:
        return "", row["text"] or ""
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
