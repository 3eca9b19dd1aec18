# SPDX-License-Identifier: MIT
"""The four roundings of MODE against exact fractions, for every instruction that obeys them; others are refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from cdna.run import RunError
from cdna.run.matrix import SHAPES
from cdna.run.rounding import WAYS, obeys
from cdna.run.vector_table import ROWS
from tests.run import harness as h

RNG = np.random.default_rng(11)
TYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64}
#: Name -> exact result of fractions.
EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}


def numbers(dtype):
    """Three operands for 64 lanes: random bits (never NaN or infinite), near limits, ties, denormals, cancellation."""
    info, size = np.finfo(dtype), np.dtype(dtype).itemsize
    x = np.frombuffer(RNG.bytes(3 * 64 * size), dtype).reshape(3, 64).copy()
    edge = [info.max, -info.max, info.tiny, -info.smallest_subnormal, 1, -1, 1 + info.eps, 1 - info.epsneg, 3, 0]
    x[:, :10] = [np.roll(np.array(edge, dtype), k) for k in (0, 1, 3)]
    x[1, 10:20] = x[0, 10:20]  # what cancels
    x[:, 20:40] = RNG.standard_normal((3, 20)).astype(dtype)
    x[~np.isfinite(x)] = dtype(1.5)
    return x


def neighbours(exact, dtype):
    """The largest number of the type that is not above an exact one, and the smallest that is not below, by search."""
    count = np.dtype(f"u{np.dtype(dtype).itemsize}").type

    def value(n):  # numbers in order: n counts steps away from zero
        bits = np.array(abs(n), count).view(dtype)
        return float(bits) if n >= 0 else -float(bits)

    top = int(np.array(np.inf, dtype).view(count))
    low, high = -top, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= exact else (low, middle)
    return (value(low), value(low)) if value(low) == exact else (value(low), value(high))


def wanted(exact, dtype, way):
    below, above = neighbours(exact, dtype)
    return {1: above, 2: below, 3: below if exact > 0 else above}[way]


def operands(t, count):
    wide = t == "f64"
    names = [f"v[{2 * i}:{2 * i + 1}]" if wide else f"v{i}" for i in range(1, count + 2)]
    return ", ".join([names[-1], *names[:-1]]), (2 if wide else 1), count + 1


def run(op, t, x, way, field):
    text, each, last = operands(t, len(x))
    code = f"  s_setreg_imm32_b32 hwreg(HW_REG_MODE, {field}, 2), {way}\n  {op} {text}"
    w = h.lanes(code, {each * (i + 1): row for i, row in enumerate(x)})
    if each == 2:
        return np.stack([w.V[2 * last], w.V[2 * last + 1]], 1).copy().view(np.float64).ravel()
    return w.V[last].copy().view(TYPES[t])[:: 2 if t == "f16" else 1]


@pytest.mark.parametrize("way", [1, 2, 3])
@pytest.mark.parametrize(("name", "t"), [(n, t) for n in EXACT for t in TYPES if t != "f64" or "sub" not in n])
def test_a_result_is_the_neighbour_that_mode_asks_for(name, t, way):
    dtype = TYPES[t]
    x = numbers(dtype)[: 3 if name == "fma" else 2]
    encoding = "" if name == "fma" or t == "f64" else "_e32"
    got = run(f"v_{name}_{t}{encoding}", t, x, way, 0 if t == "f32" else 2)
    for lane in range(64):
        exact = EXACT[name](*(Fraction(float(v)) for v in x[:, lane]))
        if exact == 0:
            assert got[lane] == 0
            continue
        assert float(got[lane]) == wanted(exact, dtype, way), (lane, x[:, lane], float(exact))


@pytest.mark.parametrize(("way", "negative"), [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize("t", TYPES)
def test_numbers_that_cancel_give_minus_zero_only_downwards(t, way, negative):
    x = np.array([[1.5] * 64, [-1.5] * 64], TYPES[t])
    zero = run(f"v_add_{t}", t, x, way, 0 if t == "f32" else 2)
    assert (zero == 0).all() and (np.signbit(zero) == negative).all()
    product = run(f"v_mul_{t}", t, np.array([[0.0] * 64, [-1.5] * 64], TYPES[t]), way, 0 if t == "f32" else 2)
    assert np.signbit(product).all()


@pytest.mark.parametrize("way", [0, 1, 2, 3])
def test_each_field_is_for_its_types_only(way):
    third = np.full(64, 1 / 3, np.float32)
    x = np.stack([third, third])
    assert np.array_equal(run("v_mul_f32_e32", "f32", x, way, 2), run("v_mul_f32_e32", "f32", x, 0, 0))
    half = x.astype(np.float16)
    assert np.array_equal(run("v_mul_f16_e32", "f16", half, way, 0), run("v_mul_f16_e32", "f16", half, 0, 0))


@pytest.mark.parametrize("way", [1, 2, 3])
def test_conversions_packed_and_accumulating_instructions(way):
    x = RNG.standard_normal(64).astype(np.float32)
    code = f"  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), {way | way << 2}\n"
    w = h.lanes(
        code + "  v_cvt_f16_f32_e32 v5, v1\n  v_cvt_f32_u32_e32 v6, v2\n  v_mov_b32_e32 v7, 1.0\n"
        "  v_fmac_f32_e32 v7, v1, v1\n  v_pk_mul_f32 v[8:9], v[0:1], v[0:1] op_sel:[1,1] op_sel_hi:[1,1]\n"
        "  v_pk_add_f16 v10, v5, 1.0 op_sel_hi:[0,0]\n  v_cvt_f32_f64_e32 v11, v[12:13]",
        {0: x, 1: x, 2: np.full(64, 2**24 + 1, np.uint32), 12: np.full(64, math.pi)},
    )
    for i in range(64):
        exact = Fraction(float(x[i]))
        half = wanted(exact, np.float16, way)
        assert w.V[5][i : i + 1].view(np.float16)[0] == half
        assert w.F[6][i] == wanted(Fraction(2**24 + 1), np.float32, way)
        assert w.F[7][i] == wanted(exact * exact + 1, np.float32, way)
        assert w.F[8][i] == w.F[9][i] == wanted(exact * exact, np.float32, way)
        assert w.V[10][i : i + 1].view(np.float16)[0] == wanted(Fraction(half) + 1, np.float16, way)
        assert w.F[11][i] == wanted(Fraction(math.pi), np.float32, way)


@pytest.mark.parametrize(
    "code",
    [
        "v_exp_f32_e32 v5, v1",
        "v_rcp_f32_e32 v5, v1",
        "v_dot2_f32_f16 v5, v1, v1, v1",
        "v_dot2c_f32_f16 v5, v1, v1",
        "v_dot2_f32_bf16 v5, v1, v1, v1",
        "v_cvt_pk_fp8_f32 v5, v1, v1",
        "v_cvt_pk_bf8_f32 v5, v1, v1",
        "v_cvt_sr_fp8_f32 v5, v1, v1",
        "v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[2:3], 0",
        "v_mfma_f32_16x16x32_fp8_bf8 a[0:3], v[2:3], v[2:3], 0",
        "v_mfma_f32_16x16x8_xf32 a[0:3], v[2:3], v[2:3], 0",
        "v_mul_f32_e64 v5, v1, v1 mul:2",
    ],
)
def test_what_no_document_settles_is_refused_by_name(code):
    one = {1: np.ones(64, np.float32), 2: np.ones((64, 2), np.float32), 5: np.ones(64, np.float32)}
    h.lanes(f"  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0\n  {code}", one)
    name = code.split()[0].removesuffix("_e32").removesuffix("_e64")
    with pytest.raises(RunError, match=rf"MODE rounds toward zero for f32 .*{name} is modelled to nearest even only"):
        h.lanes(f"  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3\n  {code}", one)


def test_every_matrix_instruction_of_floats_is_refused_and_none_of_integers():
    for (sparse, kind), shapes in SHAPES.items():
        result = "i32" if kind == "i8" else "f64" if kind == "f64" else "f32"
        for m, n, k, _ in shapes:
            name = f"v_{'smfmac' if sparse else 'mfma'}_{result}_{m}x{n}x{k}_{kind}"
            assert obeys(name) == (kind == "i8"), name


def test_the_mode_of_the_descriptor_counts_too():
    x = np.full(64, 1 / 3, np.float32)
    extra = "  .amdhsa_float_round_mode_32 3"
    down = h.lanes("  v_mul_f32_e32 v5, v1, v1", {1: x}, extra=extra).F[5][0]
    assert down == wanted(Fraction(float(x[0])) ** 2, np.float32, 3)


def test_every_instruction_with_a_float_result_is_rounded_exact_or_refused():
    open_ = {name for name in ROWS if ROWS[name].result[0] == "f" and not obeys(name)}
    assert {"v_exp_f32", "v_rcp_f64", "v_sqrt_f16", "v_fract_f32", "v_ldexp_f32", "v_mul_legacy_f32"} <= open_
    assert not open_ & {f"v_{op}_{t}" for op in ("add", "mul", "fma", "max", "trunc") for t in TYPES}
    assert len(WAYS) == 4
