# SPDX-License-Identifier: MIT
"""Cases of test_on_gfx942.py: matrix products of all types."""

from __future__ import annotations

from functools import partial

import torch

from rocm_guide.kernels import experts as moe
from rocm_guide.kernels import int8_gemm as operators
from rocm_guide.kernels.gemm import CONFIGS, gemm, reference_gemm
from rocm_guide.kernels.gemm_skinny import gemm_skinny, reference_skinny
from rocm_guide.kernels.gemm_split_k import gemm_split_k
from rocm_guide.kernels.gemm_stream_k import gemm_stream_k
from rocm_guide.kernels.int8_gemm import reference_operator, reference_scaled
from tests.kernels.gfx942_near import Case, near, normal
from tests.kernels.int8.cases import check_rounded, codes

E4M3, E5M2 = torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int8, E4M3, E5M2)
CASES: dict[str, Case] = {}


def operands(m, n, k, dtype, weight):
    a, b = (
        torch.randint(-128, 128, s, dtype=torch.int8, generator=torch.Generator().manual_seed(i))
        if dtype == torch.int8
        else normal(*s, seed=i).to(dtype)
        for i, s in enumerate([(m, k), (n, k) if weight else (k, n)])
    )
    return a, b.T if weight else b


def case(product, m, n, k, dtype, weight=True, bias=False, activation="none", **options):
    def run():
        a, b = operands(m, n, k, dtype, weight)
        given = dict(options)
        if bias:
            given |= {"bias": normal(n, dtype=torch.bfloat16), "activation": activation}
        got = product(a, b, **given)

        def check():
            a64, b64 = a.double(), b.double()
            want = reference_gemm(a64, b64, given["bias"].double(), activation=activation) if bias else a64 @ b64
            if got.dtype == torch.int32:
                assert torch.equal(got.double(), want)
            else:
                near(got, want, a64.abs() @ b64.abs() + 4 * bias)

        return check

    return run


# Types of one size share their tiles: every type meets every tile and both layouts, and every tile both layouts. The
# layouts alternate from tile to tile and from type to type; fp32, which shares with none, has all of its pairs.
SAME_SIZE = {t: [x for x in TYPES if x.itemsize == t.itemsize].index(t) for t in TYPES}
for _dtype in TYPES:
    _name = str(_dtype).removeprefix("torch.")
    for _i, _tile in enumerate(CONFIGS["gfx942"][8 * _dtype.itemsize]):
        _one = bool((_i + SAME_SIZE[_dtype]) % 2)
        for _weight in (_one,) if _dtype.itemsize < 4 else (False, True):
            CASES[f"gemm {_name} {'A B^T' if _weight else 'A B'} {_tile.bm}x{_tile.bn}x{_tile.bk}"] = Case(
                ("gemm_kernel",), case(gemm, 48, 80, _tile.bk * 3, _dtype, _weight, tile=_tile)
            )
    CASES[f"gemm {_name}, odd sizes"] = Case(("gemm_kernel",), case(gemm, 33, 37, 100, _dtype))
    CASES[f"gemm {_name}, multiples of 8"] = Case(("gemm_kernel",), case(gemm, 40, 72, 136, _dtype, False))
    # Adding parts knows the type of the sum alone, int32 or fp32: those have both ways, the other types take turns.
    for _atomic in (False, True) if _dtype in (torch.int8, torch.float32) else (bool(SAME_SIZE[_dtype] % 2),):
        CASES[f"split-K {_name}{', atomic' if _atomic else ''}"] = Case(
            ("gemm_split_k_kernel", *(() if _atomic else ("add_parts_kernel",))),
            case(gemm_split_k, 17, 40, 512, _dtype, split=2, atomic=_atomic),
        )
    if _dtype != torch.int8:
        CASES[f"stream-K {_name}"] = Case(("gemm_stream_k_kernel",), case(gemm_stream_k, 48, 80, 640, _dtype))
CASES["stream-K float16, odd sizes"] = Case(
    ("gemm_stream_k_kernel",), case(gemm_stream_k, 130, 70, 300, torch.float16, False)
)
for _product, _kernels in (
    (gemm_split_k, ("gemm_split_k_kernel", "add_parts_kernel")),
    (gemm_stream_k, ("gemm_stream_k_kernel",)),
):
    CASES[f"{_product.__name__}, multiples of 8"] = Case(_kernels, case(_product, 40, 72, 392, torch.float16))
CASES["gemm, bias and gelu"] = Case(
    ("gemm_kernel",), case(gemm, 33, 48, 64, torch.bfloat16, bias=True, activation="gelu")
)


def skinny_case(m, n, k, dtype):
    def run():
        a, b = operands(m, n, k, dtype, True)
        got = gemm_skinny(a, b.T.contiguous(), 0.5, 0.25)

        def check():
            # fp8 sums in the matrix unit keep fewer bits than fp32; see the kernel's docstring.
            size = 0.125 * (a.double().abs() @ b.double().abs())
            near(got, reference_skinny(a, b.T.contiguous(), 0.5, 0.25), size)

        return check

    return run


for _dtype in (torch.float16, torch.bfloat16, E4M3, E5M2):
    for _m in (1, 17):
        CASES[f"skinny {str(_dtype).removeprefix('torch.')} {_m} rows"] = Case(
            ("gemm_skinny_kernel",), skinny_case(_m, 70, 528, _dtype)
        )


def operator_case(name, *, batch=0, d=None, odd=False):
    def run():
        m, n, k = (33, 37, 100) if odd else (33, 48, 128)
        a, b = (codes(*(batch,) * bool(batch), *s, seed=i, kind=i) for i, s in enumerate([(m, k), (k, n)]))
        extra = {None: (), "row": (codes(1, n, seed=5)[0],), "matrix": (codes(m, n, seed=6),)}[d]
        extra = tuple(x.float() / 7 for x in extra) if name.endswith("de_f32") else extra
        factors = (0.002,) if batch else (0.002, -0.5)
        got = getattr(operators, name)(a, b, *extra, *factors)

        def check():
            want = reference_operator(a, b, *(extra or (None,)), *factors, relu="relu" in name, int8_out=False)
            if got.dtype == torch.int8:
                check_rounded(got, want)
            else:
                near(got, want, 0.002 * (a.double().abs() @ b.double().abs()) + 20)

        return check

    return run


for _name, _options in (
    ("linear_abde_i8", {"d": "row"}),
    ("linear_abde_i8", {"d": "matrix", "odd": True}),
    ("linear_relu_abde_i8", {"d": "row"}),
    ("linear_ab_i8_de_f32", {"d": "row", "odd": True}),
    ("bmm_abe_i8", {"batch": 3}),
    ("bmm_ab_i8_e_f32", {"batch": 2, "odd": True}),
):
    CASES[f"{_name}{', odd sizes' if 'odd' in _options else ''}"] = Case(
        ("int8_operator_kernel",), operator_case(_name, **_options)
    )


def _scaled(tile=None):
    a, b = codes(33, 128), codes(128, 48, kind=1)
    rows, columns = (0.01 + normal(s).abs() / 50 for s in (33, 48))
    got = operators.linear_scaled(a, b, rows, columns, normal(48, seed=3), out_dtype=torch.bfloat16, tile=tile)

    def check():
        want = reference_scaled(a, b, rows, columns, normal(48, seed=3))
        near(got, want, reference_scaled(a.abs().double(), b.abs().double(), rows, columns) + 4)

    return check


CASES["int8 with scales of rows and columns"] = Case(("int8_operator_kernel",), _scaled)
for _tile in operators.CONFIGS["gfx942"][:3]:
    _name = f"int8 with scales {_tile.bm}x{_tile.bn}x{_tile.bk}"
    CASES[_name] = Case(("int8_operator_kernel",), partial(_scaled, _tile))


def experts_case(tokens, sizes, dtype, tile=None):
    def run():
        hidden, inner, number, per = sizes
        x, weight = normal(tokens, hidden, dtype=dtype), normal(tokens, per, seed=1).abs()
        gate_up = normal(number, 2 * inner, hidden, dtype=dtype, size=hidden**-0.5)
        down = normal(number, hidden, inner, dtype=dtype, size=inner**-0.5)
        index = normal(tokens, number, seed=2).topk(per).indices
        got = moe.experts(x, gate_up, down, index, weight, tile=tile)

        def check():
            want = moe.reference_experts(x, gate_up, down, index, weight)
            # What lies between the two products is rounded to dtype, as are the rows before they are added.
            size = (
                moe.reference_experts(x, gate_up, down, index, weight).abs().mean() * torch.ones_like(want) + want.abs()
            )
            near(got, want, size, part=4 * torch.finfo(dtype).eps)

        return check

    return run


for _i, _tile in enumerate(moe.CONFIGS["gfx942"]):
    _dtype = (torch.float16, torch.bfloat16)[_i % 2]
    CASES[f"experts {str(_dtype).removeprefix('torch.')} {_tile.bm}x{_tile.bn}x{_tile.bk}"] = Case(
        ("gate_up_kernel", "grouped_kernel"), experts_case(21, (128, 64, 5, 2), _dtype, _tile)
    )
CASES["experts bfloat16, odd sizes"] = Case(
    ("gate_up_kernel", "grouped_kernel"), experts_case(7, (100, 37, 6, 3), torch.bfloat16)
)
