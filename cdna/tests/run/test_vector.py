# SPDX-License-Identifier: MIT
"""Vector and scalar instructions against numpy, torch and Python integers, over special values, masks and modifiers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cdna.run import RunError
from cdna.run.arithmetic import fma16, fma32, fma64
from tests.run import harness as h

RNG = np.random.default_rng(7)
U = RNG.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
F = RNG.standard_normal((3, 64)).astype(np.float32) * np.float32(100)
F[:, :16] = [np.roll(h.SPECIAL32, k) for k in (0, 3, 7)]
HALVES = RNG.standard_normal((3, 64, 2)).astype(np.float16)
A, B, C = U
X, Y, Z = F
I32, I64, U64 = np.int32, np.int64, np.uint64
S = [v.view(I32).astype(I64) for v in U]
W = [v.astype(U64) for v in U]


def same(got, want):
    """Equal bits; every NaN equals every other."""
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind == "f":
        got = got.view(want.dtype)
        nan = np.isnan(want)
        assert np.array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(got[~nan].view(f"u{got.itemsize}"), want[~nan].view(f"u{got.itemsize}"))
    else:
        np.testing.assert_array_equal(got, want.astype(np.int64) & 0xFFFFFFFF)


INTEGERS = {
    "v_add_u32_e32 v5, v1, v2": A + B,
    "v_sub_u32_e32 v5, v1, v2": A - B,
    "v_subrev_u32_e32 v5, v1, v2": B - A,
    "v_sub_u32_e64 v5, v1, v2 clamp": np.where(A > B, A - B, 0),
    "v_mul_lo_u32 v5, v1, v2": (W[0] * W[1]).astype(np.uint32),
    "v_mul_hi_u32 v5, v1, v2": (W[0] * W[1] >> U64(32)).astype(np.uint32),
    "v_mul_hi_i32 v5, v1, v2": S[0] * S[1] >> 32,
    "v_mul_u32_u24_e32 v5, v1, v2": (A & 0xFFFFFF).astype(U64) * (B & 0xFFFFFF) & U64(0xFFFFFFFF),
    "v_mul_i32_i24_e32 v5, v1, v2": (S[0] << 40 >> 40) * (S[1] << 40 >> 40),
    "v_mad_u32_u24 v5, v1, v2, v3": (A & 0xFFFFFF).astype(U64) * (B & 0xFFFFFF) + C & U64(0xFFFFFFFF),
    "v_and_or_b32 v5, v1, v2, v3": A & B | C,
    "v_or3_b32 v5, v1, v2, v3": A | B | C,
    "v_xad_u32 v5, v1, v2, v3": (A ^ B) + C,
    "v_add3_u32 v5, v1, v2, v3": A + B + C,
    "v_lshl_add_u32 v5, v1, 3, v3": (A << 3) + C,
    "v_add_lshl_u32 v5, v1, v2, 5": A + B << 5,
    "v_lshl_or_b32 v5, v1, 4, v3": A << 4 | C,
    "v_lshlrev_b32_e32 v5, v1, v2": B << (A & 31),
    "v_lshrrev_b32_e32 v5, v1, v2": B >> (A & 31),
    "v_ashrrev_i32_e32 v5, v1, v2": S[1] >> (S[0] & 31),
    "v_bfe_u32 v5, v1, 7, 9": A >> 7 & 511,
    "v_bfe_i32 v5, v1, 7, 9": (S[0] << 48 >> 55),
    "v_bfi_b32 v5, v1, v2, v3": A & B | ~A & C,
    "v_not_b32_e32 v5, v1": ~A,
    "v_bfrev_b32_e32 v5, v1": np.array([int(f"{a:032b}"[::-1], 2) for a in A.tolist()]),
    "v_ffbh_u32_e32 v5, v1": np.array([32 - a.bit_length() if a else -1 for a in A.tolist()]),
    "v_ffbl_b32_e32 v5, v1": np.array([(a & -a).bit_length() - 1 for a in A.tolist()]),
    "v_bcnt_u32_b32 v5, v1, v2": np.array([a.bit_count() for a in A.tolist()]) + B.astype(I64),
    "v_min_i32_e32 v5, v1, v2": np.minimum(S[0], S[1]),
    "v_max_u32_e32 v5, v1, v2": np.maximum(A, B),
    "v_med3_i32 v5, v1, v2, v3": np.median(np.stack(S), axis=0).astype(I64),
    "v_alignbit_b32 v5, v1, v2, 12": (W[0] << U64(32) | W[1]) >> U64(12) & U64(0xFFFFFFFF),
    "v_perm_b32 v5, v1, v2, 0x05040100": (A & 0xFFFF) << 16 | B & 0xFFFF,
    "v_sad_u32 v5, v1, v2, v3": abs(A.astype(I64) - B) + C,
    "v_add_u16_e32 v5, v1, v2": (A + B) & 0xFFFF,
    "v_and_b32_sdwa v5, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD": A >> 16 & B,
    "v_or_b32_sdwa v5, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_3": (
        (A & 255 | B >> 24) << 16
    ),
    "v_cvt_f32_i32_sdwa v5, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2": (S[0] << 40 >> 56).astype(
        np.float32
    ),
    "v_cvt_f32_ubyte2_e32 v5, v1": (A >> 16 & 255).astype(np.float32),
    "v_cvt_f32_u32_e32 v5, v1": A.astype(np.float32),
    "v_cvt_f32_i32_e32 v5, v1": S[0].astype(I32).astype(np.float32),
    "v_pk_add_u16 v5, v1, v2": (A + B & 0xFFFF) | ((A >> 16) + (B >> 16) & 0xFFFF) << 16,
    "v_dot4_i32_i8 v5, v1, v2, v3": (A.view(np.int8).reshape(64, 4).astype(I64) * B.view(np.int8).reshape(64, 4)).sum(1)
    + S[2],
}


@pytest.mark.parametrize("code", INTEGERS, ids=lambda c: c.split()[0])
def test_integers(code):
    w = h.lanes(code, {1: A, 2: B, 3: C})
    want = INTEGERS[code]
    same(w.V[5], want)


T = [torch.from_numpy(v.copy()) for v in F]
with np.errstate(all="ignore"):
    FLOATS = {
        "v_add_f32_e32 v5, v1, v2": (T[0] + T[1]).numpy(),
        "v_sub_f32_e64 v5, |v1|, -v2": (T[0].abs() + T[1]).numpy(),
        "v_mul_f32_e64 v5, v1, v2 mul:2": (T[0] * T[1] * 2).numpy(),
        "v_mul_f32_e64 v5, v1, v2 clamp": (T[0] * T[1]).clamp(0, 1).nan_to_num(nan=0).numpy(),
        "v_trunc_f32_e32 v5, v1": T[0].trunc().numpy(),
        "v_rndne_f32_e32 v5, v1": T[0].round().numpy(),
        "v_floor_f32_e32 v5, v1": T[0].floor().numpy(),
        "v_cvt_f16_f32_e32 v5, v1": None,
        "v_cvt_i32_f32_e32 v5, v1": np.array(
            [
                0
                if math.isnan(x)
                else max(-(2**31), min(2**31 - 1, math.trunc(x)))
                if math.isfinite(x)
                else (2**31 - 1 if x > 0 else -(2**31))
                for x in X.tolist()
            ]
        ),
        "v_cvt_u32_f32_e32 v5, v1": np.array(
            [0 if math.isnan(x) or x < 0 else 2**32 - 1 if x > 2**32 else math.trunc(x) for x in X.tolist()]
        ),
        "v_ldexp_f32 v5, v1, 3": (T[0] * 8).numpy(),
        "v_cndmask_b32_e64 v5, v1, v2, s[4:5]": np.where(np.arange(64) % 2, Y, X),
        "v_mov_b32_e32 v5, 0.15915494": np.full(64, 1 / (2 * np.pi), np.float32),
    }


@pytest.mark.parametrize("code", FLOATS, ids=lambda c: c.split()[0])
def test_floats(code):
    w = h.lanes(code, {1: X, 2: Y, 3: Z}, {4: 0xAAAAAAAA, 5: 0xAAAAAAAA})
    want = FLOATS[code]
    if want is None:
        same(w.H[5][:, 0].copy(), torch.from_numpy(X.copy()).half().numpy())
        assert not w.H[5][:, 1].any()
    else:
        same(w.V[5], want)


@pytest.mark.parametrize(
    ("op", "f"),
    [("exp", torch.exp2), ("log", torch.log2), ("rcp", torch.reciprocal), ("rsq", torch.rsqrt), ("sqrt", torch.sqrt)],
)
def test_transcendental_functions_flush_denormal_values(op, f):
    w = h.lanes(f"v_{op}_f32_e32 v5, v1", {1: X})
    x = torch.from_numpy(np.where(np.abs(X) < 2**-126, np.copysign(np.float32(0), X), X))
    want = f(x.double()).float()
    want = torch.where(want.abs() < 2**-126, torch.copysign(torch.zeros_like(want), want), want)
    torch.testing.assert_close(torch.from_numpy(w.F[5].copy()), want, rtol=2**-22, atol=0, equal_nan=True)


def test_minimum_and_maximum_prefer_numbers_and_order_zeros():
    x, y = np.float32([np.nan, 0.0, -0.0, np.nan, 3]), np.float32([2, -0.0, 0.0, np.nan, np.inf])
    x, y = np.resize(x, 64), np.resize(y, 64)
    w = h.lanes("v_min_f32_e32 v5, v1, v2\n v_max_f32_e32 v6, v1, v2", {1: x, 2: y})
    assert w.F[5][:3].tolist() == [2, 0, 0] and np.signbit(w.F[5][1:3]).all() and np.isnan(w.F[5][3])
    assert w.F[6][:3].tolist() == [2, 0, 0] and not np.signbit(w.F[6][1:3]).any() and w.F[6][4] == np.inf


def exact(a, b, c, dtype):
    """One rounding, from exact fractions."""
    from fractions import Fraction

    return dtype(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))) if dtype is np.float64 else None


finite32 = st.floats(-(2.0**60), 2.0**60, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(finite32, finite32, finite32), min_size=1, max_size=64))
def test_fma_rounds_once(rows):
    a, b, c = (np.float32(v) for v in zip(*rows, strict=True))
    got = fma32(a, b, c)
    wide = np.longdouble
    want = a.astype(wide) * b.astype(wide)
    # Exact products have 48 bits, so an 80-bit sum that is exact decides; where it is not, fractions do.
    for i, (x, y, z) in enumerate(rows):
        from fractions import Fraction

        exact_value = Fraction(x) * Fraction(y) + Fraction(z)
        near = np.float32(got[i])
        for other in (np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
            assert abs(Fraction(float(near)) - exact_value) <= abs(Fraction(float(other)) - exact_value)
    assert want.shape == got.shape


def test_fma_where_two_roundings_go_wrong():
    # The sum lies just above the middle of two floats: rounded to double first, the rest is lost.
    a, b, c = np.float32(1 + 2**-23), np.float32(2**-24), np.float32(1)
    assert float(fma32(a, b, c)[0]) == 1 + 2**-23
    assert float(fma32(np.float32(2**-60), np.float32(2**-60), np.float32(1))[0]) == 1
    x = np.float16(1 + 2**-10)
    assert fma16(x, np.float16(2**-11), np.float16(1))[0] == np.float16(1 + 2**-10)
    assert fma64(np.float64(1 + 2**-52), np.float64(2**-53), np.float64(1)).item() == 1 + 2**-52


def test_division_steps_give_the_quotient():
    """The sequence that LLVM emits for an IEEE division, over special values and extreme exponents."""
    n = np.float32(RNG.standard_normal(64) * 2.0 ** RNG.integers(-120, 120, 64))
    d = np.float32(RNG.standard_normal(64) * 2.0 ** RNG.integers(-120, 120, 64))
    n[:12] = [0, 1, np.inf, np.nan, 1e-40, 3e38, -0.0, 5, -np.inf, 1e-45, 7, 1]
    d[:12] = [3, 0, 2, 1, 3e38, 1e-40, 7, np.inf, np.inf, 3, np.nan, 3]
    code = """
      v_div_scale_f32 v4, s[0:1], v2, v2, v1
      v_rcp_f32_e32 v5, v4
      v_div_scale_f32 v6, vcc, v1, v2, v1
      v_fma_f32 v7, -v4, v5, 1.0
      v_fma_f32 v5, v7, v5, v5
      v_mul_f32_e32 v7, v6, v5
      v_fma_f32 v8, -v4, v7, v6
      v_fma_f32 v7, v8, v5, v7
      v_fma_f32 v4, -v4, v7, v6
      v_div_fmas_f32 v4, v4, v5, v7
      v_div_fixup_f32 v3, v4, v2, v1"""
    with np.errstate(all="ignore"):
        same(h.lanes(code, {1: n, 2: d}).F[3], n / d)
        n, d = F[1][16:].repeat(2)[:64], F[2][16:].repeat(2)[:64]  # no special value among them
        same(h.lanes(code, {1: n, 2: d}).F[3], n / d)


def test_packed_and_mixed():
    p, q, r = HALVES
    v = {1: p.view(np.uint32), 2: q.view(np.uint32), 3: r.view(np.uint32)}
    w = h.lanes(
        "v_pk_add_f16 v5, v1, v2 neg_lo:[0,1] neg_hi:[0,1]\n"
        "v_pk_mul_f16 v6, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]"
        "\n v_pk_add_f16 v7, v1, 1.0 op_sel_hi:[1,0]\n v_pk_fma_f16 v8, v1, v2, v3",
        v,
    )

    def half(n):
        return w.H[n].view(np.float16)

    same(half(5).copy(), p - q)
    same(half(6).copy(), np.stack([p[:, 1] * q[:, 0], p[:, 0] * q[:, 1]], 1))
    same(half(7).copy(), p + np.float16(1))
    want = (p.astype(np.float64) * q + r).astype(np.float16)
    same(half(8).copy(), want)
    mixed = (
        "v_fma_mix_f32 v5, v1, v2, -v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]\n v_fma_mixlo_f16 v6, v4, v4, v4\n"
        "v_fma_mixhi_f16 v6, v4, v1, neg(0) op_sel_hi:[0,1,0]"
    )
    w = h.lanes(mixed, {**v, 4: X})
    with np.errstate(all="ignore"):
        wide = X.astype(np.float64)
        same(w.F[5], (p[:, 1].astype(np.float64) * q[:, 0] - wide).astype(np.float32))
        same(w.H[6][:, 0].copy(), (wide * wide + wide).astype(np.float32).astype(np.float16))
        same(w.H[6][:, 1].copy(), (wide * p[:, 0] - 0.0).astype(np.float32).astype(np.float16))


def test_packed_float32():
    v = {2: np.stack([X, Y], 1), 4: np.stack([Z, X], 1), 6: np.stack([Y, Z], 1)}
    w = h.lanes(
        "v_pk_mul_f32 v[8:9], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]\n"
        "v_pk_add_f32 v[10:11], v[2:3], v[4:5] neg_lo:[0,1] neg_hi:[0,1]\n"
        "v_pk_mul_f32 v[12:13], s[8:9], v[2:3] op_sel:[1,0]\n"
        "v_pk_mov_b32 v[14:15], v[2:3], v[4:5] op_sel:[1,0]",
        v,
        {8: 0x40000000, 9: 0x40400000},
    )
    with np.errstate(all="ignore"):
        for n, want in ((8, X * X), (9, Y * Z), (10, X - Z), (11, Y - X), (12, X * 3), (13, Y * 3), (14, Y), (15, Z)):
            same(w.F[n], want.astype(np.float32))


@pytest.mark.parametrize(
    ("control", "source"),
    [
        ("quad_perm:[3,2,1,0]", lambda i: i ^ 3),
        ("row_mirror", lambda i: i ^ 15),
        ("row_half_mirror", lambda i: i ^ 7),
        ("row_ror:8", lambda i: i & 48 | (i - 8) % 16),
        ("row_shr:3", lambda i: i - 3 if i % 16 >= 3 else None),
        ("row_shl:2", lambda i: i + 2 if i % 16 < 14 else None),
        ("row_newbcast:5", lambda i: i & 48 | 5),
        ("row_bcast:15", lambda i: (i & 48) - 1 if i >= 16 else None),
        ("row_bcast:31", lambda i: 31 if i >= 32 else None),
        ("wave_shr:1", lambda i: i - 1 if i else None),
        ("wave_rol:1", lambda i: (i + 1) % 64),
    ],
)
def test_dpp(control, source):
    where = [source(i) for i in range(64)]
    masked = f"v_mov_b32_dpp v5, v1 {control} row_mask:0xf bank_mask:0xf"
    w = h.lanes(f"{masked} bound_ctrl:1\n v_mov_b32_e32 v6, v2\n {masked.replace('v5', 'v6')}", {1: A, 2: B})
    same(w.V[5], np.array([0 if k is None else A[k] for k in where]))
    same(w.V[6], np.array([B[i] if k is None else A[k] for i, k in enumerate(where)]))


def test_dpp_masks_and_lanes_that_are_off():
    mask = np.arange(64) % 5 != 0
    w = h.lanes("v_add_u32_dpp v2, v1, v2 row_shr:1 row_mask:0xa bank_mask:0x3", {1: A, 2: B}, mask=mask)
    for i in range(64):
        on = mask[i] and i // 16 in (1, 3) and i % 16 < 8 and i % 16 and mask[i - 1]
        assert w.V[2][i] == (int(A[i - 1]) + int(B[i]) & M if on else B[i])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_any_mask(exec_):
    mask = np.array([exec_ >> i & 1 for i in range(64)], bool)
    code = """v_add_u32_e32 v5, v1, v2
      v_cmp_gt_u32_e32 vcc, v1, v2
      v_addc_co_u32_e32 v6, vcc, v1, v2, vcc
      v_readfirstlane_b32 s6, v1
      v_mov_b32_e32 v7, s6
      v_mad_u64_u32 v[8:9], s[8:9], v1, v2, v[2:3]"""
    w = h.lanes(code, {1: A, 2: B, 3: C, 5: C, 6: C, 7: C, 8: C, 9: C}, mask=mask)
    carry = A > B
    total = W[0] + W[1] + carry
    same(w.V[5], np.where(mask, A + B, C))
    same(w.V[6], np.where(mask, total & U64(0xFFFFFFFF), C))
    assert w.vcc == sum(1 << i for i in range(64) if mask[i] and total[i] >> U64(32))
    first = (exec_ & -exec_).bit_length() - 1 if exec_ else 0
    assert w.s[6] == A[first]
    product = [a * b + (b | c << 32) for a, b, c in zip(A.tolist(), B.tolist(), C.tolist(), strict=True)]
    same(w.V[8], np.where(mask, np.array([p & 0xFFFFFFFF for p in product]), C))
    same(w.V[9], np.where(mask, np.array([p >> 32 & 0xFFFFFFFF for p in product]), C))
    assert w.s[8] | w.s[9] << 32 == sum(1 << i for i, p in enumerate(product) if p >> 64 and mask[i])


@pytest.mark.parametrize(
    "kind", ["lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"]
)
def test_comparisons_with_nan(kind):
    w = h.lanes(f"v_cmp_{kind}_f32_e64 s[4:5], v1, v2", {1: X, 2: Y})
    base = kind.removeprefix("n") if kind.startswith("n") else kind
    tests = {
        "lt": X < Y,
        "eq": X == Y,
        "le": X <= Y,
        "gt": X > Y,
        "lg": (X < Y) | (X > Y),
        "ge": X >= Y,
        "o": ~(np.isnan(X) | np.isnan(Y)),
        "u": np.isnan(X) | np.isnan(Y),
    }
    want = ~tests[base] if kind.startswith("n") else tests[base]
    want = ~tests["eq"] if kind == "neq" else want
    assert w.s[4] | w.s[5] << 32 == sum(1 << i for i in range(64) if want[i])


def test_lanes_talk_to_each_other():
    code = """ds_bpermute_b32 v5, v3, v1
      ds_permute_b32 v6, v3, v1
      ds_swizzle_b32 v7, v1 offset:swizzle(SWAP,16)
      v_readlane_b32 s4, v1, 17
      v_writelane_b32 v8, s4, 3
      v_mbcnt_lo_u32_b32 v9, -1, 0
      v_mbcnt_hi_u32_b32 v9, -1, v9
      s_waitcnt lgkmcnt(0)"""
    order = RNG.permutation(64).astype(np.uint32)
    w = h.lanes(code, {1: A, 3: order * 4, 8: B})
    same(w.V[5], A[order])
    assert all(w.V[6][order[i]] == A[i] for i in range(64))
    same(w.V[7], A[np.arange(64) ^ 16])
    assert w.V[8][3] == A[17] and w.V[8][4] == B[4]
    same(w.V[9], np.arange(64))


SCALARS = [
    ("s_add_u32 s4, s2, s3", lambda a, b: ((a + b) & M, a + b > M)),
    ("s_sub_i32 s4, s2, s3", lambda a, b: ((a - b) & M, not -(2**31) <= sg(a) - sg(b) < 2**31)),
    ("s_mul_i32 s4, s2, s3", lambda a, b: (a * b & M, None)),
    ("s_mul_hi_u32 s4, s2, s3", lambda a, b: (a * b >> 32, None)),
    ("s_ashr_i32 s4, s2, s3", lambda a, b: (sg(a) >> (b & 31) & M, sg(a) >> (b & 31) != 0)),
    ("s_bfe_u32 s4, s2, 0x80004", lambda a, b: (a >> 4 & 255, (a >> 4 & 255) != 0)),
    ("s_bfe_i32 s4, s2, 0x80004", lambda a, b: (sg(a << 20 & M) >> 24 & M, (a >> 4 & 255) != 0)),
    ("s_max_i32 s4, s2, s3", lambda a, b: (max(sg(a), sg(b)) & M, sg(a) > sg(b))),
    ("s_andn2_b32 s4, s2, s3", lambda a, b: (a & ~b, a & ~b != 0)),
    ("s_brev_b32 s4, s2", lambda a, b: (int(f"{a:032b}"[::-1], 2), None)),
    ("s_bcnt1_i32_b32 s4, s2", lambda a, b: (a.bit_count(), a != 0)),
    ("s_abs_i32 s4, s2", lambda a, b: (abs(sg(a)) & M, a != 0)),
    ("s_lshl2_add_u32 s4, s2, s3", lambda a, b: ((4 * a + b) & M, 4 * a + b > M)),
    ("s_flbit_i32_b32 s4, s2", lambda a, b: (32 - a.bit_length() if a else M, None)),
    ("s_cselect_b32 s4, s2, s3", lambda a, b: (b, None)),
    ("s_pack_lh_b32_b16 s4, s2, s3", lambda a, b: (a & 0xFFFF | b >> 16 << 16, None)),
]
M = (1 << 32) - 1
EDGES = [0, 1, 2, 31, 0x7FFFFFFF, 0x80000000, M, 0x12345678, 0xFFFF0000]


def sg(x):
    return x - (1 << 32) if x >> 31 else x


@pytest.mark.parametrize(("code", "f"), SCALARS, ids=[c.split()[0] for c, _ in SCALARS])
def test_scalars(code, f):
    for a in EDGES:
        for b in EDGES[::2]:
            w = h.lanes(code, s={2: a, 3: b})
            want, scc = f(a, b)
            assert w.s[4] == want & M, (hex(a), hex(b))
            assert scc is None or w.scc == int(scc), (hex(a), hex(b))


def test_exec_is_saved_and_restored():
    code = """s_and_saveexec_b64 s[6:7], s[4:5]
      v_mov_b32_e32 v5, 1
      s_xor_b64 s[8:9], exec, s[6:7]
      s_or_b64 exec, exec, s[8:9]
      s_bitcmp1_b32 s4, 2"""
    w = h.lanes(code, {5: A}, {4: 0b100, 5: 0})
    assert w.exec == (1 << 64) - 1 and w.s[8] == M - 4 and w.V[5][2] == 1 and w.V[5][3] == A[3] and w.scc == 1


@pytest.mark.parametrize(
    "code",
    [
        "v_frobnicate_b32 v1, v2",
        "v_add_f32_e32 v1, v2",
        "v_add_u32_e32 v1, -v2, v3",
        "v_add_f32_e32 v300, v1, v2",
        "s_mov_b32 v1, s2",
        "v_mov_b32_e32 v1, v2 sideways:1",
        "global_load_dword v[1:2], v3, off",
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]",
        "s_mov_b64 s[4:5], s6",
        "v_mov_b32_dpp v1, v2 row_shr:17",
        "xv_add v1",
    ],
)
def test_what_gfx942_does_not_have_is_refused_by_name(code):
    with pytest.raises(RunError, match=code.split()[0] + "|" + code.split()[-1]) as e:
        h.lanes(code)
    assert "\n" not in str(e.value) and e.value.line == 5
