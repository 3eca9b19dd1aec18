# SPDX-License-Identifier: MIT
"""The puzzles as a path: in which order, how hard, where each is taught, and how to begin any of them.

Introduced by notebook 38.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

from cdna.grade.ways import missing_gluon
from rocm_guide.dojo.catalogue import PUZZLES, find_task
from rocm_guide.dojo.gluon import GLUON_IMPORTS
from rocm_guide.dojo.listings import LISTINGS

__all__ = ["PATH", "PuzzlePath", "Step", "start"]


@dataclass(frozen=True)
class Step:
    """One puzzle on the path.

    Attributes:
        puzzle: its name, of :data:`~rocm_guide.dojo.catalogue.PUZZLES` or :data:`~rocm_guide.dojo.listings.LISTINGS`.
        family: what kind of kernel it is.
        level: 1 to 3.
        taught: the notebook and its section.
        hint: how to begin.
        outputs: lines of the starter that make what is returned; empty if the puzzle has a starter of its own.
    """

    puzzle: str
    family: str
    level: int
    taught: str
    hint: str
    outputs: str = ""


_LIKE_X = "y = torch.empty(x.shape, dtype=x.dtype, device=x.device)"
_FP32 = "c = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)"
_LIKE_Q = "out = torch.empty(q.shape, dtype=q.dtype, device=q.device)"

_STEPS = (
    Step("add", "moving", 1, "21 · 3", "as notebook 21 scales a vector, with a second load", _LIKE_X),
    Step("copy", "moving", 1, "21 · 3", "one program for each block of 2,048 elements; mask the last block", _LIKE_X),
    Step(
        "strided_copy",
        "moving",
        1,
        "21 · 4",
        "one program for each row and block of columns; element (i, j) is at i * x.stride(0) + j * x.stride(1)",
        _LIKE_X,
    ),
    Step("pair_sums", "repairs", 2, "24 · 9", "load 2 * BLOCK neighbours at once, reshape them to pairs, tl.split"),
    Step(
        "transpose",
        "moving",
        2,
        "24 · 11",
        "a block of 64 x 64, loaded along rows, exchanged by tl.trans, stored along rows",
        "y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)",
    ),
    Step("scale_columns", "repairs", 2, "24 · 7", "s[None, :] gives each column its factor; nothing has to move"),
    Step("bank_conflicts", "listings", 2, "24 · 11", "a row of 33 words puts a column into 32 different banks"),
    Step(
        "quantise",
        "moving",
        2,
        "33 · 2",
        "divide in fp32, clamp to 240 with propagate_nan=tl.PropagateNan.ALL, then .to(tl.float8e4b8)",
        "y = torch.empty(x.shape, dtype=torch.float8_e4m3fnuz, device=x.device)",
    ),
    Step(
        "row_sum",
        "rows",
        1,
        "21 · 5",
        "one program for each row, block after block of columns; .to(tl.float32) before you add, other=0.0",
        "y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)",
    ),
    Step("softmax", "rows", 2, "21 · 6", "the whole row in one block; masked lanes hold -inf, 8 warps", _LIKE_X),
    Step(
        "softmax_online", "rows", 3, "30 · Rung 3", "a running maximum and a running sum; then a second loop", _LIKE_X
    ),
    Step(
        "rms_norm",
        "rows",
        2,
        "30 · RMSNorm",
        "the whole row in one block, as in softmax; tl.sum(v * v, 0) / cols in fp32, plus eps, tl.rsqrt",
        _LIKE_X,
    ),
    Step(
        "rms_norm_backward",
        "rows",
        3,
        "30 · The backward pass",
        "start from rms_norm; x and dy have a row stride each; a second sum over dy * w * x",
        "dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
    ),
    Step(
        "naive_matmul",
        "products",
        1,
        "31 · Rung 2",
        "rung 2 of the ladder, with both strides of a and of b, fp32 out, and masks in place of %",
        _FP32,
    ),
    Step("matmul", "products", 2, "31 · Rung 4", "naive_matmul in blocks along K, which tl.dot multiplies", _FP32),
    Step("lean_matmul", "repairs", 2, "23 · 6", "the sums of a tile are BM * BN / (64 * warps) registers of each lane"),
    Step(
        "split_k",
        "products",
        3,
        "32 · 3",
        "a third axis of the grid names the part of K; tl.atomic_add into zeros",
        _FP32.replace("empty", "zeros"),
    ),
    Step(
        "skinny_gemv",
        "products",
        2,
        "32 · 5",
        "eight rows of w for each program; each lane adds on its own, tl.sum once after the loop",
        "y = torch.empty(w.shape[0], dtype=torch.float32, device=w.device)",
    ),
    Step("attention", "attention", 3, "15 · 3", "softmax_online over blocks of keys, with two tl.dot", _LIKE_Q),
    Step(
        "causal_attention",
        "attention",
        3,
        "15 · 4",
        "start from attention; end the loop at the last key that the block sees, and mask j > i",
        _LIKE_Q,
    ),
    Step(
        "decode",
        "attention",
        3,
        "39 · 1",
        "16 parts for each head: each keeps its maximum, sum and result; a second kernel rescales and adds them",
        _LIKE_Q,
    ),
    Step(
        "paged_decode",
        "attention",
        3,
        "39 · Pages",
        "start from decode; load table[j // P] for each token, in 64 bits, before you load keys and values",
        _LIKE_Q,
    ),
    Step(
        "rope_cache",
        "models",
        2,
        "34 · 3",
        "one program for each token: its angles serve all heads; load both halves of a head, store both; then its slot",
        _LIKE_Q,
    ),
    Step(
        "block_scaled_matmul",
        "models",
        3,
        "35 · Exercise 3",
        "matmul with blocks of 128 along K: the product of two blocks times its scales, then add; a new total, not "
        "tl.dot's third argument",
        _FP32.replace("b.shape[1]", "b.shape[0]").replace("float32", "bfloat16"),
    ),
    Step(
        "grouped_matmul",
        "models",
        3,
        "35 · 5",
        "cdiv(T, BLOCK) + E tiles are enough; each program walks through ends to find its expert and its first row",
        "y = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=x.device)",
    ),
    Step(
        "linear_cross_entropy",
        "models",
        3,
        "30 · Rung 3",
        "softmax_online over blocks of words, whose scores are tl.dot along D; split the words as decode splits tokens",
        "losses = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)",
    ),
    Step(
        "gluon_linear",
        "gluon",
        3,
        "37 · Rung 3",
        "load with a BlockedLayout of [1, 8], store in LDS, load in the operands' DotOperandLayout; swizzle by the 8 "
        "bytes that a lane of the operand reads; transposed=True gives a lane four neighbours of a row to store",
        "y = torch.empty(x.shape[0], w.shape[0], dtype=torch.float32, device=x.device)",
    ),
    Step(
        "missing_wait",
        "listings",
        3,
        "24 · 10",
        "ask of each instruction whether its data has arrived; a barrier waits for no data",
    ),
)


class PuzzlePath(tuple[Step, ...]):
    """The steps; printed as lines, shown as a table in a notebook."""

    def __repr__(self) -> str:
        lines = [f"{'puzzle':<20} {'family':<10} level  {'taught in':<19} in PyTorch"]
        for s in self:
            formula = find_task(s.puzzle).formula
            lines.append(f"{s.puzzle:<20} {s.family:<10} {'*' * s.level:<5}  {s.taught:<19} {formula}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for s in self:
            cells = (s.puzzle, s.family, "★" * s.level, s.taught)
            left = "".join(f'<td style="text-align:left">{html.escape(c)}</td>' for c in cells)
            fold = f"<details><summary>hint</summary>{html.escape(s.hint)}</details>"
            what = f"<code>{html.escape(find_task(s.puzzle).formula)}</code>{fold}"
            rows.append(f'<tr>{left}<td style="text-align:left">{what}</td></tr>')
        names = ("puzzle", "family", "level", "taught in", "in PyTorch")
        head = "".join(f'<th style="text-align:left">{n}</th>' for n in names)
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


#: All puzzles, each after those that it builds on.
PATH = PuzzlePath(_STEPS)


def _comment(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent="# ", subsequent_indent="# ")


def _code(step: Step) -> str:
    """Return a starter that runs, and is graded: a wrapper without its kernel, or what is to be repaired."""
    name = step.puzzle
    if name in LISTINGS:
        return (
            f'listing = LISTINGS["{name}"].starter\nprint(listing)\n'
            f'mended = listing.replace("  s_endpgm", "  s_endpgm")  # change it here\ngrade(mended, "{name}")'
        )
    puzzle = PUZZLES[name]
    if puzzle.starter:
        return f'{puzzle.starter.strip()}\n\n\ngrade({name}, "{name}")'
    signature = puzzle.task.split(":")[0]
    result = step.outputs.split(" = ")[0]
    imports = f"{GLUON_IMPORTS}\n\n" if puzzle.gluon else ""
    return (
        f"{imports}def {signature}:\n    {step.outputs}\n    # your kernel is launched here: kernel[grid](…)\n"
        f'    return {result}\n\n\ngrade({name}, "{name}")'
    )


class Starter:
    """The beginning of a puzzle, as the text of a cell that runs."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def start(name: str) -> Starter:
    """Return the beginning of a puzzle: its task, what is expected, a hint, and a starter that runs and is graded;
    to be pasted into a cell.

    Args:
        name: of :data:`PATH`.

    Raises:
        GradeError: no such puzzle.

    >>> print(start("decode").text.splitlines()[0])
    # decode · attention, level 3 of 3, taught in notebook 39 · 1
    """
    task = find_task(name)
    step = next(s for s in PATH if s.puzzle == name)
    head = f"# {name} · {step.family}, level {step.level} of 3, taught in notebook {step.taught}"
    parts = [head, _comment(task.task), _comment(f"In PyTorch: {task.formula}")]
    parts += [_comment(f"Expected: {PUZZLES[name].expect}")] if name in PUZZLES else []
    parts += [_comment(f"Hint: {step.hint}")]
    if name in PUZZLES and PUZZLES[name].gluon and (missing := missing_gluon()):
        return Starter("\n".join([*parts, f"# Stepped over: {missing}"]))
    return Starter("\n".join(parts) + "\n" + _code(step))
