# SPDX-License-Identifier: MIT
"""Checks of notebook 33 (fused_fp8_kernels)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.exercises.common import say

__all__ = ["check_bytes", "check_positions", "check_to_fnuz"]


def check_bytes(count: int) -> bool:
    """Check exercise 1: bytes per row of residual + RMSNorm + FP8, bf16, 5,120 columns, a scale for each row,
    no weight.

    Prints [OK] or a hint, and returns whether the answer is right.

    >>> check_bytes(35844)
    [OK]   read x and r, write r: 2 bytes each; write q: 1 byte; and 4 bytes for the scale
    True
    """
    right = 5120 * 7 + 4
    if not isinstance(count, int | float):
        return say(False, f"{count!r}: a number of bytes is wanted")
    if count == right:
        return say(True, "read x and r, write r: 2 bytes each; write q: 1 byte; and 4 bytes for the scale")
    hints = {
        5120 * 7: "the row's scale has to be stored too",
        5120 * 5 + 4: "the updated residual is written back",
        5120 * 9 + 4: "s stays in registers and is not read again; and the weight is left out",
        5120 * 8 + 4: "FP8 is one byte",
    }
    return say(
        False, f"{count:,} bytes: not yet. {hints.get(count, 'list what is read and what is written, per column')}"
    )


def check_to_fnuz(convert: Callable[[Any, float], tuple[Any, float]]) -> bool:
    """Check exercise 2: ``convert(codes, scale)`` turns e4m3fn bytes and their scale into e4m3fnuz bytes and theirs.

    Every one of the 254 codes that are not NaN must keep its value.

    Prints [OK] or a hint, and returns whether the answer is right.
    """
    import torch

    from rocm_guide.kernels.fp8 import FP8, decode_fp8

    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 0x7F) != 0x7F]
    wanted = decode_fp8(codes, FP8["e4m3fn"]).double() * 0.37
    try:
        new, scale = convert(codes.clone(), 0.37)
        got = decode_fp8(new, FP8["e4m3fnuz"]).double() * scale
    except Exception as e:  # noqa: BLE001 - the learner's function may raise anything
        return say(False, f"{type(e).__name__}: {e}. Return a uint8 tensor and a number")
    if got.shape != wanted.shape:
        return say(False, f"{tuple(got.shape)} values came back, not {tuple(wanted.shape)}")
    if bool(got.isnan().any()):
        return say(False, "a number became NaN: which code is negative zero in one form and NaN in the other?")
    ratio = got[wanted != 0] / wanted[wanted != 0]
    if bool(((ratio - 0.5).abs() < 1e-6).all()):
        return say(
            False, "every value is half of what it was: the same byte means half as much, so the scale must grow"
        )
    if bool(((got - wanted).abs() > 1e-6 * wanted.abs()).any()):
        return say(False, "some values changed: the bits can stay as they are, all but one code")
    return say(True, "the same bytes, twice the scale, and negative zero made zero: no value changes")


def check_positions(even: int, odd: int) -> bool:
    """Check exercise 3: positions for sparse rows that take places 0 and 2 (even) and 1 and 3 (odd) of every four.

    The product is computed through the model of the instruction with these positions.

    Prints [OK] or a hint, and returns whether the answer is right.

    >>> check_positions(0x8888, 0xDDDD)
    [OK]   the product through the sparse instruction is exact with 8888 and dddd
    True
    """
    import torch

    from cdna.hip.sparse import run_smfmac

    for name, value in (("even", even), ("odd", odd)):
        if not isinstance(value, int) or not 0 <= value <= 0xFFFF:
            return say(False, f"{name}={value!r}: give 16 bits, from 0 to 0xFFFF")
    generator = torch.Generator().manual_seed(0)
    dense, weight = (torch.randint(-8, 9, (rows, 64), generator=generator) for rows in (8, 16))
    groups = dense.reshape(8, 4, 4, 4)  # row, depth block of a lane, group, place
    lane = torch.arange(64)
    row, block = lane % 16 // 2, lane // 16
    chosen = torch.where((lane % 2 == 0)[:, None], torch.tensor([0, 2]), torch.tensor([1, 3]))
    held = groups[row, block].gather(-1, chosen[:, None, :].expand(64, 4, 2)).reshape(64, 8)
    positions = torch.where(lane % 2 == 0, even, odd)
    out = run_smfmac(held, positions, weight.reshape(16, 4, 16)[lane % 16, block])
    product = (out[:, 0::2] + out[:, 1::2]).reshape(4, 16, 2).permute(0, 2, 1).reshape(8, 16)
    if torch.equal(product, dense.double() @ weight.double().T):
        return say(True, f"the product through the sparse instruction is exact with {even:04x} and {odd:04x}")
    hint = "one group is first place + 4 x second place, in four bits; repeat it four times"
    if (even, odd) == (0x4444, 0xEEEE):
        hint = "these are the positions of the cut in the text, places 0, 1 and 2, 3"
    elif (even, odd) == (0xDDDD, 0x8888):
        hint = "even and odd are the wrong way round"
    return say(False, f"{even:04x} and {odd:04x}: not yet. {hint}")
