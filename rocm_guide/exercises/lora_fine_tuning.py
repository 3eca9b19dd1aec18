# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 02: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.common import FAULTS, no, yes

__all__ = ["check_masked", "check_settings", "check_split"]


def check_settings(settings: Any) -> bool:
    """Check exercise 1: an SFTConfig with an effective batch of 64 rows on one device, 8 of them in memory at a time.

    >>> from types import SimpleNamespace
    >>> check_settings(SimpleNamespace(per_device_train_batch_size=8, gradient_accumulation_steps=1))
    [HINT] 8 rows x 1 steps of accumulation = 8, and 64 are wanted
    False
    """
    rows = getattr(settings, "per_device_train_batch_size", None)
    steps = getattr(settings, "gradient_accumulation_steps", None)
    if rows is None or steps is None:
        return no(f"{type(settings).__name__} is no SFTConfig; make one with sft_settings(folder, …)")
    if rows * steps != 64:
        return no(f"{rows} rows x {steps} steps of accumulation = {rows * steps}, and 64 are wanted")
    if rows != 8:
        return no(f"{rows} rows are in memory at a time; the exercise allows 8")
    return yes(f"{rows} rows in memory, gradients of {steps} passes added up before each step")


def check_masked(labels: Any, ids: Any, prompt_tokens: int) -> bool:
    """Check exercise 2: labels for one sample in which only the completion is learnt: -100 over the prompt.

    >>> check_masked([5, 6, 7], [5, 6, 7], 2)
    [HINT] the prompt is learnt too: its first 2 labels must be -100, which the loss ignores
    False
    """
    labels, ids = [int(x) for x in labels], [int(x) for x in ids]
    if len(labels) != len(ids):
        return no(f"{len(labels)} labels for {len(ids)} tokens; there is one for each")
    if any(x != -100 for x in labels[:prompt_tokens]):
        return no(f"the prompt is learnt too: its first {prompt_tokens} labels must be -100, which the loss ignores")
    if labels[prompt_tokens:] != ids[prompt_tokens:]:
        return no("after the prompt each label is the token itself; the model shifts them by one on its own")
    return yes(f"{prompt_tokens} prompt tokens ignored, {len(ids) - prompt_tokens} tokens learnt")


def check_split(split: Callable[[str], tuple[str, str]]) -> bool:
    """Check exercise 3: cut a chat of several turns, as Guanaco's ``text`` has them, into a prompt and its last answer.

    >>> check_split(lambda text: ("", text))
    [HINT] the prompt is empty: it ends with the last [/INST], and the completion is what follows
    False
    """
    one = "<s>[INST] What is LDS? [/INST] Local data share. </s>"
    two = f"{one}<s>[INST] How large? [/INST] 64 KiB per CU. </s>"
    for text, answer in ((one, " Local data share. </s>"), (two, " 64 KiB per CU. </s>")):
        try:
            prompt, completion = split(text)
        except FAULTS as e:
            return no(f"it should give two texts, prompt and completion ({e})")
        if not prompt:
            return no("the prompt is empty: it ends with the last [/INST], and the completion is what follows")
        if prompt + completion not in (text, text.removeprefix("<s>")):
            return no(f"prompt and completion together are {prompt + completion!r}; no character may be lost")
        if completion != answer:
            return no(f"of {text!r} the completion should be {answer!r}, yours is {completion!r}")
        if prompt.startswith("<s>"):
            return no("the tokenizer adds the first <s> on its own; leave it out of the prompt")
    return yes("the last answer is learnt, everything before it is given")
