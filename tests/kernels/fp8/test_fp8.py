# SPDX-License-Identifier: MIT
"""The models of the fp8 formats against torch's conversions, for every byte and every 16-bit number."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.fp8 import FP8, decode_fp8, encode_fp8, fp8_dtype, fp8_format


def same(a, b):
    return (a == b) | (a.isnan() & b.isnan())


@pytest.mark.parametrize("fmt", FP8.values(), ids=lambda f: f.name)
def test_every_byte_means_what_torch_says(fmt):
    codes = torch.arange(256, dtype=torch.uint8)
    values = decode_fp8(codes, fmt)
    assert bool(same(values, codes.view(fp8_dtype(fmt)).float()).all())
    assert values[values.isfinite()].max() == fmt.maximum == decode_fp8(torch.tensor([fmt.maximum_code]), fmt).item()
    assert decode_fp8(torch.tensor([fmt.nan_code]), fmt).isnan().all()
    assert bool(values.isinf().any()) is (fmt.infinity_code is not None)
    # Encoding what a byte means gives the byte back (NaN has several bytes in the OCP forms).
    back = encode_fp8(values, fmt, saturate=False)
    assert torch.equal(back[~values.isnan()], codes[~values.isnan()])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fmt", FP8.values(), ids=lambda f: f.name)
def test_every_16_bit_number_rounds_as_in_torch(fmt, dtype):
    x = torch.arange(-32768, 32768, dtype=torch.int16).view(dtype).float()
    # Saturated on our side first: torch releases differ in what they do beyond the maximum.
    mine = encode_fp8(x, fmt)
    theirs = x.clamp(-fmt.maximum, fmt.maximum).to(fp8_dtype(fmt)).view(torch.uint8)
    assert torch.equal(mine[~x.isnan()], theirs[~x.isnan()])
    assert bool(decode_fp8(mine[x.isnan()], fmt).isnan().all())


@pytest.mark.parametrize("fmt", FP8.values(), ids=lambda f: f.name)
def test_halfway_goes_to_even_and_a_hair_more_goes_up(fmt):
    codes = torch.arange(fmt.maximum_code, dtype=torch.uint8)
    low, high = decode_fp8(codes, fmt).double(), decode_fp8(codes + 1, fmt).double()
    middle = (low + high) / 2
    assert torch.equal(encode_fp8(middle, fmt), torch.where(codes % 2 == 0, codes, codes + 1))
    assert torch.equal(encode_fp8(middle * (1 + 1e-12), fmt), codes + 1)
    assert torch.equal(encode_fp8(middle * (1 - 1e-12), fmt), codes)


def test_beyond_the_maximum():
    x = torch.tensor([1e30, -1e30, float("inf"), float("nan")])
    assert decode_fp8(encode_fp8(x, FP8["e4m3fn"]), FP8["e4m3fn"]).tolist()[:3] == [448.0, -448.0, 448.0]
    assert bool(decode_fp8(encode_fp8(x, FP8["e4m3fnuz"], saturate=False), FP8["e4m3fnuz"]).isnan().all())
    inf = float("inf")
    assert decode_fp8(encode_fp8(x, FP8["e5m2"], saturate=False), FP8["e5m2"]).tolist()[:3] == [inf, -inf, inf]
    tiny = torch.tensor([-1e-9, -0.0])
    assert encode_fp8(tiny, FP8["e4m3fnuz"]).tolist() == [0, 0], "FNUZ has no negative zero: its code is NaN"
    assert encode_fp8(tiny, FP8["e4m3fn"]).tolist() == [0x80, 0x80]


def test_the_architecture_decides_the_form():
    arches = ("gfx942", "gfx950", "sm_90", "interpreter")
    assert [fp8_format("e4m3", a).name for a in arches] == ["e4m3fnuz", "e4m3fn", "e4m3fn", "e4m3fn"]
    assert fp8_format("e5m2", "gfx942").name == "e5m2fnuz"
    with pytest.raises(ValueError, match="e3m4"):
        fp8_format("e3m4", "gfx942")
