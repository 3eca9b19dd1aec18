# SPDX-License-Identifier: MIT
"""Checks of notebook 17 (tunableop)."""

from __future__ import annotations

from typing import Any

from rocm_guide.exercises.common import no, yes
from rocm_guide.tune.tunableop.files import TuningFile, parse_text
from rocm_guide.tune.tunableop.gemm import TunableFileError, parse_gemm
from rocm_guide.tune.tunableop.planner import plan_model

__all__ = ["LEFT", "RIGHT", "check_line", "check_merged", "check_settings"]

_HEAD = "Validator,PT_VERSION,2.11.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
#: Two results files of the same machine, for exercise 3.
LEFT = (
    _HEAD + "GemmTunableOp_Half_TN,tn_4096_1_4096_ld_4096_4096_4096,Gemm_Rocblas_1074,0.0212\n"
    "GemmTunableOp_Half_TN,tn_4096_32_4096_ld_4096_4096_4096,Gemm_Hipblaslt_2211,0.0251\n"
)
RIGHT = (
    _HEAD + "GemmTunableOp_Half_TN,tn_4096_1_4096_ld_4096_4096_4096,Gemm_Hipblaslt_901,0.0187\n"
    "GemmTunableOp_Half_TN,tn_4096_64_4096_ld_4096_4096_4096,Default,0.0275\n"
)


def check_line(line: str) -> bool:
    """Check exercise 1: the line for nn.Linear(4096, 11008, bias=False) in float16 on 32 tokens.

    >>> check_line("GemmTunableOp_Half_TN,tn_32_11008_4096_ld_4096_4096_32")
    [HINT] M and N are the wrong way round: BLAS computes Y transposed, so M counts output features
    False
    """
    try:
        g = parse_gemm(line)
    except TunableFileError as e:
        return no(str(e))
    if g.kind != "Gemm" or g.dtypes != ("Half",):
        return no(f"{g.op}: no bias, so a plain Gemm; float16 is called Half")
    if (g.m, g.n) == (32, 11008):
        return no("M and N are the wrong way round: BLAS computes Y transposed, so M counts output features")
    if (g.m, g.n, g.k) != (11008, 32, 4096):
        return no(f"M, N, K = {g.m}, {g.n}, {g.k}: output features, tokens, input features")
    if (g.transa, g.transb) != ("t", "n"):
        return no("nn.Linear keeps W as [out, in] and multiplies with its transpose: the first letter is t")
    if g.ld != (4096, 4096, 11008):
        return no(f"ld = {g.ld}: row lengths in memory of W, X and Y, in that order")
    return yes(line)


def check_settings(pad: int, cache: str) -> bool:
    """Check exercise 2: padding and cache with at most 30 products for eager attention, at most 12 % padding tokens.

    >>> check_settings(8, "static")
    [HINT] 32 products to tune with pad=8, cache=static: allowed are 30
    False
    """
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64, intermediate_size=192, num_attention_heads=2, num_hidden_layers=1, vocab_size=96
    )
    lengths, padded = [50, 61, 70, 90, 95], 0
    found: set[Any] = set()
    for n in lengths:
        one = plan_model(config, prompt=n, new_tokens=24, pad=pad, cache=cache, attention="eager")
        found |= one.gemms.keys()
        padded += -(-n // pad) * pad
    waste = padded / sum(lengths) - 1
    if len(found) > 30:
        return no(f"{len(found)} products to tune with pad={pad}, cache={cache}: allowed are 30")
    if waste > 0.12:
        return no(f"pad={pad} adds {waste:.0%} padding tokens to prefill: allowed are 12 %")
    return yes(f"{len(found)} products, {waste:.0%} padding tokens")


def check_merged(file: TuningFile) -> bool:
    """Check exercise 3: LEFT and RIGHT in one file: three products, and for the common one the faster solution.

    >>> check_merged(parse_text(LEFT))
    [HINT] 2 tuned products: the two files name 3 different ones
    False
    """
    if not isinstance(file, TuningFile):
        return no(f"{type(file).__name__}: give the TuningFile that merge returns")
    if len(file.tuned) != 3:
        return no(f"{len(file.tuned)} tuned products: the two files name 3 different ones")
    common = file.gemms[("GemmTunableOp_Half_TN", "tn_4096_1_4096_ld_4096_4096_4096")]
    if common.solution != "Gemm_Hipblaslt_901":
        return no(f"{common.solution}: of two solutions for one product the faster one should stay")
    if file.validators != parse_text(LEFT).validators:
        return no("the validators are missing: PyTorch refuses a file without them")
    return yes("three products, the faster of two solutions, and the validators")
