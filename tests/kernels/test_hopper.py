# SPDX-License-Identifier: MIT
"""What the launches tuned for an NVIDIA H100 compile to: no GPU is needed for that, and CI has none.

What only Hopper has is asked for in a launch configuration, so a new Triton can lose it without any test of results
noticing.
"""

import pytest
import torch

from rocm_guide.kernels import attention, attention_fp8, int8_gemm
from tests.kernels.pretend_hopper import SHARED_MEMORY, empty


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128, 256])
def test_attention_fits_into_shared_memory(compiled, width):
    q, lse = empty(1, 4, 1024, width), empty(1, 4, 1024, dtype=torch.float32)
    codes, scale = empty(1, 4, 1024, width, dtype=torch.int8), empty(1, 4, dtype=torch.float32)
    for options in ({}, {"dropout": 0.1}):
        attention.attention_forward(q, q, q, causal=True, **options)
        attention.attention_backward(q, q, q, q, q, lse, causal=True, **options)
    attention_fp8.attention_quantized(codes, codes, codes, q_scale=scale, k_scale=scale, v_scale=scale)
    assert len(compiled) == 9 and all(kernel.metadata.shared <= SHARED_MEMORY for _, kernel in compiled)


def test_eight_bit_heads_of_16_fill_the_product(compiled):
    q, scale = empty(1, 4, 64, 16, dtype=torch.int8), empty(1, 4, dtype=torch.float32)
    attention_fp8.attention_quantized(q, q, q, q_scale=scale, k_scale=scale, v_scale=scale)
    assert len(compiled) == 1, "32 is the least depth of an 8-bit product"


def test_int8_products_are_fetched_by_the_tma_and_multiplied_by_wgmma(compiled):
    a, w = empty(4096, 4096, dtype=torch.int8), empty(12288, 4096, dtype=torch.int8)
    rows, columns = empty(4096, dtype=torch.float32), empty(12288, dtype=torch.float32)
    int8_gemm.linear_scaled(a, w.T, rows, columns, out_dtype=torch.bfloat16)
    int8_gemm.linear_relu_abde_i8(a, w.T, empty(12288, dtype=torch.int8), 0.5)
    assert [name for name, _ in compiled] == ["int8_operator_kernel"] * 2
    for _, kernel in compiled:
        ptx = kernel.asm["ptx"]
        assert "wgmma.mma_async" in ptx and ".s32.s8.s8" in ptx and "cp.async.bulk.tensor" in ptx
        assert kernel.metadata.shared <= SHARED_MEMORY
