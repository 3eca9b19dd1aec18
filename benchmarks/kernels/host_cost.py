# SPDX-License-Identifier: MIT
"""What a call costs on the host: our wrappers from Python, without a graph, beside torch, torch.compile and Liger.

All work is small, so that the GPU is done before the next call comes and only the host counts. "launches alone" is
what Triton itself takes for the same kernels with the same arguments, ``kernel[grid](…)``, outputs not allocated;
"plain file" is the kernel's file as it is read and copied, of which "ours" is rocm_guide.kernels.api; "plain Triton
launch" is a kernel of two tensors and one number, measured again beside every wrapper. Median of rounds of calls
without a wait in between, all ways in turns,
in microseconds. Modes: inference (no gradient wanted), forward (a gradient will be wanted), forward+backward.

    python -m benchmarks.kernels.host_cost            # measure, write results/host_cost.json and the figure
    python -m benchmarks.kernels.host_cost --plot     # only draw the figure again
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from benchmarks.timing import RESULTS, save, save_plot
from rocm_guide.common.device import Timing, accelerator

CALLS, ROUNDS = 200, 15
WAYS = ("ours", "plain file", "launches alone", "torch eager", "torch.compile", "Liger")
Case = tuple[str, dict[str, Callable[..., Any]], tuple[Any, ...]]


@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Add one: the plain launch."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


def host_us(calls: dict[Any, Callable[[], object]]) -> dict[Any, list[float]]:
    """[median, spread] in microseconds of each call on the host, in turns: what slows the machine slows all of them."""
    for call in calls.values():
        for _ in range(20):
            call()
    samples: dict[Any, list[float]] = {name: [] for name in calls}
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, call in calls.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
    finally:
        gc.enable()
    torch.cuda.synchronize()
    timings = {name: Timing.of(values) for name, values in samples.items()}
    return {name: [round(t.median, 2), round(t.spread, 2)] for name, t in timings.items()}


def launches_alone(call: Callable[[], object]) -> Callable[[], None]:
    """Return what Triton does for the kernels of ``call``, with the arguments that it gave them."""
    found, real = [], JITFunction.run

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        found.append((kernel, grid, arguments, options))
        return real(kernel, *arguments, grid=grid, warmup=warmup, **options)

    JITFunction.run = record
    try:
        call()
    finally:
        JITFunction.run = real
    if not found:
        raise RuntimeError("no launch was seen")

    def again() -> None:
        for kernel, grid, arguments, options in found:
            kernel[grid](*arguments, **options)

    return again


def liger(name: str) -> Any:
    """Liger's function; ImportError without it."""
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return {
        "softmax": LigerSoftmaxFunction.apply,
        "rms_norm": lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6),
        "layer_norm": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
    }[name]


def cases() -> Iterator[Case]:
    """(name, ways, tensors) of every wrapper."""

    from rocm_guide.kernels import (
        api,
        attention,
        decode,
        gemm,
        gemm_skinny,
        gemm_split_k,
        layer_norm,
        rms_norm,
        rmsnorm_fp8,
        softmax,
        swiglu_fp8,
    )

    def new(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(dtype)

    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], w, 1e-6)

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)

    x, w, b = new(16, 2048), new(2048), new(2048)
    yield (
        "softmax",
        {"ours": api.softmax, "plain file": softmax.softmax, "torch eager": partial(torch.softmax, dim=-1)},
        (x,),
    )
    yield "rms_norm", {"ours": api.rms_norm, "plain file": rms_norm.rms_norm, "torch eager": norm}, (x, w)
    yield "layer_norm", {"ours": api.layer_norm, "plain file": layer_norm.layer_norm, "torch eager": layer}, (x, w, b)
    for name, file in (("rmsnorm_fp8", rmsnorm_fp8), ("swiglu_fp8", swiglu_fp8)):
        rows = (x, x.clone(), w) if name == "rmsnorm_fp8" else (x,)
        both = {"ours": getattr(api, name), "plain file": getattr(file, name)}
        yield f"{name}, a scale per row", both, rows
        yield f"{name}, one scale", {way: lambda *t, f=f: f(*t, 0.05) for way, f in both.items()}, rows
    square = new(256, 256)
    products = {"ours": api.gemm, "plain file": gemm.gemm, "torch eager": torch.mm}
    yield "gemm", products, (square, square.clone())
    larger = new(1024, 1024)  # on NVIDIA it takes descriptors
    yield "gemm, 1024 cubed", products, (larger, larger.clone())
    products = {"ours": api.gemm_split_k, "plain file": gemm_split_k.gemm_split_k}
    yield "gemm_split_k", products | {"torch eager": torch.mm}, (square, square.clone())
    # Two launches: it is told to split where it would not.
    four = {way: partial(f, split=4) for way, f in products.items()}
    yield "gemm_split_k, 4 parts", four | {"torch eager": torch.mm}, (square, square.clone())
    weight, rows = new(1024, 1024), new(16, 1024)
    products = {"ours": api.gemm_skinny, "plain file": gemm_skinny.gemm_skinny}
    eights = tuple(t.to(torch.float8_e4m3fn) for t in (rows, weight)) if torch.version.hip is None else ()
    if eights:
        one = torch.ones((), device="cuda")

        def scaled(x, w):
            return torch._scaled_mm(x, w.T, one, one, out_dtype=torch.bfloat16)

        yield "gemm_skinny, fp8", products | {"torch eager": scaled}, eights
    yield "gemm_skinny, bf16", products | {"torch eager": F.linear}, (rows, weight)
    q, k = new(1, 8, 128, 128), new(1, 8, 128, 128)
    theirs = partial(F.scaled_dot_product_attention, is_causal=True)
    both = {"ours": partial(api.attention, causal=True), "plain file": partial(attention.attention, causal=True)}
    yield "attention", both | {"torch eager": theirs}, (q, k, k.clone())
    cache = new(1, 256, 8, 128)

    def whole(q, k, v):
        return F.scaled_dot_product_attention(q[:, :, None], *(t.transpose(1, 2) for t in (k, v)))

    # Keys and values lie apart: of a call with one tensor twice no recipe is kept (rocm_guide.kernels.fast).
    both = {"ours": api.attention_decode, "plain file": decode.attention_decode, "torch eager": whole}
    yield "attention_decode", both, (q[:, :, 0].contiguous(), cache, cache.clone())


TRAINED = ("softmax", "rms_norm", "layer_norm", "attention")


def modes(function: Callable[..., Any], tensors: tuple[Any, ...], trained: bool) -> Iterator[tuple[str, Any]]:
    """(mode, a call)."""
    yield "inference", lambda: function(*tensors)
    if trained:
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        yield "forward", lambda: function(*leaves)
        gradient = torch.ones_like(function(*leaves))
        yield "forward+backward", lambda: torch.autograd.grad(function(*leaves), leaves, gradient)


def calls_of(name: str, ways: dict[str, Any], tensors: tuple[Any, ...], failed: list[str]) -> dict[Any, Any]:
    """(way, mode) -> a call that works."""
    ways, found = dict(ways), {}
    few = name in (
        "gemm_split_k",
        "gemm_split_k, 4 parts",
        "gemm_skinny, bf16",
    )  # compiling takes seconds each
    if "torch eager" in ways and not few:
        ways["torch.compile"] = torch.compile(lambda *t, f=ways["torch eager"]: f(*t), dynamic=False)
    if name in ("softmax", "rms_norm", "layer_norm"):
        ways["Liger"] = lambda *t: liger(name)(*t)
    for way, function in ways.items():
        try:
            for mode, call in modes(function, tensors, name in TRAINED):
                call()
                found[way, mode] = call
                if way == "plain file" and mode == "inference":  # its kernels are launched by Triton each time
                    found["launches alone", mode] = launches_alone(call)
        except Exception as e:  # noqa: BLE001 - one that fails must not end the others
            failed.append(f"{name}, {way}: {type(e).__name__}: {str(e)[:600]}")
            print(failed[-1], flush=True)
    return found


def measure(only: str = "") -> dict[str, Any]:
    """All cases whose name contains ``only``, with what does not run named in ``failed``; other rows stay."""
    x = torch.zeros(4096, device="cuda")
    y = torch.empty_like(x)
    before = json.loads((RESULTS / "host_cost.json").read_text()) if only else {"hardware": None, "rows": []}
    if only and before["hardware"] != accelerator().label():
        raise SystemExit(f"--only {only}: results/host_cost.json is of {before['hardware']}; measure all cases here")
    rows: list[Any] = [r for r in before["rows"] if only not in r["case"]]
    failed: list[Any] = []
    triton.set_allocator(lambda size, _align, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    always = {
        ("plain Triton launch", "inference"): lambda: add_one[(4,)](x, y, 4096, BLOCK=1024),
        ("torch.empty", "inference"): lambda: torch.empty(4096, device="cuda"),
    }
    for name, ways, tensors in cases():
        if only not in name:
            continue
        torch._dynamo.reset()
        times = host_us(always | calls_of(name, ways, tensors, failed))
        plain = times["plain Triton launch", "inference"][0]
        for (way, mode), us in times.items():
            row = {"case": name, "way": way, "mode": mode, "us": us, "times_plain": round(us[0] / plain, 2)}
            rows.append(row)
            print(*row.values(), flush=True)
        save("host_cost", {"calls": CALLS, "rounds": ROUNDS, "rows": rows, "failed": failed})
    return {"calls": CALLS, "rounds": ROUNDS, "rows": rows, "failed": failed}


def plot(result: dict[str, Any]) -> None:
    """Bars: microseconds of a call in inference, and the plain launch as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    names = list(dict.fromkeys(r["case"] for r in result["rows"]))
    fig, ax = plt.subplots(figsize=(9, 0.55 * len(names) + 1.6))
    height = 0.8 / len(WAYS)
    for i, way in enumerate(WAYS):
        found = {r["case"]: r["us"][0] for r in result["rows"] if r["way"] == way and r["mode"] == "inference"}
        at = [names.index(n) + (i - (len(WAYS) - 1) / 2) * height for n in found]
        ax.barh(at, list(found.values()), height=height, label=way, color=PALETTE[i % len(PALETTE)])
    plain = [r["us"][0] for r in result["rows"] if r["way"] == "plain Triton launch"]
    one = sorted(plain)[len(plain) // 2]
    ax.axvline(one, color="#333333", linestyle="--", linewidth=1.0, label="plain Triton launch (median)")
    ax.axvline(1.5 * one, color="#333333", linestyle=":", linewidth=1.0, label="1.5 times that")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("microseconds of host time per call, no graph, no gradient")
    ax.set_title("What a call from Python costs", loc="left", weight="bold")
    fig.legend(loc="outside lower center", ncols=4, frameon=False)
    stamp = f"{result['hardware']}, triton {result['triton']}"
    ax.set_title(stamp, loc="right", fontsize=7.5, color="#6B6B6B", weight="normal")
    save_plot("host_cost", fig)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", action="store_true", help="only draw the figure of results/host_cost.json again")
    parser.add_argument("--only", default="", help="measure the cases whose name contains this, keep the other rows")
    given = parser.parse_args()
    if not given.plot:
        print(save("host_cost", measure(given.only)))
    plot(json.loads((RESULTS / "host_cost.json").read_text()))


if __name__ == "__main__":
    main()
