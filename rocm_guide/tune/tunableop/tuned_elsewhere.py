# SPDX-License-Identifier: MIT
"""Read what other tuners leave: hipBLASLt's tuning file and AITER's tuned GEMMs.

Each line becomes a row: what it is for, and which kernel it names. What is not understood is said with its line.
Sources: hipBLASLt, docs/how-to/how-to-use-hipblaslt-offline-tuning.rst and UserDrivenTuningParser.cpp
(https://github.com/ROCm/rocm-libraries); AITER, aiter/configs and ops/gemm_op_a8w8.py
(https://github.com/ROCm/aiter). Read on 2026-11-27.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocm_guide.common.base import GuideError, read_regular, shown
from rocm_guide.tune.tunableop.files import LARGEST_FILE, parse_text

__all__ = ["KINDS", "TunedElsewhere", "read_tuned"]

#: Kinds of file, in words.
KINDS = {
    "tunableop": "TunableOp's results",
    "hipblaslt file": "hipBLASLt's tuning file",
    "aiter gemm": "AITER's tuned GEMMs",
}
_BIGGEST = 2**63 - 1


class TunedFileError(GuideError):
    """A file or line that its tuner would not have written; the message names the line and the value."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file.

    ``key`` is what the library looks up, ``choice`` what it finds, ``us`` microseconds of one call where the file says
    them. ``device``: (architecture, compute units) that a line is for.
    """

    line: int
    key: tuple[Any, ...]
    choice: str
    us: float | None = None
    device: tuple[str, int] | None = None


@dataclass(slots=True)
class TunedElsewhere:
    """A file that was read: its kind (see :data:`KINDS`), rows in file order, and what was odd, a sentence each.

    ``about`` are facts of the whole file, as its columns.
    """

    kind: str
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def read_tuned(path: str | os.PathLike[str]) -> TunedElsewhere:
    """Read a tuned file of any kind; which one it is, its name and first lines say.

    Raises:
        TunedFileError: the file cannot be read, is of no known kind, or has a line that its tuner would not write.
    """
    name = Path(path).name
    try:
        text = read_regular(path, LARGEST_FILE).decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        raise TunedFileError(f"{path}: byte {e.start} is not UTF-8 text; tuned files are plain text") from None
    except OSError as e:
        raise TunedFileError(f"{path}: cannot be read ({e.strerror or e}); give a file that a tuner wrote") from None
    if name.endswith(".json"):
        raise TunedFileError(
            f"{name}: tiles of vLLM's experts are not read here; its server names the file that it lacks"
        )
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        if not line.isprintable() and "\t" not in line:
            raise TunedFileError(f"{name}:{number}: {shown(line, 60)}: holds characters that cannot be printed")
    head = [c.strip() for c in lines[0][1].split(",")] if lines else []
    if "transA" in head:
        return _hipblaslt(lines, name)
    if "cu_num" in head or {"M", "N", "K"} <= {*head}:
        return _aiter(lines, name)
    if head and (head[0] == "Validator" or "TunableOp_" in head[0]):
        return _tunableop(text, name)
    first = shown(lines[0][1], 60) if lines else "nothing"
    raise TunedFileError(
        f"{name}:{lines[0][0] if lines else 1}: begins with {first}; known are {', '.join(KINDS.values())}"
    )


def _tunableop(text: str, name: str) -> TunedElsewhere:
    file = parse_text(text, name=name)
    number = {line.split(",")[0] + line.split(",")[1]: i for i, line in reversed([*_numbered(text)])}
    found = TunedElsewhere("tunableop", problems=file.problems, about=dict(file.validators))
    for gemm in file.tuned:
        us = None if gemm.time_ms is None else 1e3 * gemm.time_ms
        found.rows.append(Row(number["".join(gemm.key)], gemm.key, str(gemm.solution), us))
    return found


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return ((i, line) for i, line in enumerate(text.split("\n"), 1) if line.count(","))


# --- numbers and columns -------------------------------------------------------------------------------------------


def _whole(text: Any, what: str, where: str, least: int = 1) -> int:
    """Return a whole number; anything else is named with its line."""
    plain = str(text).strip()
    value = int(plain) if re.fullmatch(r"[0-9]{1,19}", plain) and not isinstance(text, bool) else -1
    if not least <= value <= _BIGGEST:
        raise TunedFileError(f"{where}: {what}={shown(plain, 40)}: give a whole number, {least} or more")
    return value


def _microseconds(text: str, what: str, where: str) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TunedFileError(f"{where}: {what}={shown(text, 40)}: give microseconds, 0 or more")
    return value


def _one_of(text: str, known: Iterable[str], what: str, where: str) -> str:
    if text not in known:
        raise TunedFileError(f"{where}: {what}={shown(text, 40)}: known are {', '.join(known)}")
    return text


def _header(line: str, needed: Iterable[str], where: str) -> list[str]:
    columns = [c.strip() for c in line.split(",")]
    if missing := [c for c in needed if c not in columns]:
        raise TunedFileError(f"{where}: the header has no column {', '.join(missing)}; write what the tuner wrote")
    if twice := [c for c in columns if columns.count(c) > 1]:
        raise TunedFileError(f"{where}: the header has the column {shown(twice[0], 40)} twice; take one out")
    return columns


def _cells(line: str, columns: list[str], where: str) -> dict[str, str]:
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != len(columns):
        raise TunedFileError(f"{where}: {len(cells)} columns where the header has {len(columns)}; mend the line")
    return dict(zip(columns, cells, strict=True))


#: What becomes of two lines for one product, by the kind of file.
_TWICE = {
    "hipblaslt file": "hipBLASLt keeps both, and which one it takes is not said; take one out",
    "aiter gemm": "AITER does not load a file with both; take one out",
}


def _add(found: TunedElsewhere, row: Row, seen: dict[Any, int], name: str) -> None:
    """Add a row; of two for the same product the second is a problem."""
    key = (row.key, row.device)
    if key in seen:
        found.problems.append(f"{name}:{row.line}: for the same as line {seen[key]}: {_TWICE[found.kind]}")
        return
    seen[key] = row.line
    found.rows.append(row)


# --- hipBLASLt -----------------------------------------------------------------------------------------------------

TYPES = ("f16_r", "bf16_r", "f32_r", "f64_r", "f8_r", "bf8_r", "f8_fnuz_r", "bf8_fnuz_r", "i8_r", "i32_r")
COMPUTE = ("f32_r", "xf32_r", "f64_r", "i32_r", "f16_r", "f32_f16_r", "f32_bf16_r")
#: What hipBLASLt compares, by its column in a tuning file.
_KEY = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type")
#: Columns of today's tuning file that the lookup does not compare.
_SILENT = (
    "grouped_gemm alpha lda stride_a beta ldb stride_b ldc stride_c ldd stride_d d_type scaleA scaleB scaleC scaleD "
    "amaxD activation_type bias_vector bias_type rotating_buffer hipblaslt-Gflops hipblaslt-GB/s solution_name "
    "kernel_name"
)


def _product(cells: Mapping[str, str], where: str) -> tuple[Any, ...]:
    """Return the key of a product: what hipBLASLt compares, sizes as BLAS counts them."""
    out: list[Any] = [_one_of(cells[c], ("N", "T"), c, where) for c in _KEY[:2]]
    out += [_whole(cells[c], c, where) for c in _KEY[2:6]]
    out += [_one_of(cells[c], TYPES, c, where) for c in _KEY[6:9]]
    return (*out, _one_of(cells["compute_type"], COMPUTE, "compute_type", where))


def _hipblaslt(lines: list[tuple[int, str]], name: str) -> TunedElsewhere:
    """Read a tuning file: a header that names the columns, then a line for each winner."""
    where = f"{name}:{lines[0][0]}"
    columns = _header(lines[0][1], (*_KEY, "solution_index"), where)
    found = TunedElsewhere("hipblaslt file", about={"columns": columns})
    seen: dict[Any, int] = {}
    unknown = [c for c in columns if c not in (*_KEY, *_SILENT.split(), "us", "solution_index")]
    found.problems += [f"{where}: column {shown(c, 40)}: not known here, and not compared" for c in unknown]
    if not {"kernel_name", "solution_name"} & {*columns}:
        found.problems.append(
            f"{where}: no column kernel_name; an index alone counts only in the build of hipBLASLt that wrote it"
        )
    for number, line in lines[1:]:
        where = f"{name}:{number}"
        if line.startswith("#") or [c.strip() for c in line.split(",")] == columns:
            continue
        cells = _cells(line, columns, where)
        choice = f"solution {_whole(cells['solution_index'], 'solution_index', where, 0)}"
        us = _microseconds(cells["us"], "us", where) if "us" in cells else None
        _add(found, Row(number, _product(cells, where), choice, us), seen, name)
    return found


# --- AITER ---------------------------------------------------------------------------------------------------------

#: Columns that AITER looks a GEMM up by, beside the device; a file has some of the second.
GEMM_KEY = ("M", "N", "K")
GEMM_VARIANT = ("bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w")
_GEMM_MORE = "gfx cu_num libtype kernelId solidx splitK us kernelName tflops bw errRatio err_ratio"
#: The architecture of a line that names compute units alone, as older files do.
_OF_UNITS = {80: "gfx942", 304: "gfx942", 256: "gfx950"}


def _aiter(lines: list[tuple[int, str]], name: str) -> TunedElsewhere:
    """Read a CSV of AITER: GEMMs by M (tokens), N (outputs) and K."""
    where = f"{name}:{lines[0][0]}"
    columns = [c.strip() for c in lines[0][1].split(",")]
    if "expert" in columns:
        raise TunedFileError(f"{where}: AITER's tuned experts are not read here; give its GEMMs")
    if "cu_num" not in columns and "us" not in columns:
        raise TunedFileError(f"{where}: {shown(lines[0][1], 40)}: a list of what is to be tuned; it names no kernel")
    if batched := [c for c in ("B", "b") if c in columns]:
        raise TunedFileError(f"{where}: column {batched[0]}: batched products of AITER are not read here")
    columns = _header(lines[0][1], ("cu_num", *GEMM_KEY, "us", "kernelName"), where)
    if unknown := [c for c in columns if c not in (*GEMM_KEY, *GEMM_VARIANT, *_GEMM_MORE.split())]:
        raise TunedFileError(f"{where}: column {shown(unknown[0], 40)}: not one of AITER's that are known here")
    about = {"columns": columns, "variants": [c for c in GEMM_VARIANT if c in columns]}
    found = TunedElsewhere("aiter gemm", about=about)
    seen: dict[Any, int] = {}
    for number, line in lines[1:]:
        where = f"{name}:{number}"
        cells = _cells(line, columns, where)
        units = _whole(cells["cu_num"], "cu_num", where)
        arch = cells.get("gfx", _OF_UNITS.get(units, ""))
        if not re.fullmatch(r"gfx[0-9a-f]{3,4}", arch):
            said = f"gfx={shown(arch, 40)}" if "gfx" in cells else f"cu_num={units}"
            raise TunedFileError(f"{where}: {said}: no architecture such as gfx942 follows from it")
        product = (*(_whole(cells[c], c, where) for c in GEMM_KEY), *(cells[c] for c in about["variants"]))
        if not cells["kernelName"]:
            raise TunedFileError(f"{where}: kernelName is empty; the line names no kernel")
        if "libtype" in cells and not re.fullmatch(r"[a-z_]+", cells["libtype"]):
            raise TunedFileError(f"{where}: libtype={shown(cells['libtype'], 40)}: give a library, as asm or ck")
        us = _microseconds(cells["us"], "us", where)
        _add(found, Row(number, product, cells["kernelName"], us, (arch, units)), seen, name)
    return found
