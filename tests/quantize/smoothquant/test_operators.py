# SPDX-License-Identifier: MIT
"""The five operators in torch, and an OPT layer on them."""

import copy

import pytest
import torch

from rocm_guide.kernels import int8_gemm as kernels
from rocm_guide.kernels.int8_gemm import exact_product, reference_scaled, to_int8
from rocm_guide.quantize.grid import QuantizationError
from rocm_guide.quantize.smoothquant.folding import add_outliers, fold
from rocm_guide.quantize.smoothquant.operators import OPERATORS, operator_table, run_operator
from rocm_guide.quantize.smoothquant.opt import Int8OPTLayer, causal_mask, opt_ranges
from tests.quantize.smoothquant.test_model import opt


def codes(*shape, seed=0):
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed + sum(shape)))


@pytest.mark.parametrize("k", [1, 5, 1024, 1025, 5000])
def test_products_are_exact(k):
    a, b = codes(3, k), codes(k, 4)
    want = [[sum(x * y for x, y in zip(row, column, strict=True)) for column in b.T.tolist()] for row in a.tolist()]
    assert exact_product(a, b).tolist() == want
    a.fill_(-128)
    b.fill_(-128)
    assert bool((exact_product(a, b) == k * 2**14).all())


def test_rounding_and_truncation():
    x = torch.tensor([0.4, 0.5, 1.5, -0.6, -1.5, 126.7, 127.4, 500.0, -127.6, -128.4, -500.0])
    assert to_int8(x).tolist() == [0, 0, 2, -1, -2, 127, 127, 127, -128, -128, -128]
    assert to_int8(x, truncate=True).tolist() == [0, 0, 1, 0, -1, 126, 127, 127, -127, -128, -128]
    spread = torch.linspace(0.0, 40.0, 4001)
    assert abs(float((to_int8(spread).float() - spread).mean())) < 0.01
    assert float((spread - to_int8(spread, truncate=True).float()).mean()) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_its_formula(name):
    operator = OPERATORS[name]
    batch = (3,) if operator.batched else ()
    a, b, d = codes(*batch, 4, 6), codes(*batch, 6, 5), None
    if not operator.batched:
        d = codes(5) if operator.d == "I8" else codes(4, 5).float() / 3
    got = run_operator(name, a, b, d, alpha=0.01, beta=0.5)
    want = 0.01 * torch.einsum("...mk,...kn->...mn", a.double(), b.double()) + (0 if d is None else 0.5 * d.double())
    want = want.clamp(min=0) if "ReLU" in name else want
    if name.endswith("F32"):
        assert got.dtype == torch.float32 and torch.allclose(got.double(), want, rtol=1e-6)
    else:
        assert got.dtype == torch.int8 and torch.equal(got.double(), want.round().clamp(-128, 127))


def test_the_table_names_every_wrapper():
    text = operator_table()
    for operator in OPERATORS.values():
        assert operator.name in text and operator.kernel in kernels.__all__
    assert [o.name for o in OPERATORS.values() if o.own] == ["Linear_ReLU_ABDE_I8", "Linear_AB_I8_DE_F32"]


def test_scales_of_rows_and_columns():
    a, b = codes(3, 7), codes(7, 2)
    rows, columns, bias = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.1, 3.0]), torch.tensor([1.0, -1.0])
    want = torch.diag(rows.double()) @ a.double() @ b.double() @ torch.diag(columns.double()) + bias.double()
    assert torch.allclose(reference_scaled(a, b, rows, columns, bias), want)
    assert torch.equal(reference_scaled(a, b, torch.ones(1), torch.ones(1)), a.double() @ b.double())


A, B, D = codes(2, 4), codes(4, 3), codes(3)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (("Linear_ABDE", A, B, D), "'Linear_ABDE': no such operator; there are Linear_ABDE_I8,"),
        (("Linear_ABDE_I8", A.float(), B, D), "A is 2-D float32; give 2-D int8"),
        (("BMM_ABE_I8", A, B), "A is 2-D int8; give 3-D int8"),
        (("Linear_ABDE_I8", A, B.T, D), "A (2, 4) and B (3, 4) do not fit"),
        (("BMM_ABE_I8", codes(2, 3, 4), codes(3, 4, 5)), "do not fit"),
        (("Linear_ABDE_I8", A, B), "D is missing"),
        (("BMM_ABE_I8", A[None], B[None], D), "takes no D; leave it out"),
        (("Linear_AB_I8_DE_F32", A, B, D), "D is (3,) int8; give (3,) or (2, 3) in float32"),
        (("Linear_ABDE_I8", A, B, codes(2)), "D is (2,) int8; give (3,) or (2, 3) in int8"),
    ],
)
def test_refusals(call, line):
    with pytest.raises(QuantizationError) as caught:
        run_operator(*call)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def plain(layer, x):
    with torch.inference_mode():
        out = layer(x, attention_mask=causal_mask(x.shape[1], x.device))
    return out[0] if isinstance(out, tuple) else out


def off(layer, x, want):
    with torch.inference_mode():
        got = Int8OPTLayer(layer, opt_ranges(layer, [x]))(x)
    return float((got - want).norm() / (want - x).norm())


def test_an_opt_layer_in_int8_is_near_the_layer_in_float32():
    layer, x = (
        opt(init_std=0.15).model.decoder.layers[0],
        torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(3)),
    )
    want = plain(layer, x)
    assert off(layer, x, want) < 0.05
    # A token does not see those behind it.
    int8 = Int8OPTLayer(layer, opt_ranges(layer, [x]))
    changed = x.clone()
    changed[:, 8:] = 0.3
    with torch.inference_mode():
        assert torch.equal(int8(x)[:, :8], int8(changed)[:, :8])


def test_outliers_ruin_an_opt_layer_and_smoothing_repairs_it():
    model, x = opt(init_std=0.15), torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(3))
    want = plain(model.model.decoder.layers[0], x)
    chosen = add_outliers(model, 100)
    layer = model.model.decoder.layers[0]
    assert torch.allclose(plain(layer, x), want, atol=1e-4)
    ruined = off(layer, x, want)
    repaired = copy.deepcopy(layer)
    for norm, names in (("self_attn_layer_norm", ("q_proj", "k_proj", "v_proj")), ("final_layer_norm", ("fc1",))):
        scales = torch.ones(32)
        scales[chosen[f"model.decoder.layers.0.{norm}"]] = 100
        linears = [repaired.get_submodule(n if n == "fc1" else f"self_attn.{n}") for n in names]
        fold(repaired.get_submodule(norm), linears, scales)
    assert off(repaired, x, want) < 0.05 < 0.3 < ruined


def test_opt_refusals():
    model = opt(do_layer_norm_before=False)
    layer, x = model.model.decoder.layers[0], torch.randn(1, 4, 32)
    lines = {
        "come after its products": lambda: Int8OPTLayer(layer, opt_ranges(layer, [x])),
        "Linear: has no self_attn_layer_norm; give a layer of an OPT": lambda: opt_ranges(torch.nn.Linear(2, 2), [x]),
        "no inputs to calibrate with": lambda: opt_ranges(layer, []),
        "self_attn_layer_norm: not calibrated": lambda: Int8OPTLayer(layer, {}),
    }
    for line, attempt in lines.items():
        with pytest.raises(QuantizationError) as caught:
            attempt()
        assert line in str(caught.value) and "\n" not in str(caught.value)
