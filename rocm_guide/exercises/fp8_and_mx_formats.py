# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 13: each says what is missing, and returns whether the answer holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import combinations
from typing import Any

import torch

from rocm_guide.exercises.common import FAULTS, first_line, no, yes
from rocm_guide.quantize.small_floats import decode_fp4, encode_fp4, shared_exponent

__all__ = ["check_block", "check_exponent", "check_keep"]

#: Matrices to choose from in exercise 3: (what FP4 costs each, its weights), and the weights that may stay in 16 bits.
_CASES: tuple[tuple[dict[str, tuple[float, int]], int], ...] = (
    ({"q": (3.0, 16), "k": (2.0, 4), "v": (2.5, 4), "o": (1.0, 16), "down": (4.0, 44)}, 24),
    ({"q": (1.0, 8), "v": (1.5, 2), "gate": (5.0, 40), "down": (6.0, 40)}, 50),
    ({"gate": (5.0, 30), "up": (4.0, 15), "o": (3.5, 15)}, 30),
    ({"a": (1.0, 10), "b": (2.0, 10), "c": (3.0, 10)}, 0),
)


def _blocks() -> list[torch.Tensor]:
    """Return blocks of 32 numbers: ordinary, small, with an outlier, with a largest number of 7, and all zero."""
    source = torch.Generator().manual_seed(0)
    plain = torch.randn(32, generator=source)
    outlier, seven = plain.clone(), plain.clamp(-3, 3)
    outlier[5], seven[9] = -40.0, 7.0
    return [plain, plain * 1e-3, outlier, seven, torch.zeros(32)]


def check_block(encode: Callable[[torch.Tensor], Any]) -> bool:
    """Check exercise 1: ``encode(block)`` gives the byte of the E8M0 scale, by the specification's rule, and 32 codes.

    >>> check_block(lambda block: (127, torch.zeros(32)))
    [HINT] block 1 of 5: the scale's byte is 127, and its largest number is 2.12; floor(log2) of it, minus 2, plus 127
    False
    """
    for number, block in enumerate(_blocks(), 1):
        where = f"block {number} of {len(_blocks())}"
        try:
            byte, codes = encode(block.clone())
            byte, codes = int(byte), torch.as_tensor(codes).reshape(-1).long()
        except FAULTS as e:
            return no(f"{where}: it fails: {first_line(e)}")
        if len(codes) != 32 or int(codes.min()) < 0 or int(codes.max()) > 15:
            return no(f"{where}: expected 32 codes from 0 to 15, got {len(codes)}, {codes.min()} to {codes.max()}")
        if not block.any():
            if decode_fp4(codes.to(torch.uint8)).any():
                return no(f"{where}: all its numbers are 0, and the codes stand for others")
            continue
        wanted = int(shared_exponent(block.abs().max(), "e2m1", "floor")) + 127
        if byte != wanted:
            most = f"its largest number is {block.abs().max():.3g}; floor(log2) of it, minus 2, plus 127"
            return no(f"{where}: the scale's byte is {byte}, and {most}")
        values, right = (decode_fp4(c.to(torch.uint8)) for c in (codes, encode_fp4(block / 2.0 ** (wanted - 127))))
        if wrong := int((values != right).sum()):
            return no(f"{where}: {wrong} of 32 codes are wrong; divide by the scale, take the nearest, at most 6")
    return yes("five blocks code for code, the one beyond 6 and the one of zeros too")


def check_exponent(choose: Callable[[torch.Tensor], Any]) -> bool:
    """Check exercise 2: ``choose(block)`` gives the exponent of the scale with which MXFP4 errs least, squared.

    >>> check_exponent(lambda block: int(shared_exponent(block.abs().max(), "e2m1", "floor")))
    [HINT] block 8 of 20: 2^0 errs by 4.46, and 2^1 by 3.61; try the exponents nearby and compare
    False
    """
    source = torch.Generator().manual_seed(1)
    blocks = [torch.randn(32, generator=source) * (1 + 0.3 * i) for i in range(20)]
    for block in blocks[9::10]:  # small numbers that a larger scale would lose, beside one that a smaller one cuts
        block.copy_(torch.tensor([7.1] + 31 * [0.3]))
    for number, block in enumerate(blocks, 1):
        errors = {}
        for e in range(-12, 13):
            errors[e] = (decode_fp4(encode_fp4(block / 2.0**e)) * 2.0**e - block).square().sum().item()
        best = min(errors, key=lambda e: errors[e])
        try:
            given = int(choose(block.clone()))
        except FAULTS as e:
            return no(f"block {number} of 20: it fails: {first_line(e)}")
        if errors.get(given, float("inf")) > errors[best]:
            cost = f"errs by {errors[given]:.3g}" if given in errors else "is far off"
            found = f"2^{given} {cost}, and 2^{best} by {errors[best]:.3g}"
            return no(f"block {number} of 20: {found}; try the exponents nearby and compare")
    return yes("the best of all powers of two for 20 blocks; neither rule of section 3 finds every one")


def check_keep(keep: Callable[[Mapping[str, tuple[float, int]], int], Collection[str]]) -> bool:
    """Check exercise 3: ``keep(matrices, room)`` names the matrices to leave in 16 bits, so that the rest costs least.

    >>> check_keep(lambda matrices, room: sorted(matrices))
    [HINT] case 1 of 4: down, k, o, q, v have 84 weights, and 24 have room
    False
    """
    for number, (matrices, room) in enumerate(_CASES, 1):
        where = f"case {number} of {len(_CASES)}"
        sets = [set(s) for n in range(len(matrices) + 1) for s in combinations(matrices, n)]
        best = max(
            (s for s in sets if sum(matrices[m][1] for m in s) <= room), key=lambda s: sum(matrices[m][0] for m in s)
        )
        try:
            given = set(keep(dict(matrices), room))
        except FAULTS as e:
            return no(f"{where}: it fails: {first_line(e)}")
        if strange := sorted(map(str, given - set(matrices))):
            return no(f"{where}: {strange[0]} is none of {', '.join(matrices)}")
        taken = sum(matrices[m][1] for m in given)
        if taken > room:
            return no(f"{where}: {', '.join(sorted(given))} have {taken} weights, and {room} have room")
        saved, most = (sum(matrices[m][0] for m in s) for s in (given, best))
        if saved < most:
            return no(f"{where}: that saves {saved:g} of the error, and {most:g} is possible in the same room")
    return yes("most error saved for each weight that stays: small matrices with large errors first")
