# SPDX-License-Identifier: MIT
"""The models of the fp8 conversions against torch's, over every fp32 number as far as rounding can tell them apart."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.fp8 import FP8, encode_fp8, fp8_dtype


def every_float() -> torch.Tensor:
    """Each sign, exponent and leading 11 mantissa bits, with the other bits all zero or not all zero (sticky).

    Rounding to 2 or 3 mantissa bits looks at the kept bits, the next one, and whether anything follows; subnormal
    results drop up to four more bits. So these 2 million stand for all 4 billion.
    """
    high = torch.arange(1 << 20, dtype=torch.int64) << 12
    return torch.cat([high, high + 1, high + 0x800]).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("fmt", FP8.values(), ids=lambda f: f.name)
def test_every_fp32_number_rounds_as_in_torch(fmt):
    x = every_float()
    assert len(x) == 3 << 20 and int(x.isnan().sum()) > 10_000
    mine = encode_fp8(x, fmt)
    # Saturated on our side first: torch releases differ in what they do beyond the maximum.
    theirs = x.clamp(-fmt.maximum, fmt.maximum).to(fp8_dtype(fmt)).view(torch.uint8)
    number = ~x.isnan()
    assert torch.equal(mine[number], theirs[number])
    assert bool(mine.view(fp8_dtype(fmt))[~number].float().isnan().all())
