# SPDX-License-Identifier: MIT
"""TunableOp files: read, write, merge and subtract what PyTorch's GEMM tuner stores, in every form
since torch 2.3, and say why PyTorch would refuse a file.

A *results* file says which BLAS kernel was fastest for a matrix product; an *untuned* file lists products that wait for
tuning.
Source: PyTorch, aten/src/ATen/cuda/tunable/README.md (https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_guide.common.base import read_regular, write_text
from rocm_guide.tune.tunableop.gemm import Gemm, TunableFileError, parse_gemm

__all__ = ["TuningFile", "explain_validators", "merge", "missing", "parse_text", "read_file", "write_file"]

#: Bytes; a line has about a hundred, and the largest model asks for some thousands of products.
LARGEST_FILE = 100_000_000


@dataclass(slots=True)
class TuningFile:
    """A parsed file: ``validators`` (name -> version), ``gemms`` by key in file order, and what was odd about it.

    ``problems`` holds one sentence for each line that was skipped (only with ``repair=True``) or doubled.
    """

    validators: dict[str, str] = field(default_factory=dict)
    gemms: dict[tuple[str, str], Gemm] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def tuned(self) -> list[Gemm]:
        """The lines that carry a solution."""
        return [g for g in self.gemms.values() if g.tuned]

    def text(self) -> str:
        """Return the file's text: validators first, then one line per product."""
        head = [f"Validator,{name},{value}" for name, value in self.validators.items()]
        return "".join(f"{line}\n" for line in [*head, *(g.line() for g in self.gemms.values())])


def parse_text(text: str, *, name: str = "text", repair: bool = False) -> TuningFile:
    """Parse a whole file. Like PyTorch, the first of two lines for the same product wins; the second becomes a problem.

    With ``repair=True`` lines that cannot be read (a run that died while writing) are skipped and listed in
    ``problems``.

    Raises:
        TunableFileError: names file, line number and fault, unless ``repair``.

    >>> f = parse_text("Validator,PT_VERSION,2.11.0\\nGemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8,Default,0.01\\n")
    >>> f.validators, len(f.tuned)
    ({'PT_VERSION': '2.11.0'}, 1)
    """
    out = TuningFile()
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip("\r \t")
        if not line:
            continue
        try:
            if not line.isprintable():
                raise TunableFileError(f"{line[:60]!r}: holds characters that cannot be printed; the file is damaged")
            if line.split(",", 1)[0] == "Validator":
                columns = line.split(",")
                if len(columns) != 3 or not columns[1] or not columns[2]:
                    raise TunableFileError(f"{line[:60]!r}: a validator line is Validator,NAME,VALUE")
                if out.validators.setdefault(columns[1], columns[2]) != columns[2]:
                    raise TunableFileError(f"{columns[1]}: two values, {out.validators[columns[1]]} and {columns[2]}")
            else:
                gemm = parse_gemm(line)
                if gemm.key in out.gemms:
                    out.problems.append(f"{name}:{number}: {gemm.params} appears again; the first line counts")
                out.gemms.setdefault(gemm.key, gemm)
        except TunableFileError as e:
            if not repair:
                raise TunableFileError(f"{name}:{number}: {e}") from None
            out.problems.append(f"{name}:{number}: skipped: {e}")
    return out


def read_file(path: str | os.PathLike[str], *, repair: bool = False) -> TuningFile:
    """Read a results or untuned file; see :func:`parse_text`.

    Raises:
        TunableFileError: the file is missing, no text, or has a line that PyTorch would not have written.
    """
    return parse_text(read_plain(path), name=Path(path).name, repair=repair)


def read_plain(path: str | os.PathLike[str]) -> str:
    """Return the text of a file that a tuner wrote.

    Raises:
        TunableFileError: missing, too large, or no text.
    """
    try:
        return read_regular(path, LARGEST_FILE).decode("utf-8")
    except UnicodeDecodeError as e:
        raise TunableFileError(f"{path}: byte {e.start} is not UTF-8 text; tuned files are plain text") from None
    except OSError as e:
        raise TunableFileError(f"{path}: cannot be read ({e.strerror or e}); give a file that a tuner wrote") from None


def write_file(path: str | os.PathLike[str], file: TuningFile | Iterable[Gemm]) -> Path:
    """Write a file whole or not at all: a kill in the middle leaves the old file as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     p = write_file(Path(d) / "untuned.csv", [parse_gemm("GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8")])
    ...     p.read_text()
    'GemmTunableOp_Half_TN,tn_8_4_2_ld_2_2_8\\n'
    """
    if not isinstance(file, TuningFile):
        file = TuningFile(gemms={g.key: g for g in file})
    return write_text(path, file.text())


_VALIDATORS = {
    "PT_VERSION": "the PyTorch release; another one may call BLAS with other parameters",
    "ROCM_VERSION": "the ROCm release (older files)",
    "HIP_VERSION": "the HIP release that PyTorch was built with (newer files, in place of ROCM_VERSION)",
    "GCN_ARCH_NAME": "the GPU's instruction set and its sramecc and xnack settings: kernels belong to one GPU family",
    "ROCBLAS_VERSION": "the rocBLAS build; the numbers in Gemm_Rocblas_1216 are positions in its own list",
    "HIPBLASLT_VERSION": "the hipBLASLt build; the numbers in Gemm_Hipblaslt_1219 are positions in its own list",
}


def merge(files: Iterable[TuningFile]) -> TuningFile:
    """Make one file with every product of all; a tuned line is never lost. Of two solutions the faster one stays.

    Raises:
        TunableFileError: two files with validators that disagree: PyTorch would refuse the mixture.

    >>> a = parse_text("GemmTunableOp_Half_TN,tn_8_4_2,Gemm_Rocblas_1,0.02\\n")
    >>> more = "GemmTunableOp_Half_TN,tn_8_4_2,Gemm_Rocblas_7,0.01\\nGemmTunableOp_Half_TN,tn_8_8_2,Default,0.03\\n"
    >>> b = parse_text(more)
    >>> print(merge([a, b]).text(), end="")
    GemmTunableOp_Half_TN,tn_8_4_2,Gemm_Rocblas_7,0.01
    GemmTunableOp_Half_TN,tn_8_8_2,Default,0.03
    """
    out = TuningFile()
    for number, file in enumerate(files):
        if out.validators and file.validators and file.validators != out.validators:
            differ = explain_validators(out.validators, file.validators)
            raise TunableFileError(f"file {number + 1}: other validators than the files before it: {'; '.join(differ)}")
        out.validators = out.validators or dict(file.validators)
        out.problems += file.problems
        for key, gemm in file.gemms.items():
            old = out.gemms.get(key)
            if old is None or (gemm.tuned and not old.tuned) or (gemm.tuned and _time(gemm) < _time(old)):
                out.gemms[key] = gemm
    return out


def _time(gemm: Gemm) -> float:
    return float("inf") if gemm.time_ms is None else gemm.time_ms


def missing(wanted: TuningFile, have: TuningFile) -> TuningFile:
    """Return the products of ``wanted`` that ``have`` holds no solution for, as an untuned file: what is left to tune.

    >>> want = parse_text("GemmTunableOp_Half_TN,tn_8_4_2\\nGemmTunableOp_Half_TN,tn_8_8_2\\n")
    >>> have = parse_text("GemmTunableOp_Half_TN,tn_8_4_2,Gemm_Rocblas_1,0.02\\n")
    >>> missing(want, have).text()
    'GemmTunableOp_Half_TN,tn_8_8_2\\n'
    """
    done = {g.key for g in have.tuned}
    return TuningFile(gemms={key: g.untuned() for key, g in wanted.gemms.items() if key not in done})


def explain_validators(file: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Say why PyTorch would refuse a file: one sentence per validator that is missing, unknown, or different.

    ``here`` is what this machine has: ``dict(torch.cuda.tunable.get_validators())``. An empty list: it is accepted.

    >>> explain_validators({"PT_VERSION": "2.4.0"}, {"PT_VERSION": "2.11.0"})[0].split(":")[0]
    'PT_VERSION is 2.4.0 in the file and 2.11.0 here'
    """
    lines = []
    for name in sorted({*file, *here}):
        meaning = _VALIDATORS.get(name, "a property of the software or the GPU")
        if name not in file:
            lines.append(f"{name} is {here[name]} here and missing in the file: {meaning}")
        elif name not in here:
            lines.append(f"{name} is {file[name]} in the file and unknown here: {meaning}")
        elif file[name] != here[name]:
            lines.append(f"{name} is {file[name]} in the file and {here[name]} here: {meaning}")
    return lines
