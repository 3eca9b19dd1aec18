# SPDX-License-Identifier: MIT
"""What kernel tests run on, which 8-bit floats its GEMMs take, and in which form kernels write e4m3 here."""

from __future__ import annotations

import os
from typing import Any

import torch

from rocm_guide.kernels.fp8 import Fp8Format, fp8_format
from rocm_guide.kernels.gemm import architecture, eight_bit_floats
from tests.in_turn import in_shares

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
OCP = (torch.float8_e4m3fn, torch.float8_e5m2)
FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def here() -> str:
    """The key of the configuration tables: ``gfx942``, ``sm_90``, ``interpreter``.

    Without a GPU the tests run in a child process, in the interpreter; this process only collects them.
    """
    return architecture(torch.empty(0, device="cuda")) if torch.cuda.is_available() else "interpreter"


def eight_bit() -> list[torch.dtype]:
    """The fp8 types that a GEMM test may use: FNUZ on MI300X, OCP on later GPUs of AMD and on NVIDIA's."""
    return list(eight_bit_floats(here()))


def fp8_here() -> Fp8Format:
    """The form of e4m3 that kernels write here; Triton's interpreter takes OCP."""
    return fp8_format("e4m3", here())


def seeds(n: int) -> list[Any]:
    """The numbers of random cases: all on a GPU, and in the interpreter a third of them in each run.

    Types, strides and options go by remainders of 2 to 7: a stretch of 24 has them all.
    """
    return list(range(n)) if torch.cuda.is_available() else in_shares(range(n), 3, together=24)


def hopper() -> bool:
    """Whether this is NVIDIA's Hopper. The capability alone does not say it: AMD's MI200 answers (9, 0) too."""
    return here() == "sm_90"
