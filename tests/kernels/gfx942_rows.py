# SPDX-License-Identifier: MIT
"""Cases of test_on_gfx942.py: row kernels, fused FP8, bandwidth."""

from __future__ import annotations

import itertools

import torch

from rocm_guide.kernels import layer_norm, rms_norm, softmax
from rocm_guide.kernels.bandwidth import reference_stream, stream
from rocm_guide.kernels.fp8 import FP8, decode_fp8, encode_fp8
from rocm_guide.kernels.fp8_ladder import run_rung
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward, reference_layer_norm
from rocm_guide.kernels.rms_norm import reference_rms_norm, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rmsnorm_fp8 import reference_rmsnorm_fp8, rmsnorm_fp8
from rocm_guide.kernels.softmax import reference_softmax, softmax_backward, softmax_forward
from rocm_guide.kernels.swiglu_fp8 import reference_swiglu_fp8, swiglu_fp8
from tests.kernels.gfx942_near import Case, near, normal

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
FNUZ = FP8["e4m3fnuz"]
BLOCKED = {"blocked": True, "columns": 256, "rows": 1, "warps": 4}
CASES: dict[str, Case] = {}


def softmax_case(rows, cols, dtype, tile=None):
    def run():
        x, dy = normal(rows, cols, dtype=dtype, size=3), normal(rows, cols, dtype=dtype, seed=1)
        y = softmax_forward(x, tile=tile)
        dx = softmax_backward(y, dy, tile=tile)

        def check():
            near(y, reference_softmax(x.double()))
            y64, d = y.double(), dy.double()
            inner, size = (y64 * d).sum(-1, keepdim=True), (y64 * d).abs().sum(-1, keepdim=True)
            near(dx, y64 * (d - inner), y64 * (d.abs() + size))

        return check

    return run


def rms_case(rows, cols, dtype, tile=None):
    def run():
        x, dy, w = (normal(*s, dtype=dtype, seed=i) for i, s in enumerate([(rows, cols), (rows, cols), (cols,)]))
        y, rstd = rms_norm_forward(x, w, tile=tile)
        dx, dw = rms_norm_backward(x, w, dy, rstd, tile=tile)

        def check():
            leaves = [t.double().requires_grad_() for t in (x, w)]
            want = reference_rms_norm(*leaves, 1e-6)
            near(y, want.detach())
            gx, gw = torch.autograd.grad(want, leaves, dy.double())
            near(dx, gx, 8 * gx.abs().amax())
            near(dw, gw, (dy.double() * y.double()).abs().amax() * rows)

        return check

    return run


def layer_case(rows, cols, dtype, tile=None):
    def run():
        x, dy = (normal(rows, cols, dtype=dtype, seed=i) for i in range(2))
        w, b = (normal(cols, dtype=dtype, seed=i + 2) for i in range(2))
        y, mean, rstd = layer_norm_forward(x, w, b, tile=tile)
        grads = layer_norm_backward(x, w, dy, mean, rstd, tile=tile)

        def check():
            want = reference_layer_norm(x.double(), w.double(), b.double(), 1e-5)
            near(y, want, want.abs().amax())
            x64, w64, b64 = (t.double().requires_grad_() for t in (x, w, b))
            out = reference_layer_norm(x64, w64, b64, 1e-5)
            for got, expected in zip(grads, torch.autograd.grad(out, (x64, w64, b64), dy.double()), strict=True):
                near(got, expected, 16 * expected.abs().amax())

        return check

    return run


for _dtype, _rows, _cols in [(F16, 3, 1000), (BF16, 2, 4096), (F32, 5, 130), (F32, 1, 5)]:
    _label = f"{str(_dtype).removeprefix('torch.')} {_rows}x{_cols}"
    CASES[f"softmax {_label}"] = Case(("softmax_rows", "softmax_backward_rows"), softmax_case(_rows, _cols, _dtype))
    CASES[f"rms norm {_label}"] = Case(
        ("rms_norm_rows", "rms_norm_backward_rows", "column_sums"), rms_case(_rows, _cols, _dtype)
    )
    CASES[f"layer norm {_label}"] = Case(
        ("layer_norm_rows", "layer_norm_backward_rows", "column_sums"), layer_case(_rows, _cols, _dtype)
    )
CASES["softmax blocked"] = Case(
    ("softmax_blocked", "softmax_backward_blocked"), softmax_case(2, 777, BF16, softmax.Tile(**BLOCKED))
)
CASES["rms norm blocked"] = Case(
    ("rms_norm_blocked", "rms_norm_backward_blocked"), rms_case(5, 777, BF16, rms_norm.Tile(**BLOCKED))
)
CASES["layer norm blocked"] = Case(
    ("layer_norm_blocked", "layer_norm_backward_blocked"), layer_case(5, 777, F16, layer_norm.Tile(**BLOCKED))
)


def close_fp8(q, y):
    """Codes of ``y`` (float64 over the scale), or for one in a hundred the neighbour: y is near a middle."""
    got, codes = q.view(torch.uint8).int(), encode_fp8(y, FNUZ).int()
    assert bool(((got - codes).abs() <= 1).all()) and int((got != codes).sum()) <= 1 + got.numel() // 100
    assert not bool(decode_fp8(q.view(torch.uint8), FNUZ).isnan().any())


def rmsnorm_fp8_case(columns, dtype, scale):
    def run():
        x, r, w = (normal(*s, dtype=dtype, seed=i) for i, s in enumerate([(2, columns), (2, columns), (columns,)]))
        q, updated, scales = rmsnorm_fp8(x, r, w, scale)

        def check():
            y, added = reference_rmsnorm_fp8(x, r, w)
            assert torch.equal(updated, added.to(dtype))
            close_fp8(q, y / (scale or scales.double()))
            if scales is not None:
                near(scales, y.abs().amax(-1, keepdim=True) / 240, part=2.0**-10)

        return check

    return run


def swiglu_case(columns, dtype, scale):
    def run():
        x = normal(2, 2 * columns, dtype=dtype, size=3)
        q, scales = swiglu_fp8(x, scale)

        def check():
            y = reference_swiglu_fp8(x)
            close_fp8(q, y / (scale or scales.double()))
            if scales is not None:
                near(scales, y.abs().amax(-1, keepdim=True) / 240, part=2.0**-10)

        return check

    return run


for _dtype, _scale in itertools.product((F16, BF16), (0.05, None)):
    _label = f"{str(_dtype).removeprefix('torch.')} {'static' if _scale else 'per-row'}"
    CASES[f"rms norm to fp8, {_label}"] = Case(("rmsnorm_fp8_kernel",), rmsnorm_fp8_case(1032, _dtype, _scale))
    CASES[f"swiglu to fp8, {_label}"] = Case(
        ("swiglu_fp8_kernel" if _scale else "swiglu_fp8_rows_kernel",), swiglu_case(520, _dtype, _scale)
    )


def rung_case(rung):
    def run():
        x, r, w = (normal(*s, dtype=F16, seed=i) for i, s in enumerate([(1, 4096), (1, 4096), (4096,)]))
        q, updated = run_rung(rung, x, r, w, 0.05)

        def check():
            y, added = reference_rmsnorm_fp8(x, r, w)
            assert torch.equal(updated, added.to(F16))
            close_fp8(q, y / 0.05)

        return check

    return run


for _rung in range(1, 5):
    _kernel = "rung_two_reads_kernel" if _rung < 4 else "rung_registers_kernel"
    CASES[f"fp8 ladder, rung {_rung}"] = Case((_kernel,), rung_case(_rung))


def stream_case(kind, dtype):
    def run():
        n = 40_000
        x, y = normal(n, dtype=dtype), normal(n, dtype=dtype, seed=1)
        z = torch.full((n,), float("nan"), dtype=dtype)
        inputs = {"read": (x,), "write": (), "copy": (x,), "triad": (x, y)}[kind]
        got = stream(kind, None if kind == "read" else z, *inputs)

        def check():
            want = reference_stream(kind, *(inputs or (x,)))
            if kind == "read":
                near(got.double().sum().float(), want, x.double().abs().sum())
            else:
                near(z, want, x.double().abs() + 2 * y.double().abs())

        return check

    return run


for _kind in ("read", "write", "copy", "triad"):
    CASES[f"bandwidth, {_kind}"] = Case((f"stream_{_kind}",), stream_case(_kind, F32 if _kind == "copy" else BF16))
