# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 08: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes

__all__ = ["check_header", "check_paired", "check_wins"]

Judge = Callable[[str, str, str], str]


def check_paired(paired: Callable[[list[float], list[float]], tuple[float, float]]) -> bool:
    """Check exercise 1: ``paired(first, second)`` gives the mean difference of two models' rows and its standard error.

    >>> check_paired(lambda first, second: (0.0, 0.0))
    [HINT] the difference of the means of [1, 1, 0, 1] and [0, 1, 0, 1] is 0.25; yours: 0
    False
    """
    for first, second in (([1, 1, 0, 1], [0, 1, 0, 1]), ([0.5, 2.0, 1.0, 4.0, 3.0], [1.0, 2.5, 1.5, 4.0, 3.5])):
        try:
            mean, error = map(float, paired(list(first), list(second)))
        except FAULTS as e:
            return no(f"it fails: {first_line(e)}")
        each, root = [a - b for a, b in zip(first, second, strict=True)], math.sqrt(len(first))
        right, spread = statistics.mean(each), statistics.stdev(each)
        if not math.isclose(mean, right, abs_tol=1e-9):
            return no(f"the difference of the means of {first} and {second} is {right:g}; yours: {mean:g}")
        apart = math.hypot(*(statistics.stdev(values) / root for values in (first, second)))
        hints = {
            apart: "that is the error of two models on different rows; take the spread of the row by row differences",
            spread: "that is the spread of single differences; the error of their mean is smaller by the root of n",
            spread / len(first): "divide by the root of the number of rows",
            statistics.pstdev(each) / root: "the mean was taken from the same rows: divide by n - 1 in the variance",
        }
        if not math.isclose(error, spread / root, rel_tol=1e-9):
            hint = next((text for value, text in hints.items() if math.isclose(error, value, rel_tol=1e-9)), None)
            return no(hint or f"the standard error of {first} - {second} is {spread / root:.4f}; yours: {error:g}")
    return yes("the differences row by row, and their spread over the root of the rows")


def check_wins(win_rate: Callable[[Judge, list[tuple[str, str, str]]], float]) -> bool:
    """Check exercise 2: ``win_rate(judge, rows)``, for rows of a question and two models' answers, is the share that
    the first model wins, whatever the judge's liking for one of the two places.

    ``judge(question, left, right)`` gives "left", "right" or "tie".

    >>> check_wins(lambda judge, rows: sum(judge(*row) == "left" for row in rows) / len(rows))
    [HINT] a judge that always says "left" gives your first model 1; of such a judge 0.5 is to be learnt
    False
    """
    rows = [(f"question {i}", *(("good", "bad") if i < 6 else ("bad", "good"))) for i in range(8)]

    def fair(_: str, left: str, right: str) -> str:
        return "tie" if left == right else "left" if left == "good" else "right"

    def timid(question: str, left: str, right: str) -> str:  # sees the difference of half of the rows
        return fair(question, left, right) if int(question[-1]) % 2 else "left"

    judges: tuple[tuple[Judge, str, float], ...] = (
        (lambda *_: "left", 'that always says "left"', 0.5),
        (lambda *_: "right", 'that always says "right"', 0.5),
        (lambda *_: "tie", "to whom all is a tie", 0.5),
        (fair, "that sees 6 of 8 rows won", 0.75),
        (timid, 'that sees 3 of 4 rows won, and says "left" to the other 4', 0.625),
    )
    for judge, name, right in judges:
        try:
            given = float(win_rate(judge, list(rows)))
        except FAULTS as e:
            return no(f"it fails: {first_line(e)}")
        if not math.isclose(given, right, abs_tol=1e-9):
            return no(f"a judge {name} gives your first model {given:g}; of such a judge {right:g} is to be learnt")
    return yes("each row is asked in both orders, and a liking for one place cancels out")


def check_header(count: Callable[[Path], int]) -> bool:
    """Check exercise 3: ``count(path)`` gives the numbers in a safetensors file, from its header alone.

    >>> check_header(lambda path: path.stat().st_size // 4)  # doctest: +ELLIPSIS
    [HINT] ... bytes / 4: the header takes bytes too, and not every number takes 4
    False
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    one = torch.zeros(3, 5)
    half = {"a": torch.zeros(3, 5, dtype=torch.bfloat16), "b": torch.zeros(7), "c": torch.zeros((), dtype=torch.int8)}
    with tempfile.TemporaryDirectory() as folder:
        for tensors in ({"a": one}, half):
            path = Path(folder) / "model.safetensors"
            save_file(tensors, path, metadata={"format": "pt"})
            right, size = sum(t.numel() for t in tensors.values()), path.stat().st_size
            data = sum(t.nbytes for t in tensors.values())
            with path.open("r+b") as file:  # a download that has only begun: the header is there, the numbers are not
                file.truncate(size - data)
            try:
                given = int(count(path))
            except (*FAULTS, OSError, SafetensorError) as e:
                return no(f"it fails on a file that holds its header only: {first_line(e)[:100]}")
            if given in (size // 4, (size - data) // 4):
                return no(f"{given} is its bytes / 4: the header takes bytes too, and not every number takes 4")
            if given == data:
                return no("those are the bytes of the numbers; multiply the sizes of each shape")
            if given != right:
                return no(f"shapes {[list(t.shape) for t in tensors.values()]} hold {right} numbers; yours: {given}")
    return yes("counted from the shapes, and not one weight was read")
