# SPDX-License-Identifier: MIT
"""The example kernels compute what they say (interpreter, float64 reference) and become what the notebooks show."""

from __future__ import annotations

import pytest
import torch

from cdna.compile import compile_kernel
from cdna.examples import int4_scores as examples
from cdna.interpret import InterpretError, interpret, launch_anywhere
from cdna.ir.program import parse_ir
from cdna.isa.analysis import loads_in_flight
from cdna.isa.kernel import parse_asm

INT4 = {
    "reshaped": examples.int4_scores_reshaped,
    "gathered": examples.int4_scores_gathered,
    "planar": examples.int4_scores_planar,
}


def meta(*shape, dtype=torch.float16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def packed(nibbles, planar):
    n, d = nibbles.shape
    parts = nibbles.view(n, 8, d // 8).transpose(1, 2) if planar else nibbles.view(n, d // 8, 8)
    words = (parts.long() << (torch.arange(8) * 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


@pytest.mark.parametrize("tokens", [64, 100, 1])
def test_int4_scores_equal_float64(tokens):
    torch.manual_seed(tokens)
    m, d = 16, 128
    q, nibbles = torch.randn(m, d).half(), torch.randint(0, 16, (tokens, d))
    scale, shift = (torch.rand(tokens) * 0.1 + 0.05).half(), torch.randn(tokens).half()
    pair = (scale.view(torch.int16).int() & 0xFFFF) | (shift.view(torch.int16).int() << 16)
    reference = q.double() @ (nibbles.half() * scale[:, None] + shift[:, None]).double().T
    outs = {name: torch.full((m, tokens), float("nan")) for name in INT4}
    grid = (-(-tokens // 64),)
    interpret(
        [
            (k, grid, (q, packed(nibbles, name == "planar"), pair, outs[name], tokens), {"M": m, "BLOCK": 64, "D": d})
            for name, k in INT4.items()
        ]
    )
    for name, out in outs.items():
        assert torch.allclose(out.double(), reference, atol=1e-3), name


def test_copy_and_matmul_in_the_interpreter():
    n = 1000
    x, copy = torch.randn(n), torch.full((n,), 9.0)
    a, b, c = torch.randn(40, 64).half(), torch.randn(64, 24).half(), torch.full((40, 24), float("nan")).half()
    interpret(
        [
            (examples.stream_copy, (3,), (x, copy, n), {"BLOCK": 256, "num_warps": 8}),
            (examples.tile_matmul, (2, 1), (a, b, c, 40, 24, 64), {"BM": 32, "BN": 32, "BK": 32}),
        ]
    )
    assert torch.equal(copy, x)
    assert torch.allclose(c.float(), a.float() @ b.float(), atol=0.05)


def test_a_failing_kernel_is_named():
    with pytest.raises(InterpretError, match="stream_copy failed"):
        launch_anywhere(examples.stream_copy, (1,), torch.zeros(4), torch.zeros(4), 4, BLOCK=3)


def test_a_copy_uses_the_widest_accesses():
    x, n = meta(1 << 26, dtype=torch.float32), 1 << 26
    k = parse_asm(compile_kernel(examples.stream_copy, [x, x, n], {"BLOCK": 4096}, num_warps=16).assembly)[0]
    assert (k.widths("global", "load"), k.widths("global", "store")) == ({128: 1}, {128: 1})


def compiled(name):
    n, d = 4096, 128
    arguments = [
        meta(16, d),
        meta(n, d // 8, dtype=torch.int32),
        meta(n, dtype=torch.int32),
        meta(16, n, dtype=torch.float32),
        n,
    ]
    return compile_kernel(INT4[name], arguments, {"M": 16, "BLOCK": 64, "D": d})


def test_int4_variants_differ_in_lds_as_the_notebook_says():
    trips = {name: [u.reasons for u in parse_ir(compiled(name).ttgir)[0].lds_uses] for name in INT4}
    assert sorted(trips["reshaped"]) == [("dot operand",), ("dot operand",), ("layout change",)]
    assert sorted(trips["gathered"]) == [("dot operand",), ("dot operand",)]
    assert set(trips["planar"]) == {("dot operand",)}
    assert compiled("planar").shared < compiled("gathered").shared == compiled("reshaped").shared


def test_where_the_ir_sees_no_crossing_the_code_has_no_lds_but_lane_permutes():
    c = compiled("planar")
    assert all(x.crosses_waves is False for x in parse_ir(c.ttgir)[0].conversions)
    assert parse_asm(c.assembly)[0].mix()["permute"] > 0


def test_pipelining_keeps_loads_under_way_while_the_matrix_cores_work():
    most = {}
    for stages in (1, 2):
        arguments = [meta(4096, 4096)] * 3 + [4096] * 3
        c = compile_kernel(examples.tile_matmul, arguments, {"BM": 128, "BN": 128, "BK": 32}, num_stages=stages)
        flight = loads_in_flight(parse_asm(c.assembly)[0])
        most[stages] = max((x.vector for x in flight if x.kind == "mfma"), default=0)
    assert most[1] == 0
    assert most[2] >= 4
