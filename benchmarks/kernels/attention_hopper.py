# SPDX-License-Identifier: MIT
"""Attention's own kernels for NVIDIA's Hopper beside the general ones and cuDNN: are they right, and how fast?

    python -m benchmarks.kernels.attention_hopper           # writes results/attention_hopper.json
    python -m benchmarks.kernels.attention_hopper --check   # results only, at odd shapes

Forward and backward passes are timed apart, without autograd, in turns; "both" is the sum. A model's FLOPs are counted:
see benchmarks/kernels/attention.py, which compares the whole of it with more contenders.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from benchmarks.kernels.attention import flops, median_times, sdpa
from benchmarks.timing import save
from rocm_guide.kernels.attention import backward, forward_launch
from rocm_guide.kernels.attention.backward import attention_backward
from rocm_guide.kernels.attention.forward import attention_forward
from rocm_guide.kernels.attention.hopper import launch as hopper_launch
from rocm_guide.kernels.launch import forget_plans

#: (batch, heads, queries, D), KV heads, keys, causal.
ODD = [
    ((2, 8, 1000, 128), 4, 1000, True),
    ((2, 8, 3001, 128), 4, 3001, False),
    ((1, 4, 129, 64), 4, 1025, True),
    ((1, 4, 200, 96), 2, 700, False),
    ((2, 8, 2048, 128), 8, 2048, True),
]
TIMED = [
    ((4, 32, 4096, 128), 32, 4096, False),
    ((4, 32, 4096, 128), 32, 4096, True),
    ((1, 32, 16384, 128), 32, 16384, False),
    ((1, 32, 16384, 128), 32, 16384, True),
    ((2, 40, 3001, 128), 40, 3001, False),
    ((2, 40, 3001, 128), 40, 3001, True),
    ((4, 32, 4096, 64), 32, 4096, False),
    ((4, 32, 4096, 64), 32, 4096, True),
]


@contextmanager
def general_kernels() -> Iterator[None]:
    """Inside, the general kernels serve on Hopper too."""
    before = forward_launch.plan_for_hopper, backward.hopper_queries
    forward_launch.plan_for_hopper, backward.hopper_queries = (lambda problem: None), (lambda problem, do: None)
    forget_plans()
    try:
        yield
    finally:
        forward_launch.plan_for_hopper, backward.hopper_queries = before
        forget_plans()


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """The norm of the difference over the norm."""
    return float((a.double() - b.double()).norm() / b.double().norm())


def check(shape, kv_heads, keys, causal, dtype):
    """The differences between both kinds of kernels; what is returned is ready to be timed."""
    q, do = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(shape[0], kv_heads, keys, shape[3], device="cuda", dtype=dtype) for _ in range(2))
    with general_kernels():
        out, lse = attention_forward(q, k, v, causal=causal)
        wanted = (out, lse, *attention_backward(do, q, k, v, out, lse, causal=causal)[:3])
    found = (*attention_forward(q, k, v, causal=causal), *attention_backward(do, q, k, v, out, lse, causal=causal)[:3])
    off = {n: apart(a, b) for n, a, b in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True)}
    assert max(off.values()) < (5e-3 if dtype == torch.bfloat16 else 1e-3), off
    print(shape, keys, "causal" if causal else "full", *(f"{n} {x:.1e}" for n, x in off.items()), flush=True)
    return (q, k, v), do, (out, lse), off


def measure(shape, kv_heads, keys, causal, runs):
    """TFLOPS of forward, backward and both."""
    (q, k, v), do, (out, lse), off = check(shape, kv_heads, keys, causal, torch.bfloat16)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    theirs = sdpa("CUDNN_ATTENTION", leaves[0], leaves[1], leaves[2], causal)
    calls: dict[str, Callable[[], object]] = {
        "forward": partial(attention_forward, q, k, v, causal=causal),
        "backward": partial(attention_backward, do, q, k, v, out, lse, causal=causal),
    }
    peers: dict[str, Callable[[], object]] = {
        "forward": partial(sdpa, "CUDNN_ATTENTION", q, k, v, causal),
        "backward": lambda: torch.autograd.grad(theirs, leaves, do, retain_graph=True),
    }
    row = {"shape": shape, "kv_heads": kv_heads, "keys": keys, "causal": causal, "dtype": "bfloat16", "off": off}
    seconds = {"cuDNN": 0.0, "general": 0.0, "Hopper's own": 0.0}
    work = flops(shape, causal)
    for part, factor in (("forward", 1.0), ("backward", 2.5)):
        with torch.no_grad() if part == "forward" else torch.enable_grad():
            times = median_times({"cuDNN": peers[part], "Hopper's own": calls[part]}, runs)
            with general_kernels():
                times |= {"general": median_times({"general": calls[part]}, runs)["general"]}
        row[part] = {name: round(factor * work / s / 1e12, 1) for name, s in times.items()}
        for name, s in times.items():
            seconds[name] += s
    row["both"] = {name: round(3.5 * work / s / 1e12, 1) for name, s in seconds.items()}
    print("  ", {part: row[part] for part in ("forward", "backward", "both")}, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare results at odd shapes, time nothing")
    parser.add_argument("--out", type=Path, help="folder for the results instead of benchmarks/results")
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.check:
        vars(hopper_launch)["is_small_work"] = lambda operations: False
        for case in ODD:
            for dtype in (torch.float16, torch.bfloat16):
                check(*case, dtype)
        return
    save("attention_hopper", {"cases": [measure(*case, runs=15) for case in TIMED]}, given.out)


if __name__ == "__main__":
    main()
