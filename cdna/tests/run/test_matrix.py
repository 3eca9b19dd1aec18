# SPDX-License-Identifier: MIT
"""Every matrix instruction of gfx942 against float64, with the lanes filled by AMD's published layouts; conversions."""

import math
import runpy
from fractions import Fraction

import numpy as np
import pytest
import torch

from cdna.run.arithmetic import FLOAT8, bf16_to_f32, f32_to_f8, stochastic_f8, to_xf32
from cdna.run.matrix import SHAPES
from cdna.run.rounding import round_to
from tests.run import harness as h

TORCH8 = {"fp8": torch.float8_e4m3fnuz, "bf8": torch.float8_e5m2fnuz}
CASES = [(sparse, kind, *shape) for (sparse, kind), shapes in SHAPES.items() for shape in shapes]
RNG = np.random.default_rng(3)


def encode(x, kind):
    """float64 values that the type holds exactly -> its bits."""
    t = torch.from_numpy(x)
    if kind == "f64":
        return x.view(np.uint64)
    if kind in ("f32", "xf32"):
        return x.astype(np.float32).view(np.uint32)
    if kind == "i8":
        return x.astype(np.int8).view(np.uint8)
    if kind == "f16":
        return x.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return t.bfloat16().view(torch.int16).numpy().view(np.uint16)
    return t.float().to(TORCH8[kind]).view(torch.uint8).numpy()


def lanes_of_operand(m, each, kind):
    """``m[block, row, k]`` -> registers ``[64, each]``: a lane holds ``each`` neighbours of one row."""
    blocks, rows, k = m.shape
    raw = encode(m, kind)
    out = np.zeros((64, each), raw.dtype)
    for b in range(blocks):
        for r in range(rows):
            for kk in range(k):
                lane = r + rows * (b + blocks * (kk // each))
                out[lane, kk % each] = raw[b, r, kk]
    return out


def place_of_result(shape, kind, v, lane):
    """AMD's calculator: block, row and column of result value ``v`` of a lane."""
    m = shape[0]
    if kind == "f64":
        return (lane // 4 % 4, lane // 16, lane % 4) if m == 4 else (0, 4 * v + lane // 16, lane % 16)
    if m == 32:
        return v // 16, 8 * (v % 16 // 4) + 4 * (lane // 32) + v % 4, lane % 32
    if m == 16:
        return v // 4, 4 * (lane // 16) + v % 4, lane % 16
    return lane // 4, v, lane % 4


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_every_shape(case):
    sparse, kind, m, n, k, blocks = case
    kinds = kind.split("_") if "_" in kind else [kind, kind]
    a, b = RNG.integers(-4, 5, (blocks, m, k)).astype(float), RNG.integers(-4, 5, (blocks, n, k)).astype(float)
    out_type = {"f64": "f64", "i8": "i32"}.get(kind, "f32")
    values = m * n * blocks // 64
    c = RNG.integers(-9, 10, (64, values)).astype({"f64": np.float64, "f32": np.float32, "i32": np.int32}[out_type])
    each_b = n * k * blocks // 64
    registers = {1: lanes_of_operand(b, each_b, kinds[1])}
    index = np.zeros(64, np.uint32)
    if sparse:
        each = each_b // 2
        dense, stored = np.zeros((m, k)), np.zeros((64, each))
        for lane in range(64):
            for e in range(0, each, 2):
                low, high = sorted(RNG.choice(4, 2, replace=False))
                base = lane // m * each_b + e // 2 * 4
                index[lane] |= np.uint32((low | high << 2) << 2 * e)
                stored[lane, e : e + 2] = a[0, lane % m, base + low], a[0, lane % m, base + high]
                dense[lane % m, base + low], dense[lane % m, base + high] = stored[lane, e : e + 2]
        a = dense[None]
        registers[0] = encode(stored, kinds[0])
    else:
        registers[0] = lanes_of_operand(a, m * k * blocks // 64, kinds[0])
    want = np.einsum("bik,bjk->bij", a, b)
    words = [max(1, r.shape[1] * r.itemsize // 4) for r in (registers[0], registers[1])]
    wide = values * (2 if kind == "f64" else 1)

    def span(first, count):
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    op = "smfmac" if sparse else "mfma"
    many = f"_{blocks}b" if blocks > 1 else ""
    last = "v120" if sparse else f"a[0:{wide - 1}]" if wide > 1 else "a0"
    name = f"v_{op}_{out_type}_{m}x{n}x{k}{many}_{kind}"
    code = f"{name} a[0:{wide - 1}], {span(100, words[0])}, {span(110, words[1])}, {last}"
    code = code.replace("a[0:0]", "a0")
    v = {}
    for first, r in ((100, registers[0]), (110, registers[1]), (256, c)):
        raw = np.ascontiguousarray(r).view(np.uint32) if r.shape[1] * r.itemsize >= 4 else r.astype(np.uint32)
        v[first] = raw
    v[120] = index
    w = h.lanes(code, v, mask=np.arange(64) < 3)  # EXEC does not matter to matrix instructions
    got = np.stack([w.V[256 + j] for j in range(wide)], 1).view(
        {"f64": np.float64, "i32": np.int32}.get(out_type, np.float32)
    )
    for lane in range(64):
        for j in range(values):
            where = place_of_result((m, n, blocks), kind, j, lane)
            assert got[lane, j] == want[where] + c[lane, j], (lane, j)


def test_broadcast_of_blocks_and_lane_patterns():
    a, b = RNG.integers(-4, 5, (16, 4, 1)).astype(float), RNG.integers(-4, 5, (16, 4, 1)).astype(float)
    v = {1: lanes_of_operand(a, 1, "f32"), 2: lanes_of_operand(b, 1, "f32")}
    w = h.lanes("v_mfma_f32_4x4x1_16b_f32 v[4:7], v1, v2, 0 cbsz:2 abid:3", v)
    for lane in range(64):
        block = lane // 4
        for i in range(4):
            assert w.F[4 + i][lane] == a[block // 4 * 4 + 3, i, 0] * b[block, lane % 4, 0]
    w = h.lanes("v_mfma_f32_4x4x1_16b_f32 v[4:7], v1, v2, 0 blgp:2", v)
    assert w.F[4][0] == a[0, 0, 0] * b[8, 0, 0] and w.F[5][33] == a[8, 1, 0] * b[8, 1, 0]


def test_f64_has_signs():
    a, b = RNG.standard_normal((1, 16, 4)), RNG.standard_normal((1, 16, 4))
    v = {2: lanes_of_operand(a, 1, "f64").view(np.uint32), 4: lanes_of_operand(b, 1, "f64").view(np.uint32)}
    w = h.lanes("v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], 1.0 neg:[1,0,0]", v)
    got = np.stack([w.V[8], w.V[9]], 1).copy().view(np.float64)[:, 0]
    want = 1 - a[0] @ b[0].T
    np.testing.assert_allclose(got, [want[lane // 16, lane % 16] for lane in range(64)], rtol=1e-14)


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_float8_is_torchs_fnuz(kind):
    codes = torch.arange(256, dtype=torch.uint8).view(TORCH8[kind]).float().numpy()
    np.testing.assert_array_equal(np.isnan(codes), np.isnan(FLOAT8[kind]))
    np.testing.assert_array_equal(codes[codes == codes], FLOAT8[kind][codes == codes])
    largest = np.nanmax(FLOAT8[kind])
    x = (RNG.standard_normal(20_000) * 2.0 ** RNG.integers(-20, 8, 20_000)).astype(np.float32)
    middles = (FLOAT8[kind][1:128] + FLOAT8[kind][:127]) / 2
    x = np.concatenate([x, middles, -middles, np.nextafter(middles, np.float32(0)), np.float32([0, -0.0, np.nan])])
    x = x[~(np.abs(x) > largest)]
    want = torch.from_numpy(x).to(TORCH8[kind]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(f32_to_f8(x, kind), want)
    beyond = np.float32([largest * 1.2, np.inf, -np.inf])
    assert f32_to_f8(beyond, kind).tolist() == [128] * 3 and f32_to_f8(beyond, kind, True).tolist() == [127, 127, 255]


def test_conversion_instructions():
    x = (RNG.standard_normal((2, 64)) * 20).astype(np.float32)
    code = """v_cvt_pk_fp8_f32 v5, v1, v2
      v_cvt_pk_fp8_f32 v5, v2, v1 op_sel:[0,0,1]
      v_cvt_f32_fp8_sdwa v6, v5 src0_sel:BYTE_1
      v_cvt_pk_f32_fp8_e32 v[8:9], v5
      v_cvt_pkrtz_f16_f32 v7, v1, v2
      v_cvt_sr_bf8_f32 v5, v1, v3 op_sel:[0,0,0,1]"""
    codes = [torch.from_numpy(v.copy()).to(torch.float8_e4m3fnuz) for v in x]
    noise = RNG.integers(0, 1 << 32, 64, dtype=np.uint32)
    w = h.lanes(code, {1: x[0], 2: x[1], 3: noise})
    a, b = (c.view(torch.uint8).numpy().astype(np.uint32) for c in codes)
    sr = stochastic_f8(x[0], noise, "bf8")
    np.testing.assert_array_equal(w.V[5], a | b << 8 & 0xFF00 | (b | a << 8) << 16 & 0xFF000000 | sr << 16)
    np.testing.assert_array_equal(w.F[6], codes[1].float().numpy())
    np.testing.assert_array_equal(w.F[8], codes[0].float().numpy())
    halves = w.H[7].view(np.float16)
    for j in (0, 1):
        assert (np.abs(halves[:, j].astype(np.float64)) <= np.abs(x[j])).all()
        np.testing.assert_array_equal(halves[:, j], round_to(x[j], np.float16, 3))


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_stochastic_rounding_is_right_on_average(kind):
    x = np.full(1 << 16, 1.3, np.float32)
    noise = RNG.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    got = FLOAT8[kind][stochastic_f8(x, noise, kind)]
    assert len(set(got.tolist())) == 2 and abs(got.mean() - 1.3) < 2e-3
    exact = FLOAT8[kind][1:128]
    np.testing.assert_array_equal(FLOAT8[kind][stochastic_f8(exact, noise[:127], kind)], exact)


def test_xf32_cuts_off_behind_ten_bits():
    x = RNG.standard_normal(1000).astype(np.float32)
    y = to_xf32(x)
    assert (y.view(np.uint32) & 0x1FFF == 0).all()
    assert (np.abs(y) <= np.abs(x)).all() and (np.abs(x - y) < np.abs(x) * 2**-10).all()
    nearly = np.full(64, 1 + 2**-10 - 2**-23, np.float32)  # the nearest with ten bits would be 1 + 2**-10
    w = h.lanes("v_mfma_f32_32x32x4_xf32 v[16:31], v[2:3], v[4:5], 0", dict.fromkeys((2, 3, 4, 5), nearly))
    assert (w.F[16] == 4).all()


def exponent(x, smallest):
    return -(10**6) if x == 0 else max(math.frexp(x)[1] - 1, smallest)


def down(x, unit, rounding=math.floor):
    """A fraction at a multiple of ``2 ** unit``, or 0 where that is beyond reach."""
    return Fraction(rounding(x / Fraction(2) ** unit)) * Fraction(2) ** unit if x else Fraction(0)


def by_the_paper(a, b, c, smallest, group):
    """One element of D after MMA-Sim's description, in fractions."""
    for start in range(0, len(a), group):
        pairs = list(zip(a[start : start + group], b[start : start + group], strict=True))
        sums = []
        for part in [pairs[::2], pairs[1::2]] if group == 16 else [pairs]:
            places = [exponent(x, smallest) + exponent(y, smallest) for x, y in part]
            sums.append(
                (sum(down(Fraction(x) * Fraction(y), max(places) - 24, math.trunc) for x, y in part), max(places))
            )
        largest = max(place for _, place in sums)
        total = sum(down(s, largest - 24) for s, _ in sums)
        own = exponent(c, -126)
        top = max(largest, own)
        added = down(Fraction(c), top - 24) if group != 16 or own >= top - 25 else 0
        c = float(np.float32(float(down(total, top - 31) + added)))
    return c


@pytest.mark.parametrize(
    ("name", "kind", "k", "smallest", "group"),
    [
        ("v_mfma_f32_16x16x16_f16", "f16", 16, -14, 8),
        ("v_mfma_f32_16x16x16_bf16", "bf16", 16, -126, 8),
        ("v_mfma_f32_16x16x8_xf32", "xf32", 8, -126, 4),
        ("v_mfma_f32_16x16x32_fp8_fp8", "fp8", 32, -7, 16),
        ("v_mfma_f32_16x16x32_bf8_bf8", "bf8", 32, -15, 16),
    ],
)
def test_hardware_sums_are_those_of_the_paper(name, kind, k, smallest, group):
    # Exponents far apart, so that bits fall off everywhere; zeros and subnormal numbers among them.
    x = (
        RNG.standard_normal((2, 1, 16, k))
        * 2.0 ** RNG.integers(-9, 4, (2, 1, 16, k))
        * (RNG.random((2, 1, 16, k)) < 0.9)
    )
    bits = [encode(part, kind) for part in x]
    widen = {"f16": lambda v: v.view(np.float16), "bf16": bf16_to_f32, "xf32": lambda v: to_xf32(v.view(np.float32))}
    a, b = (widen.get(kind, lambda v: FLOAT8[kind][v])(part).astype(np.float64)[0] for part in bits)
    each = 16 * k // 64
    c = (RNG.standard_normal((64, 4)) * 2.0 ** RNG.integers(-30, 4, (64, 4))).astype(np.float32)
    v = {2: lanes_of_operand(x[0], each, kind), 4: lanes_of_operand(x[1], each, kind), 8: c}
    v = {n: np.ascontiguousarray(r).view(np.uint32) for n, r in v.items()}
    last = each * bits[0].itemsize // 4 - 1
    code = f"{name} v[8:11], v[2:{2 + last}], v[4:{4 + last}], v[8:11]"
    got = np.stack([h.lanes(code, v, hardware_sums=True).F[8 + j] for j in range(4)], 1)
    once = np.stack([h.lanes(code, v).F[8 + j] for j in range(4)], 1)
    want = np.empty_like(got)
    for lane in range(64):
        for j in range(4):
            row, column = 4 * (lane // 16) + j, lane % 16
            want[lane, j] = by_the_paper(a[row].tolist(), b[column].tolist(), float(c[lane, j]), smallest, group)
    np.testing.assert_array_equal(got, want)
    assert (once != want).mean() > 0.05  # else nothing was asked


def test_float32_is_a_chain_of_multiply_adds():
    first = np.float32([1.0] * 16 + [2**-24] * 48)
    w = h.lanes("v_mfma_f32_16x16x4_f32 v[8:11], v2, v3, 0", {2: first, 3: np.ones(64, np.float32)}, hardware_sums=True)
    assert (w.F[8] == 1).all()  # three halves of the last place are lost one by one; their sum would count
    w = h.lanes(
        "v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], 0",
        {2: np.float64([1.0] * 16 + [2**-53] * 48), 4: np.ones(64)},
        hardware_sums=True,
    )
    assert (np.stack([w.V[8], w.V[9]], 1).copy().view(np.float64) == 1).all()


def test_hardware_sums_keep_infinity_and_nan():
    ones = np.full(64, 0x3F803F80, np.uint32)  # bf16
    for bits, want in ((0x7F80, np.inf), (0xFF80, -np.inf), (0x7FC0, np.nan)):
        bad = ones.copy()
        bad[0] = 0x3F80 << 16 | bits  # row 0
        w = h.lanes(
            "v_mfma_f32_16x16x16_bf16 v[8:11], v[2:3], v[4:5], 0",
            {2: bad, 3: ones, 4: ones, 5: ones},
            hardware_sums=True,
        )
        np.testing.assert_array_equal(w.F[8][:16], np.full(16, want, np.float32))
        assert (w.F[9] == 16).all()


def test_the_table_of_agreement_is_printed(capsys):
    with pytest.warns(RuntimeWarning, match="found in sys.modules"):
        runpy.run_module("cdna.run.matrix_sums", run_name="__main__")
    rows = {
        r[0]: r[1:] for line in capsys.readouterr().out.splitlines() if len(r := line.split()) == 5 and r[1].isdigit()
    }
    assert list(rows) == ["f64", "f32", "xf32", "bf16", "f16", "fp8", "bf8"]
    for kind, (k, equal, ulps, share) in rows.items():
        # Both are sums of k + 1 terms: they differ, and by no more than a few bits of the largest terms.
        assert 0.5 < float(equal[:-1]) / 100 < 1 and float(ulps.replace(",", "")) >= 1
        assert 0 < float(share) < int(k) * 2.0 ** (-52 if kind == "f64" else -24)
