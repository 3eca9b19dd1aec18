# SPDX-License-Identifier: MIT
"""Repairs of assembly listings for MI300X: a missing wait, and bank conflicts; judged by executing the machine code.

Triton places waits and chooses the layout of LDS itself, so these mistakes cannot be made in it, and they can be read
and repaired in the code only. The executor (:mod:`cdna.run`) is stricter than hardware: a register that is
read before its load has returned is an error each time, in every order of the waves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdna.checks import Check
from cdna.grade.puzzle import GradeError
from cdna.run import run
from cdna.run.errors import RunError
from cdna.run.session import Result

__all__ = ["LISTINGS", "ListingPuzzle", "check_listing"]

_ORDERS: tuple[str | int, ...] = ("together", "alone", "round_robin", 1, 2)
_LIMIT = 5_000  # instructions of a wave: the listings have about twenty

_FRAME = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.type {name},@function
{name}:
{code}  s_endpgm
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 16
  .amdhsa_next_free_vgpr 16
  .amdhsa_accum_offset 16
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .max_flat_workgroup_size: {threads}
    .name:           {name}
.end_amdgpu_metadata
"""

_WAIT = """  s_load_dwordx4 s[4:7], s[0:1], 0x0             ; the addresses of x and of y
  v_lshlrev_b32_e32 v1, 2, v0                    ; bytes of this lane from the start
  v_sub_u32_e32 v4, 0x3fc, v1                    ; and of the lane that stands opposite
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:1024   ; needed last: it may stay under way
  s_waitcnt vmcnt(1)
  ds_write_b32 v1, v2
  s_barrier
  ds_read_b32 v2, v4
  s_waitcnt lgkmcnt(0)
  v_add_f32_e32 v2, v2, v3
  global_store_dword v1, v2, s[6:7]
"""

_BANKS = """  s_load_dwordx4 s[4:7], s[0:1], 0x0   ; the addresses of x and of y
  v_lshlrev_b32_e32 v1, 2, v0          ; bytes of this lane from the start
  v_lshrrev_b32_e32 v2, 5, v0          ; its row
  v_and_b32_e32 v3, 31, v0             ; its column
  v_mul_u32_u24_e32 v4, 0x80, v2       ; a row takes 128 bytes of LDS
  v_lshl_add_u32 v4, v3, 2, v4         ; where this lane writes
  v_mul_u32_u24_e32 v5, 0x80, v3
  v_lshl_add_u32 v5, v2, 2, v5         ; where it reads: row and column exchanged
  s_waitcnt lgkmcnt(0)
  global_load_dword v6, v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b32 v4, v6
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v7, v5
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v7, s[6:7]
"""


@dataclass(frozen=True)
class ListingPuzzle:
    """A listing that is to be repaired.

    Attributes:
        name: by which it is graded.
        task: what the kernel takes and stores.
        formula: what it is to store, as it is printed.
        starter: the listing with its fault.
        shapes: of its argument ``x`` and of its result ``y``, both fp32.
        reference: ``y`` from ``x``.
        exchanged: bytes that have to go through LDS at least, written and read.
        lds: bytes of LDS for each workgroup, at most.
        waits: whether a wait for more than is needed is refused.
        conflicts: whether bank conflicts are refused.
    """

    name: str
    task: str
    formula: str
    starter: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    reference: Callable[[Any], Any]
    exchanged: int
    lds: int
    waits: bool = False
    conflicts: bool = False


LISTINGS = {
    p.name: p
    for p in (
        ListingPuzzle(
            name="missing_wait",
            task="a listing of one workgroup of 256 lanes: y[i] is x[255 - i] + x[256 + i]; two waits are missing",
            formula="x[255 - i] + x[256 + i]",
            starter=_FRAME.format(name="missing_wait", code=_WAIT, lds=1024, threads=256),
            shapes=((512,), (256,)),
            reference=lambda x: x[255::-1] + x[256:],
            exchanged=2048,
            lds=1024,
            waits=True,
        ),
        ListingPuzzle(
            name="bank_conflicts",
            task="a listing of one workgroup of 1,024 lanes that transposes a matrix of 32 x 32 through LDS; the lanes "
            "of a wave read a column whose elements all lie in one bank",
            formula="x.T",
            starter=_FRAME.format(name="bank_conflicts", code=_BANKS, lds=4096, threads=1024),
            shapes=((32, 32), (32, 32)),
            reference=lambda x: x.T,
            exchanged=8192,
            lds=4608,
            conflicts=True,
        ),
    )
}


#: What to do about an error of the executor, by its rule.
_FIXES = {
    "wait": "a register is read before it is there: wait for it before its first use, and no earlier",
    "race": "each wave waits for its own writes, and then all meet at the barrier",
    "undefined": "each wave waits for its own writes, and then all meet at the barrier",
    "bounds": "the addresses and the size of LDS belong together",
    "limit": "a loop that does not end",
}


def _each_order(puzzle: ListingPuzzle, text: str, x: Any) -> Iterator[tuple[Any, Result | RunError]]:
    """Yield ``y`` and the run, or its error, of each order of the waves."""
    for order in _ORDERS:
        y = np.full(puzzle.shapes[1], np.nan, np.float32)
        try:
            done: Result | RunError = run(text, 1, [x.copy(), y], order=order, limit=_LIMIT, wait_states=True)
        except RunError as e:
            done = e
        yield y, done


def _runs(puzzle: ListingPuzzle, text: str) -> tuple[str, str, Result | None]:
    """Return what is wrong when the listing runs in several orders of its waves, and the fix; and the last run."""
    x = np.random.default_rng(7).standard_normal(puzzle.shapes[0]).astype(np.float32)
    wanted, result = np.ascontiguousarray(puzzle.reference(x)), None
    for y, done in _each_order(puzzle, text, x):
        if isinstance(done, RunError):
            return str(done), _FIXES.get(done.rule, "compare the line with the starter"), None
        result = done
        if not np.array_equal(y, wanted):
            at = [int(i) for i in np.argwhere(y != wanted)[0]]
            first = f"element {at} is {y[tuple(at)]:.6g}, and {wanted[tuple(at)]:.6g} is right"
            said = f"{first}; {int((y != wanted).sum())} of {y.size} are wrong"
            return said, "compare with what the lines say that they do", None
    return "", "", result


def _weaker(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield each counter of each wait as (line, as it is, what would wait for less, the listing with that)."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        for found in re.finditer(r"\b(vmcnt|lgkmcnt)\((\d+)\)", line) if line.strip().startswith("s_waitcnt") else ():
            less = f"{found[1]}({int(found[2]) + 1})"
            changed = line[: found.start()] + less + line[found.end() :]
            yield i + 1, found[0], less, "\n".join([*lines[:i], changed, *lines[i + 1 :]])


def _instructions(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that does something: no wait, no ``s_nop``, no label."""
    for i, line in enumerate(lines):
        code = line.partition(";")[0].strip()
        if code and not code.startswith((".", "s_waitcnt", "s_nop")) and not code.endswith(":"):
            yield i + 1, code


def _first_need(puzzle: ListingPuzzle, weaker: str, at: int, counter: str) -> tuple[int, str]:
    """Return the line before which the counter of the wait in line ``at`` is needed first, and its code, if something
    else comes before; else 0.

    Without the counter the executor names the line that reads too early. With the wait moved to there the listing must
    be right in all orders.
    """
    runs = (done for _, done in _each_order(puzzle, weaker, np.zeros(puzzle.shapes[0], np.float32)))
    early = (e for e in runs if isinstance(e, RunError) and e.rule == "wait" and e.line > at)
    needed = next(early, None)
    if needed is None:
        return 0, ""
    lines = weaker.split("\n")
    between = [n for n, _ in _instructions(lines) if at < n < needed.line]
    moved = "\n".join([*lines[: needed.line - 1], f"  s_waitcnt {counter}", *lines[needed.line - 1 :]])
    if not between or _runs(puzzle, moved)[0]:
        return 0, ""
    return needed.line, lines[needed.line - 1].partition(";")[0].strip()


def _check_waits(text: str, puzzle: ListingPuzzle) -> Check:
    """Check that no wait is for more than is needed, and none comes before it is needed."""
    for line, counter, less, weaker in _weaker(text):
        if not _runs(puzzle, weaker)[0]:
            return Check(
                "FAIL",
                "waits",
                f"line {line}: {counter} waits for more than is needed",
                f"{less} is enough in line {line}",
            )
        needed, code = _first_need(puzzle, weaker, line, counter)
        if needed:
            return Check(
                "FAIL",
                "waits",
                f"line {line}: {counter} waits earlier than is needed",
                f"wait for it before line {needed} ({code}), which is the first to need it",
            )
    return Check("OK", "waits", "each waits for what is needed, when it is needed, and no more")


def check_listing(text: object, puzzle: ListingPuzzle) -> list[Check]:
    """Execute a listing and say what is wrong with it: the result, its use of LDS, its waits, its bank conflicts.

    Raises:
        GradeError: ``text`` is no text.

    >>> print(check_listing(LISTINGS["bank_conflicts"].starter, LISTINGS["bank_conflicts"])[-1].found)
    1056 cycles of LDS; without conflicts 64
    """
    if not isinstance(text, str):
        raise GradeError(f"{text!r:.60}: {puzzle.name} wants the text of a listing; begin with its starter")
    said, fix, result = _runs(puzzle, text)
    if result is None:
        return [Check("FAIL", "result", said, fix)]
    checks = [Check("OK", "result", f"equals {puzzle.formula} in {len(_ORDERS)} orders of the waves")]
    found = re.search(r"\.amdhsa_group_segment_fixed_size\s+(\d+)", text)
    size = int(found[1]) if found else 0
    c = result.counters
    if c.lds_bytes < puzzle.exchanged or size > puzzle.lds:
        fix = f"exchange the data through LDS, in {puzzle.lds:,} bytes or fewer"
        return [*checks, Check("FAIL", "LDS", f"{size:,} bytes, {c.lds_bytes:,} moved", fix)]
    checks.append(Check("OK", "LDS", f"{size:,} bytes, {c.lds_bytes:,} moved"))
    if puzzle.waits:
        checks.append(_check_waits(text, puzzle))
    if puzzle.conflicts:
        fix = "rows that begin in different banks: a padded row, or a column that is changed with the row (xor)"
        good = c.lds_cycles == c.lds_ideal
        cycles = f"{c.lds_cycles} cycles of LDS; without conflicts {c.lds_ideal}"
        checks.append(Check("OK" if good else "FAIL", "banks", cycles, "" if good else fix))
    return checks
