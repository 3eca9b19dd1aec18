"""Attention's own kernels for NVIDIA's Hopper: what they compile to (no GPU is needed for that) and when they serve.

Triton's interpreter has no Gluon, so results are compared where there is such a GPU:
``pytest tests/kernels/attention/test_attention_hopper.py`` there.
"""

import gc
import itertools
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from rocm_guide.kernels.attention import backward, forward_launch
from rocm_guide.kernels.attention.backward import attention_backward
from rocm_guide.kernels.attention.forward import attention_forward
from rocm_guide.kernels.attention.hopper import launch as hopper_launch
from rocm_guide.kernels.attention.problem import attention_problem
from tests.kernels.pretend_hopper import SHARED_MEMORY, assembled, empty

HALVES = (torch.float16, torch.bfloat16)


def machine_code(kernel, folder):
    """The instructions of a compiled kernel, in order, by name."""
    from triton.backends.nvidia.compiler import get_ptxas

    assembled(kernel, folder)
    tool = Path(get_ptxas(90).path).with_name("nvdisasm")
    text = subprocess.run([tool, "-c", folder / "k.cubin"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text, re.M)


def check_kernel(kernel, folder):
    spilled, serial = assembled(kernel, folder)
    # A few scalars outside the loops may be: they cost nothing that can be measured.
    assert spilled <= 48 and not serial
    assert kernel.metadata.shared <= SHARED_MEMORY
    for word in ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg"):
        assert word in kernel.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "options", "dtype"),
    [
        ((4, 32, 4096, 128), {}, torch.bfloat16),
        ((4, 32, 4096, 128), {"causal": True}, torch.float16),
        ((2, 40, 3001, 64), {"causal": True}, torch.bfloat16),
        ((4, 4096, 32, 96), {"layout": "bshd"}, torch.float16),
    ],
)
def test_forward_computes_exponentials_while_the_matrix_units_work(compiled, tmp_path, shape, options, dtype):
    q = empty(*shape, dtype=dtype)
    attention_forward(q, q, q, **options)
    ((name, kernel),) = compiled
    assert name == "attention_hopper_kernel"
    check_kernel(kernel, tmp_path)
    names = machine_code(kernel, tmp_path)
    waits = [i for i, n in enumerate(names) if n == "WARPGROUP.DEPBAR.LE"]
    # Between the wait for the scores and the wait for the product with V: 64 x 128 of them for 128 threads.
    pieces = [names[a:b] for a, b in itertools.pairwise(waits)]
    working = [p for p in pieces if p.count("MUFU.EX2") >= 64 and not any(n.startswith("HGMMA") for n in p)]
    assert len(working) == 2, "one loop for each of the two warpgroups"


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(4, 32, 4096, 128), (2, 40, 3001, 64)])
def test_backward_of_the_queries(compiled, tmp_path, shape, causal):
    q, lse = empty(*shape, dtype=torch.bfloat16), empty(*shape[:3], dtype=torch.float32)
    attention_backward(q, q, q, q, q, lse, causal=causal)
    name, kernel = compiled[-1]
    assert name == "backward_q_hopper_kernel" and len(compiled) == 3
    check_kernel(kernel, tmp_path)


def problem(shape=(1, 4, 512, 128), keys=None, dtype=torch.bfloat16, **options):
    q = empty(*shape, dtype=dtype)
    k = empty(shape[0], shape[1], keys or shape[2], shape[3], dtype=dtype)
    return attention_problem(q, k, k, **options)


@pytest.mark.parametrize("change", [{}, {"causal": True}, {"causal": True, "keys": 1024}, {"shape": (1, 4, 500, 64)}])
def test_it_serves(change):
    assert hopper_launch.fits_hopper(problem(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": torch.float32},
        {"shape": (1, 4, 512, 256)},
        {"shape": (1, 4, 512, 32)},
        {"shape": (1, 4, 100, 128)},
        {"shape": (1, 4, 512, 100)},  # rows of 200 bytes, which the TMA cannot fetch
        {"causal": True, "keys": 1000},  # the diagonal would not go through corners of tiles
        {"causal": True, "keys": 384},
        {"dropout": 0.1, "seed": 1},
        {"bias": torch.empty(1, 1, 512, 512, device="meta")},
        {"alibi_slopes": torch.empty(4, device="meta")},
    ],
)
def test_it_leaves_to_the_general_kernel(change):
    assert not hopper_launch.fits_hopper(problem(**change))


def test_it_leaves_rows_that_it_could_fetch_and_not_store_to_the_general_kernel():
    q = empty(1, 4, 512, 104)[..., :100]
    assert not hopper_launch.fits_hopper(attention_problem(q, q, q))


def test_it_leaves_what_is_repeated_by_a_stride_of_zero_to_the_general_kernel():
    q, repeated = empty(2, 4, 512, 128), empty(1, 4, 512, 128).expand(2, -1, -1, -1)
    assert hopper_launch.fits_hopper(attention_problem(q, q, q), q)
    assert not hopper_launch.fits_hopper(attention_problem(q, q, q), repeated)
    assert not hopper_launch.fits_hopper(attention_problem(q, repeated, q))


def test_it_leaves_small_problems_to_the_general_kernel(compiled):
    q, lse = empty(1, 2, 128, 128), empty(1, 2, 128, dtype=torch.float32)
    assert hopper_launch.fits_hopper(attention_problem(q, q, q))
    attention_forward(q, q, q)
    attention_backward(q, q, q, q, q, lse)
    names = [name for name, _ in compiled]
    assert names[0] == "attention_forward_kernel" and names[-1] == "attention_backward_q_kernel"


@pytest.mark.slow
def test_where_triton_has_no_gluon_the_general_kernel_serves(compiled, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocm_guide.kernels.attention.hopper.launch", None)
    monkeypatch.delattr("rocm_guide.kernels.attention.hopper.launch")
    q, lse = empty(2, 8, 1024, 128), empty(2, 8, 1024, dtype=torch.float32)
    attention_forward(q, q, q)
    attention_backward(q, q, q, q, q, lse)
    names = [name for name, _ in compiled]
    assert names[0] == "attention_forward_kernel" and names[-1] == "attention_backward_q_kernel"


def test_its_plans_hold_no_tensor(compiled):
    """A plan stays for later calls: what it holds would never be given back."""
    given = [empty(2, 8, 1024, 128, dtype=torch.bfloat16) for _ in range(4)]
    one = attention_problem(*given[:3], causal=True)
    plans = [hopper_launch.plan_hopper_forward(one), hopper_launch.plan_hopper_q(one, given[3], 1024)]
    alive = [weakref.ref(x) for x in (*given, one)]
    del given, one
    gc.collect()
    assert all(plans) and {ref() for ref in alive} == {None}


needs_hopper = pytest.mark.skipif(
    not (torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)),
    reason="needs an NVIDIA GPU of the Hopper generation: no interpreter has Gluon",
)


@needs_hopper
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("shape", "kv_heads", "keys", "causal"),
    [
        ((2, 8, 1000, 128), 4, 1000, True),
        ((2, 8, 3001, 128), 8, 3001, False),
        ((1, 4, 129, 64), 4, 1025, True),
        ((1, 4, 200, 96), 2, 700, False),
        ((2, 6, 2048, 128), 6, 2048, True),
    ],
)
def test_on_a_gpu_it_agrees_with_the_general_kernel(dtype, shape, kv_heads, keys, causal, monkeypatch):
    torch.manual_seed(0)
    q, do = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(shape[0], kv_heads, keys, shape[3], device="cuda", dtype=dtype) for _ in range(2))
    monkeypatch.setattr(hopper_launch, "is_small_work", lambda operations: False)
    out, lse = attention_forward(q, k, v, causal=causal)
    again = attention_forward(q, k, v, causal=causal)
    assert torch.equal(out, again[0]) and torch.equal(lse, again[1])
    gradients = attention_backward(do, q, k, v, out, lse, causal=causal)[:3]
    monkeypatch.setattr(forward_launch, "plan_for_hopper", lambda problem: None)
    monkeypatch.setattr(backward, "hopper_queries", lambda problem, do: None)
    from rocm_guide.kernels.launch import forget_plans

    forget_plans()
    out2, lse2 = attention_forward(q, k, v, causal=causal)
    gradients2 = attention_backward(do, q, k, v, out, lse, causal=causal)[:3]
    bound = 4e-3 if dtype == torch.bfloat16 else 6e-4
    for name, a, b in zip(
        ("out", "lse", "dq", "dk", "dv"), (out, lse, *gradients), (out2, lse2, *gradients2), strict=True
    ):
        off = ((a.double() - b.double()).norm() / b.double().norm()).item()
        assert off < bound, f"{name} is off by {off:.1e}"
