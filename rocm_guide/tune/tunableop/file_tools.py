# SPDX-License-Identifier: MIT
"""Work with TunableOp files: merge, subtract, filter, compare, and say why PyTorch would refuse one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocm_guide.tune.tunableop.files import TuningFile
from rocm_guide.tune.tunableop.gemm import Gemm, TunableFileError

__all__ = ["compare_files", "explain_validators", "merge", "missing"]

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

    >>> from rocm_guide.tune.tunableop.files import parse_text
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

    >>> from rocm_guide.tune.tunableop.files import parse_text
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results files side by side.

    ``rows``: (product before, product after, calls, speed-up), largest saving first; ``before_ms`` and ``after_ms`` are
    sums over all calls of the products in both files; ``only_before`` and ``only_after`` count the rest.
    """

    rows: list[tuple[Gemm, Gemm, int, float]]
    before_ms: float
    after_ms: float
    only_before: int
    only_after: int

    @property
    def speed_up(self) -> float:
        """Total time before over total time after, weighted by calls."""
        return self.before_ms / self.after_ms if self.after_ms else float("nan")

    @property
    def median(self) -> float:
        """The median of the products' own speed-ups, each counted once."""
        return statistics.median(r[3] for r in self.rows) if self.rows else float("nan")


def compare_files(
    before: TuningFile, after: TuningFile, calls: Mapping[tuple[str, str], int] | None = None
) -> Comparison:
    """Compare the times of two results files; ``calls`` (from a plan) weights each product, else each counts once.

    With ``calls`` a product that the plan never asks for counts nothing: it is listed, with 0 calls.

    >>> from rocm_guide.tune.tunableop.files import parse_text
    >>> line = "GemmTunableOp_Half_TN,{},Default,{}\\n"
    >>> a = parse_text(line.format("tn_8_4_2", 0.04) + line.format("tn_8_8_2", 0.1))
    >>> b = parse_text(line.format("tn_8_4_2", 0.02) + line.format("tn_8_8_2", 0.1))
    >>> calls = {("GemmTunableOp_Half_TN", "tn_8_4_2"): 10, ("GemmTunableOp_Half_TN", "tn_8_8_2"): 1}
    >>> round(compare_files(a, b).speed_up, 2), round(compare_files(a, b, calls).speed_up, 2)
    (1.17, 1.67)
    """
    rows, total_before, total_after = [], 0.0, 0.0
    saved: dict[tuple[str, str], float] = {}
    for key in before.gemms.keys() & after.gemms.keys():
        x, y = before.gemms[key], after.gemms[key]
        if not x.time_ms or not y.time_ms:
            continue
        count = 1 if calls is None else calls.get(key, 0)
        rows.append((x, y, count, x.time_ms / y.time_ms))
        saved[key] = count * (x.time_ms - y.time_ms)
        total_before += count * x.time_ms
        total_after += count * y.time_ms
    rows.sort(key=lambda r: (-saved[r[0].key], r[0].key))
    only = [len(a.gemms.keys() - b.gemms.keys()) for a, b in ((before, after), (after, before))]
    return Comparison(rows, total_before, total_after, *only)
