# SPDX-License-Identifier: MIT
"""What the launches tuned for an NVIDIA H100 compile to: no GPU is needed for that, and CI has none.

What only Hopper has is asked for in a launch configuration, so a new Triton can lose it without any test of results
noticing.
"""

import pytest
import torch

from rocm_guide.kernels import gemm_skinny, int8_gemm
from rocm_guide.kernels.attention import backward as attention_backward
from rocm_guide.kernels.attention import forward as attention_forward
from rocm_guide.kernels.attention import quantized as attention_quantized
from tests.kernels.pretend_hopper import MULTIPROCESSOR, SHARED_MEMORY, assembled, empty


@pytest.mark.slow
def test_two_attention_programs_share_a_multiprocessor(compiled):
    q, packed = empty(4, 32, 4096, 128), empty(4 * 4096, 32, 128)
    starts = torch.tensor([0, 4096, 8192, 12288, 16384], dtype=torch.int32, device="meta")
    one = {"layout": "thd", "max_seqlen_q": 4096, "max_seqlen_k": 4096}
    attention_forward.attention_forward(packed, packed, packed, cu_seqlens_q=starts, cu_seqlens_k=starts, **one)
    attention_forward.attention_forward(q, q, q, alibi_slopes=empty(32, dtype=torch.float32))
    attention_forward.attention_forward(q, q, q, schedule="dynamic")
    (_, plain), (_, alibi), (_, alone) = compiled
    for kernel in (plain, alibi, alone):
        assert "wgmma.mma_async" in kernel.asm["ptx"] and "cp.async.bulk.tensor" in kernel.asm["ptx"]
    assert plain.metadata.num_warps == 4 and 2 * (plain.metadata.shared + 1024) <= MULTIPROCESSOR
    assert alibi.metadata.num_warps == 8 and 2 * (alibi.metadata.shared + 1024) <= MULTIPROCESSOR
    assert ".maxnreg 128" in alibi.asm["ptx"], "256 threads, two programs, 65,536 registers"
    assert alone.metadata.num_warps == 8 and SHARED_MEMORY / 2 < alone.metadata.shared <= SHARED_MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_attention_backward_at_odd_lengths_is_the_same_program(compiled, tmp_path, causal):
    kinds = []
    for rows in (3001, 3072):
        q, lse = empty(2, 40, rows, 128, dtype=torch.bfloat16), empty(2, 40, rows, dtype=torch.float32)
        attention_backward.attention_backward(q, q, q, q, q, lse, causal=causal)
        (_, kv), (name, queries) = compiled[-2:]
        assert name == "attention_backward_q_kernel"
        assert "cp.async.bulk.tensor" in kv.asm["ptx"] and "cp.async.bulk.tensor" in queries.asm["ptx"]
        kinds.append((kv.metadata.shared, assembled(kv, tmp_path)))
        spilled, serial = assembled(queries, tmp_path)
        assert spilled <= 16 and not serial
        assert 2 * (kv.metadata.shared + 1024) <= MULTIPROCESSOR and kv.metadata.num_warps == 4, "two programs"
    assert kinds[0] == kinds[1]
    _, (spilled, serial) = kinds[0]
    assert spilled <= 16 and not serial


@pytest.mark.slow
def test_attention_that_needs_more_registers_has_a_multiprocessor_to_itself(compiled):
    q, odd, slopes = empty(4, 32, 4096, 128), empty(4, 32, 4096, 100), empty(32, dtype=torch.float32)
    attention_forward.attention_forward(odd, odd, odd, causal=True)
    attention_forward.attention_forward(q, q, q, alibi_slopes=slopes, schedule="fixed")
    attention_forward.attention_forward(q, q, q, bias=empty(4096, 4096), schedule="dynamic")
    assert len(compiled) == 3
    for _, kernel in compiled:
        assert kernel.metadata.num_warps == 8 and ".maxnreg" not in kernel.asm["ptx"]


def test_fp32_attention_takes_nothing_from_the_tiles_of_16_bits(compiled):
    q = empty(1, 2, 128, 128, dtype=torch.float32)
    attention_forward.attention_forward(q, q, q, alibi_slopes=empty(2, dtype=torch.float32))
    (_, kernel) = compiled[0]
    assert kernel.metadata.num_warps == 4 and ".maxnreg" not in kernel.asm["ptx"] and "wgmma" not in kernel.asm["ptx"]


def test_eight_bit_heads_of_16_fill_the_product(compiled):
    q, scale = empty(1, 4, 64, 16, dtype=torch.int8), empty(1, 4, dtype=torch.float32)
    attention_quantized.attention_quantized(q, q, q, q_scale=scale, k_scale=scale, v_scale=scale)
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


def test_skinny_gemm_collects_parts_without_a_counter_and_two_share_a_multiprocessor(compiled):
    x, w = empty(8, 16384, dtype=torch.float8_e4m3fn), empty(2304, 16384, dtype=torch.float8_e4m3fn)
    gemm_skinny.gemm_skinny(x, w, 0.5, 0.5)
    kernel = compiled[0][1]
    assert "ld.volatile.global" in kernel.asm["ptx"] and "atom" not in kernel.asm["ptx"]
    assert 2 * (kernel.metadata.shared + 1024) <= MULTIPROCESSOR
