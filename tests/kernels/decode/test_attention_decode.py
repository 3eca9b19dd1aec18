# SPDX-License-Identifier: MIT
"""Flash decoding against float64, on the GPU or in the interpreter."""

from __future__ import annotations

import re

import pytest
import torch

from rocm_guide.kernels import cases
from rocm_guide.kernels.decode import attention_decode, reference_attention_decode

HALF = torch.float16
#: batch, keys, query heads, KV heads, head size, parts
SHAPES = [
    (1, 1, 1, 1, 16, None),
    (1, 1, 4, 2, 64, 3),
    (2, 17, 4, 4, 32, None),
    (1, 33, 8, 2, 72, 2),
    (1, 65, 6, 2, 80, None),
    (2, 63, 5, 1, 96, 4),
    (1, 40, 7, 7, 112, 2),
    (1, 129, 8, 1, 128, 5),
    (1, 31, 2, 1, 256, 2),
    (1, 50, 20, 1, 40, 2),  # more than 16 heads share the keys: a taller tile
    (1, 20, 80, 1, 16, 2),  # more than 64: two tiles
    (1, 9, 3, 1, 1, 2),
]


def cache(batch, keys, heads, width, dtype, device, seed=0, size=1.0):
    gen = torch.Generator().manual_seed(seed)
    k, v = (torch.randn(batch, keys, heads, width, generator=gen) * size for _ in range(2))
    return k.to(device, dtype), v.to(device, dtype)


def query(batch, heads, width, dtype, device, size=1.0):
    return (torch.randn(batch, heads, width, generator=torch.Generator().manual_seed(9)) * size).to(device, dtype)


def bound(q, k, v, lengths, scale):
    """How far a correct kernel may be off: p is rounded to 16 bits (to 2^-24 when small), the output once more."""
    q, k, v = (x.double().cpu() for x in (q, k, v))
    lengths = None if lengths is None else lengths.cpu()
    expected = reference_attention_decode(q, k, v, lengths, scale)
    size = reference_attention_decode(q, k, v.abs(), lengths, scale)
    scores = torch.einsum("bhd,bnhd->bhn", q.abs(), k.abs().repeat_interleave(q.shape[1] // k.shape[2], 2)) * scale
    return expected, size, scores.amax(-1, keepdim=True)


def check(actual, q, k, v, lengths=None, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    expected, size, score = bound(q, k, v, lengths, scale)
    unit = torch.finfo(q.dtype).eps / 2
    small = k.shape[1] * 2.0**-25 * v.double().abs().max().cpu() if q.dtype == HALF else 0.0
    allowed = unit * expected.abs() + size * (unit + 2.0**-20 * (1 + score)) + small + 2.0**-25
    error = (actual.double().cpu() - expected).abs()
    assert actual.shape == expected.shape and actual.dtype == q.dtype
    assert bool((error <= allowed).all()), f"{float((error / allowed).max()):.3g} times the allowed error"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device, shape):
    batch, keys, q_heads, heads, width, parts = shape
    q, (k, v) = query(batch, q_heads, width, HALF, device), cache(batch, keys, heads, width, HALF, device)
    check(attention_decode(q, k, v, parts=parts), q, k, v)


@pytest.mark.parametrize("parts", [1, 2, 7, 100])
def test_uneven_lengths(device, parts):
    """Full, partly filled, one key, none: every sequence has its own parts, some of them without any key."""
    lengths = torch.tensor([70, 33, 1, 0], dtype=torch.int32, device=device)
    q, (k, v) = query(4, 4, 32, HALF, device), cache(4, 70, 2, 32, HALF, device)
    k[1, 33:], v[1, 33:], k[3], v[3] = float("nan"), float("nan"), float("nan"), float("nan")  # must not be touched
    out = attention_decode(q, k, v, lengths=lengths, parts=parts)
    assert bool((out[3] == 0).all())
    check(out, q, k.nan_to_num(), v.nan_to_num(), lengths)


def test_lengths_beyond_the_cache(device):
    """A length that is too large counts as full, one below 0 as none: memory outside the cache is never read."""
    q, (k, v) = query(2, 4, 32, HALF, device), cache(2, 40, 2, 32, HALF, device)
    out = attention_decode(q, k, v, lengths=torch.tensor([1_000_000, -5], device=device), parts=2)
    assert bool((out[1] == 0).all())
    check(out[:1], q[:1], k[:1], v[:1])


@pytest.mark.parametrize("scale", [0.0, 1.0, 0.03])
def test_scale(device, scale):
    q, (k, v) = query(1, 2, 64, HALF, device), cache(1, 50, 1, 64, HALF, device)
    check(attention_decode(q, k, v, scale=scale), q, k, v, scale=scale)


def test_layouts(device):
    """(batch, head, key, feature), a view of a longer cache, and a query with strides."""
    q = query(2, 4, 64, HALF, device)
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in cache(2, 45, 2, 64, HALF, device))
    check(attention_decode(q, k, v), q, k, v)
    long_k, long_v = cache(2, 90, 2, 80, HALF, device)
    k, v = long_k[:, 20:65, :, :64], long_v[:, 20:65, :, :64]
    check(attention_decode(q, k, v, parts=2), q, k, v)
    wide = query(2, 8, 64, HALF, device)[:, ::2]
    check(attention_decode(wide, k, v), wide, k, v)


def test_large_scores(device):
    """Scores far beyond exp's range: the running maximum must carry them."""
    q, (k, v) = query(1, 2, 32, HALF, device, 30.0), cache(1, 60, 1, 32, HALF, device, size=30.0)
    check(attention_decode(q, k, v, parts=3), q, k, v)


def test_ties_and_zeros(device):
    q, (k, v) = query(1, 2, 32, HALF, device), cache(1, 37, 1, 32, HALF, device)
    k[:] = k[:, :1].clone()  # every key the same: the plain mean of v
    check(attention_decode(q, k, v, parts=2), q, k, v)
    check(attention_decode(q * 0, k * 0, v, parts=2), q * 0, k * 0, v)


def test_no_sequences(device):
    q, (k, v) = query(0, 2, 32, HALF, device), cache(0, 5, 1, 32, HALF, device)
    assert attention_decode(q, k, v).shape == (0, 2, 32)
    q, (k, v) = query(2, 2, 32, HALF, device), cache(2, 0, 1, 32, HALF, device)
    assert bool((attention_decode(q, k, v) == 0).all())


def test_every_part_counts_the_same(device):
    """The number of parts changes the rounding and nothing else."""
    q, (k, v) = query(1, 4, 64, HALF, device), cache(1, 150, 2, 64, HALF, device)
    for parts in (1, 2, 3, 10, 128, 300):
        check(attention_decode(q, k, v, parts=parts), q, k, v)


def test_long_on_a_gpu(device):
    if device != "cuda":
        pytest.skip("sizes for a GPU")
    for dtype in (HALF, torch.bfloat16):
        for batch, keys, q_heads, heads, width in [
            (1, 32768, 32, 8, 128),
            (3, 10007, 32, 8, 64),
            (2, 5000, 71, 1, 80),
            (2, 777, 8, 8, 72),
            (2, 777, 12, 4, 96),
            (1, 8191, 14, 2, 112),
            (1, 3001, 16, 4, 256),
            (1, 1, 16, 4, 16),
        ]:
            q, (k, v) = query(batch, q_heads, width, dtype, device), cache(batch, keys, heads, width, dtype, device)
            lengths = torch.randint(1, keys + 1, (batch,), device=device)
            check(attention_decode(q, k, v, lengths=lengths), q, k, v, lengths)
            check(attention_decode(q, k, v), q, k, v)


def test_beyond_32_bit_offsets_on_a_gpu(device):
    if device != "cuda":
        pytest.skip("needs 6 GB")
    k = torch.zeros(3, 700_000, 8, 128, dtype=HALF, device=device)  # more than 2^31 elements
    k[2, -5:] = torch.randn(5, 8, 128, device=device, dtype=HALF)
    q, lengths = 4 * k[2:, -5].repeat(3, 1, 1), torch.tensor([1, 1, 700_000], device=device)  # the last keys win
    out = attention_decode(q, k, k, lengths=lengths)
    last = k[2:, :, 7:].double()
    expected = reference_attention_decode(q[2:, 7:].double(), last, last)
    assert expected.abs().max() > 0.1 and (out[2:, 7:].double() - expected).abs().max() < 2e-3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"q": torch.zeros(1, 4, 32)}, "q is float32: give float16 or bfloat16"),
        ({"q": torch.zeros(1, 3, 32, dtype=HALF)}, "3 query heads for 2 KV heads"),
        ({"q": torch.zeros(2, 4, 32, dtype=HALF)}, "k has shape (1, 5, 2, 32): give (2, any, any, 32)"),
        ({"k": torch.zeros(1, 5, 2, 32, dtype=torch.bfloat16)}, "k is bfloat16: give float16"),
        ({"v": torch.zeros(1, 6, 2, 32, dtype=HALF)}, "v has shape (1, 6, 2, 32): give (1, 5, 2, 32)"),
        ({"k": torch.zeros(1, 5, 2, 64, dtype=HALF)[..., ::2]}, "call .contiguous()"),
        ({"v": torch.zeros(1, 2, 5, 32, dtype=HALF).transpose(1, 2)}, "lay both out alike"),
        ({"lengths": torch.zeros(1)}, "lengths is float32"),
        ({"lengths": torch.zeros(2, dtype=torch.int32)}, "lengths has shape (2,): give (1,)"),
        ({"scale": float("inf")}, "scale=inf"),
        ({"parts": 0}, "parts=0"),
        ({"parts": 2.5}, "parts=2.5"),
        ({"parts": 1000}, "parts=1000"),
    ],
)
def test_what_is_refused(change, text):
    k = torch.zeros(1, 5, 2, 32, dtype=HALF)
    arguments = {"q": torch.zeros(1, 4, 32, dtype=HALF), "k": k, "v": k.clone()} | change
    with pytest.raises(ValueError, match=re.escape(text)):
        attention_decode(**arguments)


def test_one_key_with_any_strides(device):
    """Where a dimension has one entry its stride says nothing: k and v may differ in it."""
    q, (k, v) = query(2, 4, 32, HALF, device), cache(2, 1, 2, 32, HALF, device)
    odd = v.as_strided(v.shape, (64, 999, 32, 1))
    check(attention_decode(q, k, odd), q, k, v)


def test_too_many_sequences():
    q, k = torch.zeros(65_536, 1, 1, dtype=HALF), torch.zeros(65_536, 1, 1, 1, dtype=HALF)
    with pytest.raises(ValueError, match="65535 sequences at most"):
        attention_decode(q, k, k)


class Recorder:
    """Stands for a kernel and keeps the options that are no arguments of its own."""

    def __init__(self, kernel, seen):
        self.kernel, self.seen = kernel, seen

    def __getitem__(self, grid):
        names = {p.name for p in self.kernel.params}
        return lambda *arguments, **options: self.seen.update(n for n in options if n not in names)


@pytest.mark.parametrize(
    "name", ["attention", "attention_fp8", "decode", "decode_int4", "paged", "mla_decode", "mla_prefill"]
)
def test_a_gpu_without_an_entry(monkeypatch, name):
    """An A100 takes gfx942's tiles, but none of the options that only AMD's compiler knows."""
    import dataclasses
    import importlib

    from triton.backends.nvidia.compiler import CUDAOptions

    module, seen, real = importlib.import_module(f"rocm_guide.kernels.{name}"), set(), torch.empty
    monkeypatch.setattr(module, "architecture", lambda x: "sm_80")
    for attribute, value in vars(module).items():
        if type(value).__name__ in ("JITFunction", "InterpretedFunction"):
            monkeypatch.setattr(module, attribute, Recorder(value, seen))
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: real(*shape, **options | {"device": "meta"}))
    launches = [thunk for _, thunk in getattr(cases, f"{name}_cases")()]
    for thunk in (launches[0], launches[-1]):
        if name != "attention_fp8" or thunk is launches[0]:  # the last one has MI300X's kind of fp8
            thunk()
    assert "num_warps" in seen and seen <= {f.name for f in dataclasses.fields(CUDAOptions)}


def test_gfx942():
    """Every configuration: launches, nothing spilled, MFMA 16x16, 128-bit loads in the loop, 2 waves per SIMD."""
    import triton

    from cdna.dry_run.driver import dry_run

    if not triton.__version__.startswith("3.9"):
        pytest.skip("register counts are stated for Triton 3.9")
    with dry_run("gfx942", device="meta") as run:
        for _, call in cases.decode_cases():
            call()
    parts = [launch.report for launch in run.launches if launch.report.kernel == "_decode_part"]
    assert len(parts) == 9 == len(run.launches) - len(parts)
    for r in (launch.report for launch in run.launches):
        assert r.launches and r.resources.vgpr_spills == 0 and r.resources.scratch == 0
        assert r.occupancy.waves_per_simd >= 2
    for r in parts:
        assert all("16x16x16" in op for op in r.isa.mfma) and r.isa.mfma
        assert set(r.isa.global_loads_in_loops) == {128}
