# SPDX-License-Identifier: MIT
"""Checks of notebook 33: two kernels of the reader as puzzles of the dojo, and weights of the other kind of FP8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, no, yes
from rocm_guide.exercises.kernel_dojo import judge_of
from rocm_guide.kernels.fp8 import FP8, decode_fp8

__all__ = ["check_gemv", "check_quantise", "check_to_fnuz"]


def check_to_fnuz(convert: Callable[[Any, float], tuple[Any, float]]) -> bool:
    """Check exercise 3: ``convert(codes, scale)`` turns e4m3fn bytes and their scale into e4m3fnuz bytes and theirs.

    Every one of the 254 codes that are not NaN must keep its value.
    """
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 0x7F) != 0x7F]
    wanted = decode_fp8(codes, FP8["e4m3fn"]).double() * 0.37
    try:
        new, scale = convert(codes.clone(), 0.37)
        got = decode_fp8(new, FP8["e4m3fnuz"]).double() * scale
    except FAULTS as e:
        return no(f"{type(e).__name__}: {e}. Return a uint8 tensor and a number")
    if got.shape != wanted.shape:
        return no(f"{tuple(got.shape)} values came back, not {tuple(wanted.shape)}")
    if bool(got.isnan().any()):
        return no("a number became NaN: which code is negative zero in one form and NaN in the other?")
    ratio = got[wanted != 0] / wanted[wanted != 0]
    if bool(((ratio - 0.5).abs() < 1e-6).all()):
        return no("every value is half of what it was: the same byte means half as much, so the scale must grow")
    if bool(((got - wanted).abs() > 1e-6 * wanted.abs()).any()):
        return no("some values changed: the bits can stay as they are, all but one code")
    return yes("the same bytes, twice the scale, and negative zero made zero: no value changes")


check_quantise = judge_of("quantise")
check_gemv = judge_of("skinny_gemv")
