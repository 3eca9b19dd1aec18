# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 00: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdna.predict.specs import gpu
from rocm_guide.exercises.common import no, yes
from rocm_guide.models.course_data import chat

__all__ = ["STATEMENTS", "WEIGHTS_GB", "check_fits", "check_kinds", "check_prompt"]

#: Exercise 1: billions of parameters of some models, counted on the meta device.
WEIGHTS_GB: dict[str, float] = {
    name: billions * 2
    for name, billions in {
        "llama-2-7b": 6.738,
        "llama-2-13b": 13.016,
        "llama-2-70b": 68.977,
        "llama-3.1-405b": 405.853,
    }.items()
}

#: Exercise 3: what is measured, computed or quoted?
STATEMENTS: dict[str, str] = {
    "A": "Llama-2-7B in bfloat16 has 13.5 GB of weights.",
    "B": "An MI300X moves 5.3 TB/s between its memory and its compute units.",
    "C": "Our matrix product took as long as the line that ends in (median of 20) says.",
    "D": "Reading 13.5 GB at 5.3 TB/s takes 2.5 ms, so one token takes at least that long.",
}


def check_fits(models: Iterable[str]) -> bool:
    """Check exercise 1: the models of :data:`WEIGHTS_GB` whose bf16 weights leave at least a quarter of an MI300X free.

    Its memory is 192 GiB (2^30 bytes); sizes of models are in GB (10^9 bytes).

    >>> check_fits(["llama-2-7b", "llama-2-13b"])
    [HINT] llama-2-70b is missing: 138 GB is at most three quarters of 206 GB (192 GiB)
    False
    """
    gib = gpu("MI300X").memory_gib
    memory = gib * 2**30 / 1e9
    given = set(models)
    if unknown := sorted(given - set(WEIGHTS_GB)):
        return no(f"{unknown[0]!r} is not one of {', '.join(WEIGHTS_GB)}")
    for name, size in WEIGHTS_GB.items():
        fits = size <= 0.75 * memory
        if fits and name not in given:
            total = f"{memory:.0f} GB ({gib:g} GiB)"
            return no(f"{name} is missing: {size:.0f} GB is at most three quarters of {total}")
        if not fits and name in given:
            return no(f"{name} is too much: 2 bytes for each parameter make {size:.0f} GB")
    fit = [name for name, size in WEIGHTS_GB.items() if size <= 0.75 * memory]
    most = WEIGHTS_GB[fit[-1]]
    left = f"{most:.0f} GB of {memory:.0f} and leaves {memory - most:.0f} GB"
    return yes(f"{len(fit)} fit; {fit[-1]} takes {left}")


def check_prompt(text: str) -> bool:
    """Check exercise 2: "What is LDS?" as a prompt in the Llama-2 chat format, ready for the tokenizer.

    >>> check_prompt("<s>[INST] What is LDS? [/INST]")
    [HINT] the tokenizer adds <s> itself; written out it would be there twice
    False
    """
    question = "What is LDS?"
    right, _ = chat(question)
    if text == right:
        return yes("this is where the model's answer begins")
    hint = f"the question stands between [INST] and [/INST], one space on either side of it: {question!r}"
    if text.startswith("<s>"):
        hint = "the tokenizer adds <s> itself; written out it would be there twice"
    elif "</s>" in text:
        hint = "</s> ends an answer; a prompt that holds it says that all has been said"
    elif text.strip() == right:
        hint = "take the spaces at the ends away: the space before the answer belongs to the answer"
    elif text.replace(" ", "") == right.replace(" ", ""):
        hint = "count the spaces: the model has only seen one on either side of the question"
    return no(hint)


def check_kinds(answers: Mapping[str, str]) -> bool:
    """Check exercise 3: each of :data:`STATEMENTS` is ``"measured"``, ``"computed"`` or ``"quoted"``.

    >>> check_kinds({"A": "computed", "B": "measured", "C": "measured", "D": "computed"})
    [HINT] B: it is on the vendor's data sheet; we have not timed it, and a real program gets less
    False
    """
    right = {"A": "computed", "B": "quoted", "C": "measured", "D": "computed"}
    why = {
        "A": "nobody put it on a scale: parameters x 2 bytes",
        "B": "it is on the vendor's data sheet; we have not timed it, and a real program gets less",
        "C": "it has a median, a number of runs and the hardware: somebody timed it",
        "D": "a division of two numbers gives a bound; a measurement can only be slower",
    }
    for name in right:
        if answers.get(name) not in ("measured", "computed", "quoted"):
            return no(f"{name}: say 'measured', 'computed' or 'quoted' for each statement")
        if answers[name] != right[name]:
            return no(f"{name}: {why[name]}")
    return yes("and each of them is worth something only with its label")
