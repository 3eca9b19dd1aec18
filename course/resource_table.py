# SPDX-License-Identifier: MIT
"""The gfx942 resource table: every kernel of the course, compiled for MI300X on any machine, one line per launch.

The table is committed (``gfx942_kernels.tsv`` beside this file). A change to a kernel, a configuration or the compiler
shows up as a difference. ``python -m course table`` prints it, ``--check`` compares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path

from rocm_guide.common.base import GuideError, package_folder, write_text

__all__ = ["KernelRow", "TableError", "compare_rows", "find_module", "kernel_modules", "read_rows", "write_rows"]

TABLE = Path(__file__).with_name("gfx942_kernels.tsv")


class TableError(GuideError):
    """No such kernel module, or a table that cannot be read."""


@dataclass(frozen=True)
class KernelRow:
    """One launch.

    Attributes:
        case: ``module: label of the case``, for example ``softmax: forward, 4096 columns, bfloat16``.
        kernel: the Triton function.
        grid: workgroups, as ``x,y,z``.
        warps: waves per workgroup.
        vgprs: registers per lane that the descriptor allocates, accumulation registers included.
        agprs: accumulation registers among those that the code uses.
        sgprs: scalar registers.
        lds: bytes per workgroup.
        waves: waves per SIMD.
        spills: vector registers spilled.
        loads, stores: widths of global accesses, in bits per lane, with their number: ``128x4,32x1``.
        loop_loads, loop_stores: those inside loops; ``-`` where there is none.
        mfma: matrix instructions; ``-`` where there is none.
        findings: errors and warnings of the limits check, grids aside; ``-`` where there is none.
        source: digest of what the compiler was given for the whole case. Two rows are equal whatever it says.
    """

    case: str
    kernel: str
    grid: str
    warps: int
    vgprs: int
    agprs: int
    sgprs: int
    lds: int
    waves: float
    spills: int
    loads: str
    stores: str
    loop_loads: str
    loop_stores: str
    mfma: str
    findings: str
    source: str = field(default="-", compare=False)


def kernel_modules() -> list[str]:
    """Return the names of the modules of ``rocm_guide.kernels`` with cases for the table, such as ``gemm``.

    A folder's cases are in its ``cases.py``: the function ``softmax_cases`` has those of the module ``softmax``.
    """
    # By their text: to import them all takes torch and Triton, which a look at the cached table does not need.
    kernels = package_folder() / "kernels"
    found = []
    for path in kernels.rglob("cases.py"):
        families = path.relative_to(kernels).parent.parts
        stems = re.findall(r"^def (\w+)_cases\(", path.read_text(encoding="utf-8"), re.M)
        found += [".".join((*families, stem)) for stem in stems]
    return sorted(found)


def find_module(name: str) -> str:
    """Return the module of :func:`kernel_modules` that ``name`` means; its last word is enough.

    Raises:
        TableError: there is none.

    >>> find_module("nosuch")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    course.resource_table.TableError: no kernel module 'nosuch' with cases: there are ...
    """
    known = kernel_modules()
    found = [module for module in known if name in (module, module.rpartition(".")[2])]
    if len(found) != 1:
        raise TableError(f"no kernel module {name!r} with cases: there are {', '.join(known)}")
    return found[0]


def rows_text(rows: Sequence[KernelRow]) -> str:
    """Return the rows as tab-separated text with a line of names on top."""
    lines = ["\t".join(f.name for f in fields(KernelRow))]
    lines += ["\t".join(f"{v:g}" if isinstance(v, float) else str(v) for v in astuple(r)) for r in rows]
    return "\n".join(lines) + "\n"


def read_rows(path: Path = TABLE) -> tuple[str, list[KernelRow]]:
    """Return the committed table: the Triton version that made it, and its rows.

    Raises:
        TableError: the file is damaged; the line is named.

    >>> version, rows = read_rows()
    >>> version.startswith("3."), len(rows) > 0
    (True, True)
    """
    try:
        head, names, *lines = path.read_text().splitlines()
    except (OSError, ValueError) as e:
        raise TableError(f"{path}: cannot be read ({e}); write it with python -m course table --write") from e
    if names.split("\t") != [f.name for f in fields(KernelRow)] or "triton " not in head:
        raise TableError(f"{path}: not a table of kernels; write it with python -m course table --write")
    rows = []
    kinds = [str(f.type) for f in fields(KernelRow)]
    for number, line in enumerate(lines, 3):
        cells = line.split("\t")
        try:
            make = {"int": int, "float": float, "str": str}
            rows.append(KernelRow(*(make[k](c) for k, c in zip(kinds, cells, strict=True))))
        except ValueError as e:
            raise TableError(f"{path}, line {number}: {e}") from e
    return head.rsplit("triton ", 1)[1], rows


def write_rows(rows: Sequence[KernelRow], path: Path = TABLE) -> Path:
    """Write the table, with the Triton version on top; returns the path."""
    import triton

    return write_text(path, f"# gfx942 (MI300X), compiled with triton {triton.__version__}\n{rows_text(rows)}")


def compare_rows(old: Sequence[KernelRow], new: Sequence[KernelRow]) -> list[str]:
    """Return what changed, one line each: cases that came or went, and for the others every changed figure.

    >>> one = KernelRow("m: c", "k", "1,1,1", 4, 64, 0, 20, 0, 8.0, 0, "128x1", "128x1", "-", "-", "-", "-")
    >>> from dataclasses import replace
    >>> compare_rows([one], [replace(one, vgprs=136, waves=3.0)])
    ['changed  m: c / k: vgprs 64 -> 136, waves 8 -> 3']
    >>> compare_rows([one], []), compare_rows([one], [one])
    (['gone     m: c / k'], [])
    """

    def keyed(rows: Sequence[KernelRow]) -> dict[tuple[str, str, int], KernelRow]:
        found: dict[tuple[str, str, int], KernelRow] = {}
        for r in rows:
            n = sum(key[:2] == (r.case, r.kernel) for key in found)
            found[r.case, r.kernel, n] = r
        return found

    before, after = keyed(old), keyed(new)
    lines = []
    for key in dict.fromkeys([*before, *after]):
        name = f"{key[0]} / {key[1]}" + (f" (launch {key[2] + 1})" if key[2] else "")
        if key not in after:
            lines.append(f"gone     {name}")
        elif key not in before:
            lines.append(f"new      {name}: {after[key].vgprs} VGPRs, {after[key].waves:g} waves per SIMD")
        elif before[key] != after[key]:
            a, b = asdict(before[key]), asdict(after[key])
            changes = [f"{k} {_plain(a[k])} -> {_plain(b[k])}" for k in a if a[k] != b[k] and k != "source"]
            lines.append(f"changed  {name}: {', '.join(changes)}")
    return lines


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
