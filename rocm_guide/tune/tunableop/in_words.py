# SPDX-License-Identifier: MIT
"""Say in words what a line of a TunableOp file stands for: which product, whose, and why M and N changed places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_guide.tune.tunableop.gemm import Gemm

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.planner import Plan

__all__ = ["describe_gemm"]

_TYPES = {
    "float": "float32",
    "tf32": "float32 computed as TF32",
    "double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


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


def describe_gemm(gemm: Gemm, plan: Plan | None = None) -> str:
    """Return a short paragraph on one line of a file;
    with a plan, also which modules of the model ask for it and how often.

    >>> from rocm_guide.tune.tunableop.gemm import parse_gemm
    >>> text = describe_gemm(parse_gemm("GemmAndBiasTunableOp_Half_TN,tn_768_1024_256_ld_256_256_768"))
    >>> text.splitlines()[0]
    'Y[1024, 768] = X[1024, 256] @ W[768, 256].T + bias, in float16: 0.40 GFLOP.'
    """
    left, right = _operands(gemm)
    batch = f"{gemm.batch} independent products: " if gemm.batch else ""
    types = " and ".join(dict.fromkeys(_TYPES.get(t, t) for t in gemm.dtypes))
    bias = " + bias" if gemm.kind == "GemmAndBias" or (gemm.bias or "None") != "None" else ""
    lines = [
        f"{batch}Y[{gemm.n}, {gemm.m}] = {left} @ {right}{bias}, in {types}: {gemm.flops / 1e9:.2f} GFLOP.",
        f"BLAS counts by columns, so PyTorch asks it for Y transposed: M = {gemm.m} is the number of output features "
        f"(columns of Y), N = {gemm.n} the number of rows (tokens), and W comes first.",
    ]
    if gemm.transa != "n":
        lines.append(
            "W is stored as [out, in], as nn.Linear keeps it; seen by columns that is transposed, hence the t."
        )
    if gemm.ld is not None:
        tight = (
            gemm.m if gemm.transa == "n" else gemm.k,
            gemm.k if gemm.transb == "n" else gemm.n,
            gemm.m,
        )
        gaps = [name for name, ld, full in zip(("W", "X", "Y"), gemm.ld, tight, strict=True) if ld > full]
        if gaps:
            verb = "has" if len(gaps) == 1 else "have"
            lines.append(
                f"{' and '.join(gaps)} {verb} a leading dimension above the row length: a slice of a larger tensor."
            )
    if gemm.tuned:
        time = "" if gemm.time_ms is None else f", {gemm.time_ms:g} ms per call"
        if gemm.time_ms:
            time += f" = {gemm.flops / gemm.time_ms / 1e9:.1f} TFLOPS"
        lines.append(f"Solution: {solution_words(gemm.solution)}{time}.")
    entry = plan.gemms.get(gemm.key) if plan is not None else None
    if entry is not None:
        who = ", ".join(entry.modules[:4]) + (" …" if len(entry.modules) > 4 else "")
        lines.append(
            f"Asked for by {who or 'the model'}: {entry.prefill} calls in prefill, {entry.decode} in decoding."
        )
    elif plan is not None:
        lines.append("The planned workload never asks for it.")
    return "\n".join(lines)
