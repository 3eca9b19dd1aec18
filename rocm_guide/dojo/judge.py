# SPDX-License-Identifier: MIT
"""Run a solution in Triton's interpreter on every case of its puzzle, and say what the first wrong one means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cdna.guard import watch_memory
from cdna.interpret import explain_error, time_limit
from cdna.interpreter.patches import exact_conversions, quick_interpreter
from cdna.kernel_source import unpack_objects
from cdna.run.launches import poison_mode
from rocm_guide.dojo.catalogue import find_puzzle
from rocm_guide.dojo.puzzle import Case, Puzzle

__all__ = ["Verdict", "judge_packed"]

_SECONDS = 8.0  # processor time of one case
_UNDEFINED = (
    "a load without other=: what masked lanes hold is not defined (NaN here), and it takes part; other=0 for a sum, "
    "-inf for a maximum"
)
_ROUNDED = "almost right: a sum or product runs in fp16; .to(tl.float32) before you add, and accumulate in fp32"
_NOTHING = "no kernel has stored anything yet: launch yours, as kernel[grid](…)"
_NOT_BY_KERNELS = "the result stays the same when the kernels store nothing: something else has computed it"
_LARGE = 1 << 24  # bytes; a larger storage is not copied to see whether it was changed


@dataclass(frozen=True)
class Verdict:
    """The outcome of the cases.

    Attributes:
        cases: how many were right before the first wrong one.
        found: what is wrong, with the first wrong element; empty if all are right.
        hint: the probable mistake.
        traffic: bytes moved over the floor, where a case counts them; else 0.
        stored: whether any kernel stored anything.
    """

    cases: int
    found: str = ""
    hint: str = ""
    traffic: float = 0.0
    stored: bool = False


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _widen(value: Any) -> Any:
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _dtypes(puzzle: Puzzle) -> list[Any]:
    """Return the types of the outputs, as the puzzle's text states them."""
    import torch

    if "float8_e4m3fnuz" in puzzle.formula:
        return [torch.float8_e4m3fnuz]
    return [torch.float32 if "in fp32" in puzzle.task or "float()" in puzzle.formula else torch.float16]


def compare_output(got: Any, wanted: Any, dtype: Any, absolute: float, relative: float) -> tuple[str, str]:
    """Return what is wrong with an output, in one line (empty if nothing), and of which kind:
    "NaN", "rounded" or neither.

    >>> import torch
    >>> compare_output(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.float32, 0, 0)
    ('element [1] is 3, and 2 is right; 1 of 2 elements are wrong', '')
    """
    import torch

    if not isinstance(got, torch.Tensor):
        return (f"returns {type(got).__name__}, not a tensor" if got is not None else "a return is missing"), ""
    if tuple(got.shape) != tuple(wanted.shape):
        return f"returns the shape {list(got.shape)}; {list(wanted.shape)} is wanted", ""
    if got.dtype != dtype:
        return f"returns {str(got.dtype)[6:]}; {str(dtype)[6:]} is wanted", ""
    mine, right = got.double(), wanted.double()
    # What does not fit into the output's type is infinite in both.
    right = right.to(dtype).double() if dtype != torch.float8_e4m3fnuz else right
    good = (mine - right).abs() <= absolute + relative * right.abs()
    good |= (mine == right) | (mine.isnan() & right.isnan())
    if good.all():
        return "", ""
    wrong = int((~good).sum())
    first = [int(i) for i in (~good).nonzero()[0]]
    value, expected = float(mine[tuple(first)]), float(right[tuple(first)])
    said = f"element {first} is {value:.6g}, and {expected:.6g} is right; {wrong} of {good.numel()} elements are wrong"
    if math.isnan(value):
        return said, "NaN"
    near = (mine - right).abs() <= 0.004 * (1 + right.abs())
    return said, "rounded" if dtype == torch.float32 and bool((good | near).all()) else ""


def _depends_on_masked_lanes(call: Callable[..., Any], arguments: tuple[Any, ...], got: list[Any]) -> bool:
    """Return whether the result is another one when masked lanes of loads without ``other`` hold 0 instead of NaN."""
    with time_limit(_SECONDS), exact_conversions(), watch_memory(strict=True, undefined=False), poison_mode():
        again = _as_list(call(*arguments))
    pairs = zip(map(_widen, got), map(_widen, again), strict=True)
    return any(not bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


def _run_case(call: Callable[..., Any], puzzle: Puzzle, case: Case, files: list[str]) -> Verdict:
    """Run one case; ``cases`` of the verdict is 1 if it is right."""
    import torch

    arguments = case.arguments()
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    before = [t.clone() if t.untyped_storage().nbytes() <= _LARGE else None for t in tensors]
    wanted = _as_list(puzzle.reference(*map(_widen, arguments)))
    try:
        with time_limit(_SECONDS), exact_conversions(), watch_memory(strict=True) as watch, poison_mode():
            got = _as_list(call(*arguments))
    except Exception as e:  # noqa: BLE001  whatever a reader's code raises
        said = explain_error(e, files)
        # A wrong address is what the case was planted for; any other error speaks for itself.
        return Verdict(0, f"{case.name}: {said}", case.hint if "outside its tensor" in said else "")
    for tensor, kept in zip(tensors, before, strict=True):
        if kept is not None and not torch.equal(
            tensor.nan_to_num() if tensor.is_floating_point() else tensor,
            kept.nan_to_num() if kept.is_floating_point() else kept,
        ):
            return Verdict(0, f"{case.name}: changes its argument", "write to a tensor of your own")
    if len(got) != len(wanted):
        return Verdict(0, f"{case.name}: returns {len(got)} tensors; {len(wanted)} are wanted", case.hint)
    for mine, right, dtype in zip(got, wanted, _dtypes(puzzle) * len(wanted), strict=False):
        said, kind = compare_output(mine, right, dtype, puzzle.absolute, puzzle.relative)
        if not said:
            continue
        hint = _ROUNDED if kind == "rounded" else case.hint
        if watch.stored == 0:
            hint = _NOTHING
        elif kind == "NaN" and watch.undefined and _depends_on_masked_lanes(call, arguments, got):
            hint = _UNDEFINED
        elif kind == "NaN":
            said += "; NaN: nothing was written there, or the kernel computed it (an overflow, 0/0)"
        return Verdict(0, f"{case.name}: {said}", hint)
    given = case.needed(*arguments) if case.needed else sum(t.numel() * t.element_size() for t in tensors)
    floor = given + sum(t.numel() * t.element_size() for t in got)
    traffic = (watch.loaded + watch.stored) / floor if case.traffic else 0.0
    return Verdict(1, traffic=traffic, stored=watch.stored > 0)


def _comes_from_kernels(call: Callable[..., Any], puzzle: Puzzle) -> bool:
    """Return whether the result of the plainest case changes when no kernel stores anything."""
    arguments = puzzle.cases[0].arguments()
    wanted = _as_list(puzzle.reference(*map(_widen, arguments)))
    try:
        with time_limit(_SECONDS), exact_conversions(), watch_memory(discard=True), poison_mode():
            got = _as_list(call(*arguments))
    except Exception:  # noqa: BLE001  a kernel that waits for what was stored shows that it depends on it
        return True
    dtypes = _dtypes(puzzle) * len(wanted)
    parts = zip(got, wanted, dtypes, strict=False)
    return any(compare_output(g, w, d, puzzle.absolute, puzzle.relative)[0] for g, w, d in parts)


def judge_call(call: Callable[..., Any], name: str, files: list[str]) -> Verdict:
    """Judge all cases of a puzzle, up to the first wrong one; needs ``TRITON_INTERPRET=1``."""
    puzzle = find_puzzle(name)
    right, traffic, stored = 0, 0.0, False
    for case in puzzle.cases:
        verdict = _run_case(call, puzzle, case, files)
        if verdict.found:
            return Verdict(right, verdict.found, verdict.hint)
        right, traffic, stored = right + 1, max(traffic, verdict.traffic), stored or verdict.stored
    if stored and not _comes_from_kernels(call, puzzle):
        return Verdict(right, _NOT_BY_KERNELS, "return what your kernel has written, not what PyTorch computed")
    return Verdict(right, traffic=traffic)


def judge_packed(packed: dict[str, Any], name: str) -> Verdict:
    """Call :func:`judge_call` for a function that :func:`cdna.kernel_source.pack_objects` took apart."""
    try:
        (call,) = unpack_objects(packed)
    except Exception as e:  # noqa: BLE001  whatever a reader's code raises
        return Verdict(0, explain_error(e, list(packed["lines"])), "restart the kernel and run the cells in order")
    with quick_interpreter():
        return judge_call(call, name, list(packed["lines"]))
