# SPDX-License-Identifier: MIT
"""What happens without each wait and each barrier: ``python -m tests.cdna.hazards`` (minutes) prints the figures.

Of five compiled kernels every executed ``s_barrier`` is removed, and every executed ``s_waitcnt`` removed, weakened by
one operation, and deprived of one of its counters, one change at a time. The changed kernel is executed in several
orders of its waves. Then the change is

- caught: an error names the line that needed the wait and the line that was waited for (or one line, when what was
  not waited for had never been written),
- redundant: no order gives an error and the results are the same bits. The interpreter delivers each load as late as
  it may, and finds races whatever the order, so nothing in this run depended on the wait. Either nothing was under
  way there that it would have waited for, or a later wait comes before the first use,
- missed: the results differ, and there was no error. There must be none.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cdna.dry_run import dry_run
from cdna.hip.toolchain import compile_hip
from cdna.run import RunError, prepare, run
from rocm_guide.common.base import write_text
from rocm_guide.kernels.attention import Tile as AttentionTile
from rocm_guide.kernels.attention import attention_forward
from rocm_guide.kernels.gemm import GemmTile, gemm
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
from rocm_guide.kernels.softmax import Tile, softmax_forward

_COUNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")


@dataclass(frozen=True)
class Subject:
    """One launch; ``orders`` leaves out ``alone`` for a kernel whose waves spin until others have done something."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Any
    options: dict[str, Any]
    orders: tuple[str | int, ...] = ("together", "alone", "round_robin", 1)

    @property
    def text(self) -> str:
        return self.kernel if isinstance(self.kernel, str) else self.kernel.assembly

    def with_text(self, text: str) -> Any:
        return text if isinstance(self.kernel, str) else replace(self.kernel, assembly=text)

    def fresh(self) -> Any:
        def copy(x: Any) -> Any:
            return x.clone() if isinstance(x, torch.Tensor) else x

        if isinstance(self.arguments, dict):
            return {n: copy(x) for n, x in self.arguments.items()}
        return [copy(x) for x in self.arguments]


def _triton(name: str, call: Callable[[], Any], **options: Any) -> Subject:
    found: list[Subject] = []

    def keep(compiled: Any, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        free = {n: x for n, x in arguments.items() if compiled.signature[n] != "constexpr"}
        found.append(Subject(name, compiled, grid, free, options))

    with dry_run("gfx942", on_launch=keep):
        call()
    (subject,) = found
    return subject


def _random(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _skinny() -> Subject:
    rows, columns, depth = 8, 32, 1024
    a, b = (
        torch.randint(-8, 9, s, generator=torch.Generator().manual_seed(1)).float().to(torch.float8_e4m3fnuz)
        for s in ((rows, depth), (columns, depth))
    )
    c, partial = torch.zeros(rows, columns, dtype=torch.float16), torch.zeros(1, rows, columns)
    tickets = torch.zeros(1, dtype=torch.int32)
    arguments = [a, b, c, partial, tickets, rows, columns, depth, 1, 0.03125]
    return Subject(
        "HIP skinny GEMM",
        compile_hip("skinny_gemm"),
        (1,),
        arguments,
        {"name": "skinny_gemm_sparse_f16"},
        ("round_robin", 1),
    )


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "softmax": lambda: _triton("softmax", lambda: softmax_forward(_random(1, 2000), tile=Tile(2048, 1, 4))),
    "gemm": lambda: _triton(
        "pipelined GEMM", lambda: gemm(_random(32, 160), _random(160, 32, seed=1), tile=GemmTile(32, 32, 32, warps=2))
    ),
    "attention": lambda: _triton(
        "attention forward",
        lambda: attention_forward(*(_random(1, 1, 70, 64, seed=i) for i in range(3)), tile=AttentionTile(32, 32, 2)),
    ),
    "fp8": lambda: _triton(
        "RMSNorm to FP8",
        lambda: rmsnorm_fp8(*(_random(1, 1032, seed=i) for i in range(2)), _random(1032, seed=2), 0.05),
    ),
    "skinny": _skinny,
}


def changes(text: str, lines: set[int]) -> Iterator[tuple[int, str, str]]:
    """Line, what is changed, and the changed text."""
    rows = text.split("\n")

    def put(number: int, new: str) -> str:
        return "\n".join([*rows[: number - 1], new, *rows[number:]])

    for number in sorted(lines):
        row = rows[number - 1]
        if re.match(r"\s*s_barrier\b", row):
            yield number, "barrier removed", put(number, "  s_nop 0")
        elif re.match(r"\s*s_waitcnt\b", row):
            yield number, "wait removed", put(number, "  s_nop 0")
            counts = list(_COUNT.finditer(row))
            for m in counts:
                weaker = f"{row[: m.start(2)]}{int(m[2]) + 1}{row[m.end(2) :]}"
                yield number, "wait weakened", put(number, weaker)
                if len(counts) > 1:
                    yield number, "one counter removed", put(number, row[: m.start()] + row[m.end() :])


def _outcome(subject: Subject, kernel: Any, order: str | int) -> list[bytes]:
    arguments = subject.fresh()
    run(kernel, subject.grid, arguments, order=order, count=False, limit=100_000, **subject.options)
    values = arguments.values() if isinstance(arguments, dict) else arguments
    return [x.contiguous().view(torch.uint8).numpy().tobytes() for x in values if isinstance(x, torch.Tensor)]


def _reason(what: str, under_way: set[str]) -> str:
    if what == "barrier removed":
        return "no LDS word is exchanged across it"
    if not under_way:
        return "nothing was under way"
    if under_way == {"LDS"}:
        return "the LDS executes one wave's operations in order"
    return "a later wait comes before the first use"


def examine(subject: Subject, every: int = 1, first: int = 0) -> tuple[Counter[tuple[str, str]], list[str]]:
    """(what was changed, what became of it) counted, and a line for each change that was not caught."""
    session = prepare(subject.kernel, subject.grid, subject.fresh(), count=False, **subject.options)
    # For each wait, what it found under way beyond its counts: loads, or only operations that write no register.
    under_way: dict[int, set[str]] = {}

    def watch(wave: Any, operation: Any) -> None:
        if operation.op == "s_waitcnt":
            counts = {m[1]: int(m[2]) for m in _COUNT.finditer(operation.text)}
            pending = list(wave.vm)[: max(0, len(wave.vm) - counts.get("vmcnt", 99))]
            pending += list(wave.lg)[: max(0, len(wave.lg) - counts.get("lgkmcnt", 99))]
            kinds = {"loads" if f.registers else "stores" if f in wave.vm else "LDS" for f in pending}
            under_way.setdefault(operation.line, set()).update(kinds)

    session.machine.observer = watch
    session.machine.run("round_robin")
    wanted = _outcome(subject, subject.kernel, subject.orders[0])
    found: Counter[tuple[str, str]] = Counter()
    notes = []
    executed = {o.line for o, n in zip(session.machine.code, session.machine.counts, strict=True) if n}
    for number, what, text in list(changes(subject.text, executed))[first::every]:
        verdict = ""
        for order in subject.orders:
            try:
                got = _outcome(subject, subject.with_text(text), order)
            except RunError as e:
                both = len(set(re.findall(r"\bline (\d+)", str(e)))) > 1
                verdict = "caught" if both else f"caught, {e.rule}, one line named"
                break
            if got != wanted:
                verdict = "missed"
                break
        if not verdict:
            verdict = "redundant: " + _reason(what, under_way.get(number, set()))
        if not verdict.startswith("caught"):
            notes.append(f"line {number}, {what}: {verdict}")
        found[what, verdict] += 1
    return found, notes


def main() -> None:
    """Print the figures of the kernels that are named, or of all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("kernels", nargs="*", choices=[*SUBJECTS, []], help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--every", type=int, default=1, help="one change of so many")
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for key in options.kernels or SUBJECTS:
        subject = SUBJECTS[key]()
        found, notes = examine(subject, options.every)
        caught = sum(n for (_, verdict), n in found.items() if verdict.startswith("caught"))
        print(f"{subject.name}: {caught} caught of {found.total()}")
        for (what, verdict), n in sorted(found.items()):
            print(f"  {n:4}  {what}: {verdict}")
        for note in notes:
            print(f"        {note}")
        sys.stdout.flush()
        figures[subject.name] = {
            "changes": found.total(),
            "caught": caught,
            "orders": subject.orders,
            "outcomes": {f"{what}: {v}": n for (what, v), n in sorted(found.items())},
        }
        if options.out:
            versions = {n: importlib.metadata.version(n) for n in ("numpy", "torch", "triton")}
            stored = {"every": options.every, "versions": versions, "kernels": figures}
            write_text(options.out, json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
