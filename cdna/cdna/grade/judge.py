# SPDX-License-Identifier: MIT
"""Run a solution on every case of its puzzle, interpreted or executed, and say what the first wrong one means."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cdna.grade.cheats import TorchWatch
from cdna.grade.limits import MEMORY, SECONDS, attempt, confine, explain_limits, limits
from cdna.grade.puzzle import MASK, OFFSET, Case, Puzzle, find_puzzle
from cdna.grade.ways import Executed, Interpreted, Seen, Way
from cdna.interpreter.patches import quick_interpreter
from cdna.kernel_source import unpack_objects

__all__ = ["Verdict", "judge_packed"]

_UNDEFINED = (
    "a load without other=: what masked lanes hold is not defined (NaN here), and it takes part; other=0 for a sum, "
    "-inf for a maximum"
)
_ROUNDED = "almost right: a sum or product runs in fp16; .to(tl.float32) before you add, and accumulate in fp32"
_NOTHING = "no kernel has stored anything yet: launch yours, as kernel[grid](…)"
_NEVER = "the kernels ran and stored nothing: is there a tl.store, is its mask ever true, does its loop reach the end?"
_UNWRITTEN = (
    "too few programs, too short a loop, or all programs on the same block: triton.cdiv(n, BLOCK) programs, "
    "range(0, n, BLOCK) steps, offsets that begin at tl.program_id(0) * BLOCK"
)
_ADDED = "the kernels add to what the memory held before: the result starts at 0, torch.zeros"
_NOT_BY_KERNELS = "the result stays the same when the kernels store nothing: something else has computed it"
_KEPT = "the result of the call before comes again when no kernel runs: something has kept it"
_OWN = "return what your kernel has written, not what PyTorch computed"
_LARGE = 1 << 24  # bytes; a larger storage is not copied to see whether it was changed
_FAR_MEMORY = 12 << 30  # bytes of address space that an output of more than 2^31 elements may take


@dataclass(frozen=True)
class Verdict:
    """The outcome of the cases.

    Attributes:
        cases: how many were right before the first wrong one.
        found: what is wrong, with the first wrong element; empty if all are right.
        hint: the probable mistake.
        traffic: bytes moved over the floor, where a case counts them; else 0.
        check: the name of the check that fails.
    """

    cases: int
    found: str = ""
    hint: str = ""
    traffic: float = 0.0
    check: str = "result"


@dataclass
class _Bench:
    """What a judgement has at hand: the solution, its puzzle, the names of its files, its limits, how it is run."""

    call: Callable[..., Any]
    puzzle: Puzzle
    files: list[str]
    seconds: float
    pulse: Callable[[], None]
    way: Way

    def run(self, given: tuple[Any, ...], way: Any, *modes: Any, memory: int = MEMORY) -> tuple[list[Any], Any]:
        """Call the solution within its limits, as ``way`` runs it and inside of ``modes``; return all results, and what
        was seen.
        """
        self.pulse()
        arguments = own_copies(self.puzzle, given)
        with contextlib.ExitStack() as stack:
            stack.enter_context(limits(self.seconds, memory))
            seen = stack.enter_context(way)
            for mode in modes:
                stack.enter_context(mode)
            returned = self.call(*arguments)
        return all_results(self.puzzle, arguments, returned), seen

    def equals(self, got: list[Any], wanted: list[Any]) -> bool:
        """Return whether all outputs are right."""
        p = self.puzzle
        return len(got) == len(wanted) and not any(
            compare_output(g, w, _dtype(p), p.absolute, p.relative)[0] for g, w in zip(got, wanted, strict=True)
        )


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def own_copies(puzzle: Puzzle, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments, with copies in the same layout of those that a solution is to change."""
    import torch

    copies = list(arguments)
    for i in puzzle.writes:
        t = arguments[i]
        copies[i] = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)
    return tuple(copies)


def all_results(puzzle: Puzzle, arguments: tuple[Any, ...], returned: Any) -> list[Any]:
    """Return what a solution returned, and the arguments that it was to change."""
    return [*_as_list(returned), *(arguments[i] for i in puzzle.writes)]


def _widen(value: Any) -> Any:
    import torch

    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _dtype(puzzle: Puzzle) -> Any:
    import torch

    return getattr(torch, puzzle.dtype)


def compare_output(
    got: Any, wanted: Any, dtype: Any, absolute: float, relative: float, sums: float = 0.0
) -> tuple[str, str]:
    """Return what is wrong with an output, in one line (empty if nothing), and of which kind:
    "form", "NaN", "overflow", "rounded" or none of these; ``sums`` is :attr:`~cdna.grade.puzzle.Case.sums`.

    >>> import torch
    >>> compare_output(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.float32, 0, 0)
    ('element [1] is 3, and 2 is right; 1 of 2 elements are wrong', '')
    """
    import torch

    if not isinstance(got, torch.Tensor):
        return (f"returns {type(got).__name__}, not a tensor" if got is not None else "a return is missing"), "form"
    if tuple(got.shape) != tuple(wanted.shape):
        return f"returns the shape {list(got.shape)}; {list(wanted.shape)} is wanted", "form"
    if got.dtype != dtype:
        return f"returns {str(got.dtype)[6:]}; {str(dtype)[6:]} is wanted", "form"
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
    if torch.isinf(mine[~good]).all() and not torch.isinf(right[~good]).any():
        return said, "overflow"
    largest = float(right[right.isfinite()].abs().max()) if bool(right.isfinite().any()) else 0.0
    share, part = (0.01, 2e-3) if dtype == torch.float32 else (0.03, 2e-4)  # of the element, and of the largest
    near = (mine - right).abs() <= share * right.abs() + part * largest + 4e-3 * sums
    return said, "rounded" if bool((good | near).all()) else ""


def compare_all(puzzle: Puzzle, arguments: tuple[Any, ...], got: list[Any]) -> str:
    """Return what is wrong with a solution's results, in one line; empty if nothing is."""
    wanted = _as_list(puzzle.reference(*map(_widen, arguments)))
    if len(got) != len(wanted):
        return f"returns {len(got)} tensors; {len(wanted)} are wanted"
    dtype, pairs = _dtype(puzzle), zip(got, wanted, strict=True)
    said = (compare_output(g, w, dtype, puzzle.absolute, puzzle.relative)[0] for g, w in pairs)
    return next((s for s in said if s), "")


def _same(a: list[Any], b: list[Any]) -> bool:
    pairs = zip(map(_widen, a), map(_widen, b), strict=True)
    return all(bool(((x == y) | (x.isnan() & y.isnan())).all()) for x, y in pairs)


def _why_nan(bench: _Bench, arguments: tuple[Any, ...], got: list[Any], watch: Seen) -> tuple[str, str]:
    """Return where a NaN comes from, by calling again with other things in memory, and the hint if that is known."""
    if watch.undefined:
        # Masked lanes of loads without ``other`` hold 0 now instead of NaN.
        again, _ = bench.run(arguments, bench.way.watched(undefined=False))
        if not _same(got, again):
            return "", _UNDEFINED
    number = next(i for i, g in enumerate(got) if bool(g.double().isnan().any()))
    place = tuple(got[number].double().isnan().nonzero()[0].tolist())
    other = bench.run(arguments, bench.way.watched(byte=0x3C))[0][number]
    if math.isnan(float(other[place])):
        return "; the kernel computed the NaN: an overflow, 0/0 or inf - inf", ""
    filled = other.new_empty(1)
    filled.untyped_storage().fill_(0x3C)
    if float(other[place]) == float(filled[0]):
        return "; nothing was written there", _UNWRITTEN
    return "; what was in memory before takes part", _ADDED if watch.atomics else _UNWRITTEN


def _hint(
    bench: _Bench, case: Case, arguments: tuple[Any, ...], got: list[Any], kind: str, watch: Seen
) -> tuple[str, str]:
    """Return more about a wrong output, and the probable mistake; both from what was seen."""
    if kind == "form":
        return "", ""
    if not watch.launches or not watch.stored:
        return "", _NEVER if watch.programs else _NOTHING
    more, hint = _why_nan(bench, arguments, got, watch) if kind == "NaN" else ("", "")
    if hint:
        return more, hint
    for fault in bench.puzzle.faults:
        wrong = _as_list(fault.wrong(*map(_widen, arguments)))
        if any(bool(w.isfinite().any()) for w in wrong) and bench.equals(got, wrong):
            return more, fault.hint
    if kind in ("rounded", "overflow"):
        return more, _ROUNDED if kind == "rounded" else f"{case.hint}; or {_ROUNDED.partition(': ')[2]}"
    return more, case.hint


def _changed(tensor: Any, kept: Any) -> bool:
    import torch

    now, then = _widen(tensor), _widen(kept)  # FP8 has no nan_to_num
    return not (torch.equal(now.nan_to_num(), then.nan_to_num()) if now.is_floating_point() else torch.equal(now, then))


def _without_kernels(bench: _Bench, arguments: tuple[Any, ...], wanted: list[Any], before: list[Any]) -> str:
    """Return what makes the result right when no kernel runs, empty if it is not; a result of zeros shows nothing."""
    if not any(bool(w.nan_to_num().any()) for w in wanted):
        return ""
    done, error = attempt(lambda: bench.run(arguments, bench.way.nothing()))
    # A wrapper that reads what was stored, and fails without, shows that it depends on it.
    if error or not bench.equals(got := done[0], wanted):
        return ""
    return _KEPT if any(g.data_ptr() == b.data_ptr() for g, b in zip(got, before, strict=True)) else _NOT_BY_KERNELS


def _last_program(bench: _Bench, case: Case) -> Verdict:
    """Judge the addresses of the last program of each launch, and what it has written."""
    arguments = case.arguments()
    for back in (0, *(1 << n for n in range(11))):  # the last ones may be there in vain
        way = bench.way.alone(back, poison=case.wanted)
        done, error = attempt(partial(bench.run, arguments, way, memory=MEMORY + _FAR_MEMORY))
        if error or done[1].stored:
            break
    if error:
        said, *_ = bench.way.explain(bench.call, error, bench.files, MEMORY + _FAR_MEMORY)
        # The whole of it was judged in smaller cases; here only addresses count.
        return Verdict(0, f"{case.name}: {said}", case.hint) if "outside its tensor" in said else Verdict(1)
    got, watch = done
    if not watch.stored:
        fix = f"a grid that is much larger than the work? If it is not: {case.hint}"
        return Verdict(0, f"{case.name}: its last programs store nothing", fix)
    if not case.wanted or watch.launches != 1 or watch.atomics:
        return Verdict(1)
    p, wanted = bench.puzzle, _as_list(bench.puzzle.reference(*map(_widen, arguments)))
    dtype = _dtype(p)
    for mine, right in zip(got, wanted, strict=True):
        written = ~mine.isnan()
        shown = mine.where(written, right.to(dtype))
        said, kind = compare_output(shown, right, dtype, p.absolute, p.relative, case.sums)
        if said:
            return Verdict(0, f"{case.name}, last program: {said}", _ROUNDED if kind == "rounded" else case.hint)
    return Verdict(1)


def _hint_of_an_address(said: str, case: Case) -> str:
    """Return the probable mistake of an access outside its tensor; an error of another kind speaks for itself."""
    if "outside its tensor" not in said:
        return ""
    if "32 bits?" in said:
        return case.hint if OFFSET in case.hint else OFFSET
    if "past the end" in case.hint or re.search(r"position \[0(, 0)*\]", said):
        return case.hint  # a block that lies outside from its first element on has a wrong offset
    return MASK


def _floor(bench: _Bench, case: Case, arguments: tuple[Any, ...], got: list[Any]) -> int:
    """Return the bytes that have to be moved: every input read once, every output written once. Of an argument that is
    to be changed, only what does change.
    """
    import torch

    writes = bench.puzzle.writes
    read = [a for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and i not in writes]
    given = case.needed(*arguments) if case.needed else sum(t.numel() * t.element_size() for t in read)
    returned = got[: len(got) - len(writes)]
    changed = (
        (got[len(returned) + n] != arguments[i]).sum() * arguments[i].element_size() for n, i in enumerate(writes)
    )
    return int(given + sum(t.numel() * t.element_size() for t in returned) + sum(changed))


def _run_case(bench: _Bench, case: Case) -> Verdict:
    """Run one case; ``cases`` of the verdict is 1 if it is right."""
    import torch

    if case.last:
        return _last_program(bench, case)
    puzzle, arguments = bench.puzzle, case.arguments()
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    kept = [t.clone() if t.numel() * t.element_size() <= _LARGE else None for t in tensors]
    wanted = _as_list(puzzle.reference(*map(_widen, arguments)))
    torches = TorchWatch(arguments, moves=puzzle.moves)
    done, error = attempt(lambda: bench.run(arguments, bench.way.watched(), torches.watching(*bench.way.launch)))
    if error:
        said, hint, check = bench.way.explain(bench.call, error, bench.files, MEMORY)
        return Verdict(0, f"{case.name}: {said}", _hint_of_an_address(said, case) or hint, check=check)
    got, watch = done
    for tensor, before in zip(tensors, kept, strict=True):
        if before is not None and _changed(tensor, before):
            return Verdict(0, f"{case.name}: changes its argument", "write to a tensor of your own")
    if len(got) != len(wanted):
        return Verdict(0, f"{case.name}: returns {len(got)} tensors; {len(wanted)} are wanted")
    for mine, right in zip(got, wanted, strict=True):
        said, kind = compare_output(mine, right, _dtype(puzzle), puzzle.absolute, puzzle.relative, case.sums)
        if said:
            more, hint = _hint(bench, case, arguments, got, kind, watch)
            return Verdict(0, f"{case.name}: {said}{more}", hint)
    if not watch.launches:
        return Verdict(0, f"{case.name}: no Triton kernel was launched", "launch your kernel: kernel[grid](…)")
    if puzzle.gluon and (foreign := watch.foreign):
        how = "decorate it with @gluon.jit, and give each tile its layout"
        return Verdict(0, f"{case.name}: {foreign} is written in Triton's language, and Gluon is asked for", how)
    if said := _without_kernels(bench, arguments, wanted, got):
        return Verdict(0, f"{case.name}: {said}", _OWN if said == _NOT_BY_KERNELS else "compute each call anew")
    if torches.used:
        return Verdict(
            0, f"{case.name}: PyTorch computes with the arguments ({torches.used})", "let the kernel do that"
        )
    if not watch.read & torches.given:
        return Verdict(0, f"{case.name}: no kernel reads the arguments: something else has computed the result", _OWN)
    return Verdict(
        1, traffic=(watch.loaded + watch.stored) / _floor(bench, case, arguments, got) if case.traffic else 0
    )


def judge_call(
    call: Callable[..., Any],
    puzzle: Puzzle,
    files: list[str],
    seconds: float = SECONDS,
    pulse: Callable[[], None] = lambda: None,
    way: Way | None = None,
) -> Verdict:
    """Judge all cases of a puzzle, up to the first wrong one, in Triton's interpreter or as ``way`` runs them."""
    bench = _Bench(call, puzzle, files, seconds, pulse, way or Interpreted())
    right, traffic = 0, 0.0
    for case in puzzle.cases:
        verdict = _run_case(bench, case)
        if verdict.found:
            return replace(verdict, cases=right, hint=bench.way.words(verdict.hint))
        right, traffic = right + 1, max(traffic, verdict.traffic)
    return Verdict(right, traffic=traffic)


def judge_packed(
    packed: dict[str, Any], place: str, name: str, executed: bool = False, seconds: float = SECONDS, beat: str = ""
) -> Verdict:
    """Call :func:`judge_call` for a function that :func:`cdna.kernel_source.pack_objects` took apart;
    ``executed`` runs gfx942 code, ``beat`` is a file to touch at each call.
    """
    puzzle, files = find_puzzle(place, name), list(packed["lines"])
    with contextlib.nullcontext() if executed else quick_interpreter():
        confine()
        with limits(seconds):
            calls, error = attempt(lambda: unpack_objects(packed))
        if error:
            return Verdict(0, explain_limits(error, files), "restart the kernel and run the cells in order")
        pulse = Path(beat).touch if beat else lambda: None
        return judge_call(calls[0], puzzle, files, seconds, pulse, Executed() if executed else Interpreted())
