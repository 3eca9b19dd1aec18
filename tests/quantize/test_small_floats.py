# SPDX-License-Identifier: MIT
"""FP8 and MX formats against torch's types, against compressed-tensors code for code, and against their definitions."""

import pytest
import torch

from rocm_guide.kernels.fp8 import FP8, decode_fp8
from rocm_guide.quantize import BLOCK_FLOATS, BlockFloat, QuantizationError, scale_blocks, shared_exponent
from rocm_guide.quantize.libraries import add_libraries, quiet
from rocm_guide.quantize.small_floats import decode_fp4, encode_fp4


def every_bfloat16() -> torch.Tensor:
    x = torch.arange(-32768, 32768).to(torch.int16).view(torch.bfloat16).float()
    return x[x.isfinite()]


def test_every_code_comes_back_and_every_number_goes_to_the_nearest():
    codes = torch.arange(16, dtype=torch.uint8)
    assert torch.equal(encode_fp4(decode_fp4(codes)), codes)
    x = every_bfloat16()
    cut, values = x.clamp(-6, 6), decode_fp4(codes)
    given = encode_fp4(x)
    distance = (cut.abs()[:, None] - values[:8]).abs()
    assert torch.equal((decode_fp4(given) - cut).abs(), distance.amin(1))
    assert torch.equal(decode_fp4(given).signbit(), x.signbit())
    ties = (distance == distance.amin(1, keepdim=True)).sum(1) == 2
    assert ties.sum() == 14 and not (given[ties] % 2).any(), "seven midpoints of either sign go to the even code"


def test_nan_is_refused():
    with pytest.raises(QuantizationError, match="NaN in the numbers to round"):
        encode_fp4(torch.tensor([1.0, float("nan")]))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(QuantizationError, match="NaN or infinity among the weights"):
            scale_blocks(torch.full((2, 32), bad), BLOCK_FLOATS["MXFP4"])
    with pytest.raises(QuantizationError, match="32 weights share a scale and do not divide a row of 48"):
        scale_blocks(torch.ones(2, 48), BLOCK_FLOATS["MXFP8"])
    with pytest.raises(QuantizationError, match="rule='ceil': choose"):
        shared_exponent(torch.ones(1), "e2m1", "ceil")


@pytest.mark.parametrize(("element", "most", "power"), [("e2m1", 6.0, 2), ("e4m3fn", 448.0, 8), ("e4m3fnuz", 240.0, 7)])
def test_exponents_follow_their_rules(element, most, power):
    x = torch.logspace(-30, 30, 2001)
    floor, nearest, above = (shared_exponent(x, element, rule) for rule in ("floor", "nearest", "above"))
    assert torch.equal(floor, (torch.log2(x.double()).floor() - power).int())
    assert torch.equal(nearest - floor, (x >= 1.75 * torch.ldexp(torch.ones_like(x), floor + power)).int())
    assert (x.double() <= most * 2.0 ** above.double()).all() and (
        x.double() > most * 2.0 ** (above.double() - 1)
    ).all()
    exact = torch.tensor([most])
    assert shared_exponent(exact, element, "above").item() == 0, "what fits exactly needs no larger scale"
    assert shared_exponent(torch.tensor([0.0, 3e38]), element).tolist()[0] == -127


@pytest.mark.parametrize("label", BLOCK_FLOATS)
def test_a_block_is_as_exact_as_its_form_allows(label):
    """Half a step of its mantissa, or half the smallest step, for every number; cut off by at most half a step."""
    torch.manual_seed(0)
    # NVFP4's scales are E4M3: beyond its range of 28,672, without subnormal numbers, small blocks lose theirs.
    span = (-1.5, 1.5) if label == "NVFP4" else (-6, 3)
    form, w = BLOCK_FLOATS[label], torch.randn(130, 192) * torch.logspace(*span, 130)[:, None]
    done = scale_blocks(w, form)
    assert done.restored.shape == done.codes.shape == w.shape
    down, across = form.rows or 130, form.columns or 192
    scale = done.scales.repeat_interleave(down, 0).repeat_interleave(across, 1)[:130, :192]
    relative, smallest = (1 / 4, 0.25) if form.element == "e2m1" else (1 / 16, 2.0**-10)
    slack = 1 + 1e-5 + (1 / 16 if label == "NVFP4" else 0)  # its scale is itself rounded, so the largest may be cut
    assert ((done.restored - w).abs() <= slack * torch.maximum(relative * w.abs(), smallest * scale)).all()


def test_zeros_stay_zeros_and_bits_are_counted():
    for label, form in BLOCK_FLOATS.items():
        done = scale_blocks(torch.zeros(4, 64), form)
        assert not done.restored.any(), label
    w = torch.randn(256, 256)
    assert scale_blocks(w, BLOCK_FLOATS["FP8, 128 x 128"]).bits == 8 + 32 * 4 / 65536
    assert scale_blocks(w, BLOCK_FLOATS["NVFP4"]).bits == 4 + 8 / 16 + 32 / 65536
    fnuz = scale_blocks(w, BlockFloat("e4m3fnuz", 1, 0, "float32"))
    theirs = fnuz.codes.view(torch.float8_e4m3fnuz).float()
    assert torch.equal(theirs, decode_fp8(fnuz.codes, FP8["e4m3fnuz"])) and theirs.abs().max() == 240


@pytest.mark.parametrize("preset", ["FP8", "FP8_DYNAMIC", "MXFP8", "MXFP4", "NVFP4A16"])
def test_codes_and_scales_equal_those_of_compressed_tensors(preset):
    label = {"FP8": "FP8, tensor", "FP8_DYNAMIC": "FP8, channel", "NVFP4A16": "NVFP4"}.get(preset, preset)
    add_libraries("compressed_tensors")
    with quiet():
        from compressed_tensors.quantization import preset_name_to_scheme
        from compressed_tensors.quantization.lifecycle.forward import fake_quantize
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    torch.manual_seed(1)
    w = torch.randn(96, 128) * torch.logspace(-2, 1, 96)[:, None]
    form = preset_name_to_scheme(preset, ["Linear"]).weights
    width = form.group_size or (w.numel() if preset == "FP8" else w.shape[1])
    blocks = w.reshape(-1, width) if preset == "FP8" else w.unflatten(1, (-1, width))
    low, high = blocks.amin(-1), blocks.amax(-1)
    whole = generate_gparam(low.amin(), high.amax()) if preset == "NVFP4A16" else None
    scale, zero = calculate_qparams(low, high, form, global_scale=whole)
    theirs = fake_quantize(w, scale, zero, form, global_scale=whole)
    ours = scale_blocks(w, BLOCK_FLOATS[label])
    mine = scale / whole if whole is not None else scale
    assert torch.allclose(mine.float().reshape(ours.scales.shape), ours.scales, rtol=1e-6, atol=0)
    assert torch.allclose(theirs, ours.restored, rtol=1e-6, atol=0)


def test_inputs_in_nvfp4_equal_those_of_compressed_tensors():
    """Notebook 13's two levels: the scale of all inputs is fixed, those of 16 numbers are found as they come."""
    add_libraries("compressed_tensors")
    with quiet():
        from compressed_tensors.quantization import initialize_module_for_quantization, preset_name_to_scheme
        from compressed_tensors.quantization.lifecycle.forward import forward_quantize
        from compressed_tensors.quantization.utils import generate_gparam
    torch.manual_seed(1)
    x, layer = torch.randn(24, 128) * torch.logspace(-2, 1, 24)[:, None], torch.nn.Linear(128, 8)
    scheme = preset_name_to_scheme("NVFP4", ["Linear"])
    initialize_module_for_quantization(layer, scheme)
    layer.input_global_scale.data.copy_(generate_gparam(x.amin(), x.amax()))
    theirs = forward_quantize(layer, x, "input", scheme.input_activations)
    assert torch.allclose(theirs, scale_blocks(x, BLOCK_FLOATS["NVFP4"]).restored, rtol=1e-6, atol=0)
    layer.input_global_scale.data /= 1000  # a fixed scale for inputs a thousand times as large: small blocks become 0
    assert not forward_quantize(layer, x, "input", scheme.input_activations)[0].any()
