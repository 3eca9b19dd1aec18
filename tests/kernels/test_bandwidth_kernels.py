# SPDX-License-Identifier: MIT
"""The four streams: right sums and copies, odd sizes, every type, clear errors, 128-bit accesses for MI300X."""

from __future__ import annotations

import pytest
import torch

from rocm_guide.kernels.bandwidth import reference_stream, stream
from tests.in_turn import in_shares
from tests.kernels.table import rows_of

TYPES = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (1, 2, 7, 8, 100, 1024, 4095, 4096, 4097, 9000, 12_288, 16_384, 40_000, 65_537, 100_000, 131_072, 250_001)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("n", in_shares(SIZES, 3))
@pytest.mark.parametrize("kind", ["read", "write", "copy", "triad"])
def test_streams_against_float64(kind, n, dtype, device, close):
    g = torch.Generator().manual_seed(n)
    x, y = (torch.randn(n, generator=g).to(dtype).to(device) for _ in range(2))
    room = torch.full((n + 128,), float("nan"), dtype=dtype, device=device)
    out = None if kind == "read" else room[64:-64]
    inputs = {"read": (x,), "write": (), "copy": (x,), "triad": (x, y)}[kind]
    got = stream(kind, out, *inputs, factor=-1.5, value=0.75)
    wide = [t.cpu().double() for t in (x, y)]
    expected = reference_stream(kind, *wide[: max(len(inputs), 1)], factor=-1.5, value=0.75)
    if kind == "read":
        close(got.double().sum(), expected, length=n, magnitude=float(wide[0].norm()), dtype=torch.float32)
    else:
        close(got, expected, magnitude=0 if kind in ("copy", "write") else wide[0].abs() + wide[1].abs() * 1.5)
        assert got.data_ptr() == out.data_ptr()
    assert bool(room[:64].isnan().all()) and bool(room[-64:].isnan().all()), "written beside the output"


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_copy_keeps_every_bit(dtype, device):
    x = torch.tensor([0.0, -0.0, 1e-40, float("inf"), float("-inf"), 65504.0], device=device).to(dtype)
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(stream("copy", None, x).view(bits), x.view(bits))
    assert bool(stream("copy", None, x * float("nan")).isnan().all())


def test_bad_arguments_are_named(device):
    x = torch.ones(8, device=device)
    for call, words in (
        (lambda: stream("add", x), "kind='add'"),
        (lambda: stream("copy", x), "copy with 0 inputs"),
        (lambda: stream("write", None), "write with 0 inputs"),
        (lambda: stream("triad", None, x, x[:4]), "y has shape"),
        (lambda: stream("copy", None, torch.ones(8, 8, device=device).t()), "contiguous"),
        (lambda: stream("copy", None, x.int()), "x is int32"),
        (lambda: stream("copy", torch.ones(8, device="meta"), x), "meta"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_for_mi300x_every_access_in_the_loop_is_128_bits_wide():
    rows = rows_of("bandwidth")
    assert len(rows) == 8
    for r in rows:
        assert r.waves == 8 and r.spills == 0 and r.findings == "-", r
        widths = {w.split("x")[0] for w in f"{r.loop_loads},{r.loop_stores}".split(",")} - {"-"}
        assert widths == {"128"}, r
