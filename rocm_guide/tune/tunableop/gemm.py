# SPDX-License-Identifier: MIT
"""One line of a TunableOp file: a matrix product as BLAS sees it, read and written as PyTorch does, and said in words.

Both kinds of file (results and untuned) are plain text with commas.
Source: PyTorch, aten/src/ATen/cuda/tunable/README.md (https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from rocm_guide.common.base import GuideError

__all__ = ["Gemm", "TunableFileError", "describe_gemm", "parse_gemm"]

KINDS = ("Gemm", "GemmAndBias", "GemmStridedBatched", "ScaledGemm")
#: TunableOp's element types: (torch's name, hipBLASLt's where it has one, bytes of a number).
TYPES = {
    "float": ("float32", "f32_r", 4),
    "tf32": ("float32 computed as TF32", "f32_r", 4),
    "double": ("float64", "f64_r", 8),
    "BFloat16": ("bfloat16", "bf16_r", 2),
    "Half": ("float16", "f16_r", 2),
    "c10::complex<double>": ("complex128", "", 16),
    "c10::complex<float>": ("complex64", "", 8),
    "Float8_e4m3fn": ("float8_e4m3fn", "f8_r", 1),
    "Float8_e5m2": ("float8_e5m2", "bf8_r", 1),
    "Float8_e4m3fnuz": ("float8_e4m3fnuz", "f8_fnuz_r", 1),
    "Float8_e5m2fnuz": ("float8_e5m2fnuz", "bf8_fnuz_r", 1),
    "Float8_e8m0fnu": ("float8_e8m0fnu", "", 1),
    "Float4_e2m1fn_x2": ("float4_e2m1fn_x2", "", 2),
}
DTYPE_NAMES = tuple(TYPES)
_DTYPE = "|".join(re.escape(name) for name in sorted(DTYPE_NAMES, key=len, reverse=True))
_OP = re.compile(rf"({'|'.join(KINDS)})TunableOp_((?:{_DTYPE})(?:_(?:{_DTYPE}))*)_([NT])([NT])")
_PARAMS = re.compile(
    r"([ntc])([ntc])_([0-9]+)_([0-9]+)_([0-9]+)(?:_B_([0-9]+))?(?:_ld_([0-9]+)_([0-9]+)_([0-9]+))?"
    r"(?:_rw_([01]))?(?:_bias_(\w+))?"
)
_BLAS_PARAMS = ",BLAS_PARAMS: "
_BIGGEST = 2**63 - 1


class TunableFileError(GuideError):
    """A file or line that its tuner would not have written; the message names the line and what is accepted."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """One matrix product as BLAS sees it (column-major): ``C[m, n] = op(A)[m, k] @ op(B)[k, n]``.

    ``ld`` holds the three leading dimensions in elements, which torch writes since 2.6 or so; older files have none.
    ``solution`` and ``time_ms`` (milliseconds per call) are None in an untuned file. ``batch`` is for strided batches.

    >>> g = parse_gemm("GemmTunableOp_float_NN,nn_1024_512_2048,Gemm_Hipblaslt_NN_52565,0.0653662")
    >>> g.m, g.n, g.k, g.solution, g.flops
    (1024, 512, 2048, 'Gemm_Hipblaslt_NN_52565', 2147483648)
    >>> g.untuned().line()
    'GemmTunableOp_float_NN,nn_1024_512_2048'
    """

    kind: str
    dtypes: tuple[str, ...]
    transa: str
    transb: str
    m: int
    n: int
    k: int
    batch: int | None = None
    ld: tuple[int, int, int] | None = None
    rowwise: bool | None = None
    bias: str | None = None
    solution: str | None = None
    time_ms: float | None = None
    blas_params: str | None = None

    @property
    def op(self) -> str:
        """The operator name, the first column of a file."""
        letters = "".join("N" if t == "n" else "T" for t in (self.transa, self.transb))
        return f"{self.kind}TunableOp_{'_'.join(self.dtypes)}_{letters}"

    @property
    def params(self) -> str:
        """The parameters, the second column."""
        text = f"{self.transa}{self.transb}_{self.m}_{self.n}_{self.k}"
        if self.batch is not None:
            text += f"_B_{self.batch}"
        if self.ld is not None:
            text += "_ld_" + "_".join(map(str, self.ld))
        if self.rowwise is not None:
            text += f"_rw_{int(self.rowwise)}"
        if self.bias is not None:
            text += f"_bias_{self.bias}"
        return text

    @property
    def key(self) -> tuple[str, str]:
        """Return what PyTorch looks a product up by: operator and parameters."""
        return self.op, self.params

    @property
    def flops(self) -> int:
        """Floating-point operations of one call: 2 m n k, times the batch."""
        return 2 * self.m * self.n * self.k * (self.batch or 1)

    @property
    def tuned(self) -> bool:
        return self.solution is not None

    def untuned(self) -> Gemm:
        """Return the same product without solution and time."""
        return replace(self, solution=None, time_ms=None, blas_params=None)

    def line(self) -> str:
        """Return the line as PyTorch writes it (six significant digits for the time)."""
        parts = [self.op, self.params]
        if self.solution is not None:
            parts.append(self.solution)
            if self.time_ms is not None:
                parts.append(f"{self.time_ms:g}")
        return ",".join(parts) + (f"{_BLAS_PARAMS}{self.blas_params}" if self.blas_params is not None else "")


def _number(text: str, what: str, least: int = 1) -> int:
    value = int(text) if len(text) <= 19 else _BIGGEST + 1
    if not least <= value <= _BIGGEST:
        raise TunableFileError(f"{what}={text[:24]}: a dimension is an integer from {least} to 2^63-1")
    return value


def parse_gemm(line: str) -> Gemm:
    """Parse one line of a results or untuned file (not a ``Validator`` line).

    Raises:
        TunableFileError: unknown operator, malformed parameters, letters that disagree, or a time that is no time.

    >>> parse_gemm("GemmStridedBatchedTunableOp_float_NN,nn_16_32_64_B_4_ld_16_64_16").batch
    4
    >>> parse_gemm("GemmTunableOp_float_NN,nt_4_4_4")
    Traceback (most recent call last):
        ...
    rocm_guide.tune.tunableop.gemm.TunableFileError: nt_4_4_4: the letters disagree with GemmTunableOp_float_NN
    """
    body, mark, blas = line.partition(_BLAS_PARAMS)
    columns = body.split(",")
    if not 2 <= len(columns) <= 4:
        form = "a line has operator,parameters[,solution[,time]]"
        raise TunableFileError(f"{line[:60]!r}: {len(columns)} columns; {form}")
    op = _OP.fullmatch(columns[0])
    if op is None:
        raise TunableFileError(f"{columns[0][:60]!r}: not a TunableOp operator such as GemmTunableOp_float_NN")
    params = _PARAMS.fullmatch(columns[1])
    if params is None:
        raise TunableFileError(f"{columns[1][:60]!r}: parameters look like nn_1024_512_2048_ld_1024_2048_1024")
    kind, types, *letters = op.groups()
    dtypes = tuple(re.findall(_DTYPE, types))
    if len(dtypes) != (3 if kind == "ScaledGemm" else 1):
        raise TunableFileError(f"{columns[0]}: {kind} has {3 if kind == 'ScaledGemm' else 1} element types")
    transa, transb, m, n, k, batch, lda, ldb, ldc, rowwise, bias = params.groups()
    if [transa != "n", transb != "n"] != [letter == "T" for letter in letters]:
        raise TunableFileError(f"{columns[1]}: the letters disagree with {columns[0]}")
    if (batch is not None) != (kind == "GemmStridedBatched"):
        raise TunableFileError(f"{columns[1]}: _B_ (a batch) belongs to GemmStridedBatchedTunableOp and only there")
    solution = columns[2].strip() if len(columns) > 2 else None
    if solution == "":
        raise TunableFileError(f"{columns[0]},{columns[1]}: the solution is empty; write Default or remove the line")
    return Gemm(
        kind=kind,
        dtypes=dtypes,
        transa=transa,
        transb=transb,
        m=_number(m, "m"),
        n=_number(n, "n"),
        k=_number(k, "k"),
        batch=None if batch is None else _number(batch, "batch"),
        # A leading dimension of 0 is legal in memory (an expanded tensor), so it is not checked like a size.
        ld=None if lda is None else (_number(lda, "lda", 0), _number(ldb, "ldb", 0), _number(ldc, "ldc", 0)),
        rowwise=None if rowwise is None else rowwise == "1",
        bias=bias,
        solution=solution,
        time_ms=_time(columns[3]) if len(columns) > 3 else None,
        blas_params=blas if mark else None,
    )


def _time(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or value < 0 or "_" in text:
        raise TunableFileError(f"time={text[:24]!r}: a time is a number of milliseconds, 0 or more")
    return value


def _operands(g: Gemm) -> tuple[str, str]:
    """Return the two factors as PyTorch saw them, left then right. BLAS's B is the left one, its A the right one."""
    left = f"X[{g.n}, {g.k}]" if g.transb == "n" else f"X[{g.k}, {g.n}].T"
    right = f"W[{g.m}, {g.k}].T" if g.transa != "n" else f"W[{g.k}, {g.m}]"
    return left, right


def solution_words(solution: str | None) -> str:
    """Return what the third column of a results file means.

    >>> solution_words("Gemm_Hipblaslt_NN_52565")
    'kernel 52565 in the list of hipBLASLt'
    >>> solution_words("Default")
    'what the library picks by itself: nothing was faster'
    """
    if solution is None:
        return "not tuned yet"
    if solution == "Default":
        return "what the library picks by itself: nothing was faster"
    parts = solution.split("_")
    libraries = {"Rocblas": "rocBLAS", "Hipblaslt": "hipBLASLt"}
    if len(parts) >= 3 and parts[0] == "Gemm" and parts[1] in libraries and parts[-1].isdigit():
        return f"kernel {parts[-1]} in the list of {libraries[parts[1]]}"
    return f"a solution called {solution}"


def describe_gemm(gemm: Gemm) -> str:
    """Return a short paragraph on one line of a file: which product, whose, and why M and N changed places.

    >>> text = describe_gemm(parse_gemm("GemmAndBiasTunableOp_Half_TN,tn_768_1024_256_ld_256_256_768"))
    >>> text.splitlines()[0]
    'Y[1024, 768] = X[1024, 256] @ W[768, 256].T + bias, in float16: 0.40 GFLOP.'
    """
    left, right = _operands(gemm)
    batch = f"{gemm.batch} independent products: " if gemm.batch else ""
    types = " and ".join(dict.fromkeys(t if t.startswith("Float") else TYPES[t][0] for t in gemm.dtypes))
    bias = " + bias" if gemm.kind == "GemmAndBias" or (gemm.bias or "None") != "None" else ""
    lines = [
        f"{batch}Y[{gemm.n}, {gemm.m}] = {left} @ {right}{bias}, in {types}: {gemm.flops / 1e9:.2f} GFLOP.",
        f"BLAS counts by columns, so PyTorch asks it for Y transposed: M = {gemm.m} is the number of output features "
        f"(columns of Y), N = {gemm.n} the number of rows (tokens), and W comes first.",
    ]
    if gemm.transa != "n":
        stored = "W is stored as [out, in], as nn.Linear keeps it"
        lines.append(f"{stored}; seen by columns that is transposed, hence the t.")
    if gemm.ld is not None:
        tight = (gemm.m if gemm.transa == "n" else gemm.k, gemm.k if gemm.transb == "n" else gemm.n, gemm.m)
        gaps = [name for name, ld, full in zip(("W", "X", "Y"), gemm.ld, tight, strict=True) if ld > full]
        if gaps:
            have = f"{' and '.join(gaps)} {'has' if len(gaps) == 1 else 'have'}"
            lines.append(f"{have} a leading dimension above the row length: a slice of a larger tensor.")
    if gemm.tuned:
        time = "" if gemm.time_ms is None else f", {gemm.time_ms:g} ms per call"
        if gemm.time_ms:
            time += f" = {gemm.flops / gemm.time_ms / 1e9:.1f} TFLOPS"
        lines.append(f"Solution: {solution_words(gemm.solution)}{time}.")
    return "\n".join(lines)
