# SPDX-License-Identifier: MIT
"""The kernels of the course at fixed sizes, with the bytes and operations that each needs at least.

:func:`predicted_us` is the roofline: the longer of bytes / bandwidth and operations / peak, both from the data sheet of
any GPU. It knows nothing of the kernel. What a kernel's own code takes on an MI300X is predicted in
:mod:`rocm_guide.observe.measure.predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdna.predict.specs import GpuSpec

__all__ = ["CASES", "Case", "predicted_us"]

#: Calls that do the same work on inputs of their own, so that no cache holds them when they come round again.
Calls = list[Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One kernel at one size.

    Attributes:
        name: as it stands in the files; a name never changes its meaning.
        notebook: where the kernel is explained.
        make: allocates on the GPU, and returns the calls that take turns.
        nbytes, flops: what one call must move and compute at least.
        unit: the arithmetic that bounds it, a name of :class:`~cdna.predict.specs.GpuSpec`'s ``flops``.
    """

    name: str
    notebook: str
    make: Callable[[], Calls]
    nbytes: int
    flops: int
    unit: str


def predicted_us(case: Case, spec: GpuSpec) -> float:
    """Return the microseconds that the roofline of ``spec`` allows:
    the longer of moving the bytes and doing the operations.

    >>> from cdna.predict.specs import gpu
    >>> round(predicted_us(CASES["gemm bf16 8192"], gpu("MI300X")))
    841
    """
    return max(case.nbytes / spec.bandwidth_tb_s, case.flops / spec.peak_tflops(case.unit)) / 1e6


def _random(*shape: int, dtype: str = "bfloat16", seed: int = 0) -> Any:
    import torch

    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    if dtype == "int8":
        return torch.randint(-127, 128, shape, dtype=kind, device="cuda")
    return torch.randn(*shape, dtype=torch.float16 if "float8" in dtype else kind, device="cuda").to(kind)


def _stream(kind: str, n: int) -> Calls:
    import torch

    from rocm_guide.kernels.bandwidth import stream

    x, y, z = (torch.ones(n, dtype=torch.float32, device="cuda") for _ in range(3))
    arguments = {"read": (None, x), "write": (z,), "copy": (z, x), "triad": (z, x, y)}[kind]
    return [partial(stream, kind, *arguments)]


def _rows(kind: str, rows: int, columns: int) -> Calls:
    from rocm_guide.kernels.layer_norm import layer_norm_forward
    from rocm_guide.kernels.rms_norm import rms_norm_forward
    from rocm_guide.kernels.softmax import softmax_forward

    x, w = _random(rows, columns), _random(columns, seed=1)
    call = {
        "softmax": partial(softmax_forward, x),
        "rms_norm": partial(rms_norm_forward, x, w),
        "layer_norm": partial(layer_norm_forward, x, w, w),
    }
    return [call[kind]]


def _gemm(dtype: str, n: int) -> Calls:
    from rocm_guide.kernels.gemm import gemm

    return [partial(gemm, _random(n, n, dtype=dtype), _random(n, n, dtype=dtype, seed=1).T)]


def _stream_k(m: int, n: int, k: int) -> Calls:
    from rocm_guide.kernels.gemm_stream_k import gemm_stream_k

    return [partial(gemm_stream_k, _random(m, k), _random(n, k, seed=1).T)]


def _skinny(rows: int, n: int, k: int) -> Calls:
    from rocm_guide.kernels.fp8 import fp8_dtype, fp8_here
    from rocm_guide.kernels.gemm_skinny import gemm_skinny

    name = str(fp8_dtype(fp8_here("e4m3"))).removeprefix("torch.")
    copies = max(2, (640 << 20) // (n * k))  # more than any last cache holds
    return [
        partial(gemm_skinny, _random(rows, k, dtype=name), _random(n, k, dtype=name, seed=i)) for i in range(copies)
    ]


def _rung(index: int, n: int) -> Calls:
    from cdna.examples.gemm_ladder import RUNGS, multiply

    return [partial(multiply, RUNGS[index], _random(n, n, dtype="float16"), _random(n, n, dtype="float16", seed=1))]


def _attention(causal: bool, heads: int, tokens: int, size: int) -> Calls:
    from rocm_guide.kernels.attention import attention_forward

    q, k, v = (_random(1, heads, tokens, size, seed=i) for i in range(3))
    return [partial(attention_forward, q, k, v, causal=causal)]


def _decode(batch: int, heads: int, kv_heads: int, tokens: int, size: int) -> Calls:
    from rocm_guide.kernels.decode import attention_decode

    q = _random(batch, heads, size)
    k, v = (_random(batch, kv_heads, tokens, size, seed=i).transpose(1, 2) for i in (1, 2))
    return [partial(attention_decode, q, k, v)]


_RUNGS = ("naive", "tiled", "matrix cores", "pipelined", "ping-pong", "XCD order", "persistent")


def _all() -> Iterator[Case]:
    n = 1 << 27
    for kind, moved in (("read", 1), ("write", 1), ("copy", 2), ("triad", 3)):
        flops = {"read": n, "triad": 2 * n}.get(kind, 0)
        yield Case(f"stream {kind} 512 MiB", "20", partial(_stream, kind, n), 4 * n * moved, flops, "fp32")
    rows, columns = 32768, 8192
    for kind, each in (("softmax", 5), ("rms_norm", 4), ("layer_norm", 7)):
        nbytes = 4 * rows * columns
        yield Case(
            f"{kind} bf16 32768 x 8192",
            "30",
            partial(_rows, kind, rows, columns),
            nbytes,
            each * rows * columns,
            "fp32",
        )
    m = 4096
    for index, name in enumerate(_RUNGS):
        unit = "fp32" if index < 2 else "fp16"
        yield Case(f"ladder {name} fp16 4096", "31", partial(_rung, index, m), 6 * m * m, 2 * m**3, unit)
    for dtype, unit, side in (("bfloat16", "bf16", 4096), ("bfloat16", "bf16", 8192), ("int8", "int8", 8192)):
        size = 1 if dtype == "int8" else 2
        nbytes = (2 * size + (4 if dtype == "int8" else 2)) * side * side
        yield Case(f"gemm {unit} {side}", "31", partial(_gemm, dtype, side), nbytes, 2 * side**3, unit)
    m, k, n = 4864, 8192, 4096
    yield Case(
        "stream-K bf16 4864 x 4096 x 8192",
        "32",
        partial(_stream_k, m, n, k),
        2 * (m * k + k * n + m * n),
        2 * m * n * k,
        "bf16",
    )
    for rows, (n, k) in ((16, (2304, 16384)), (16, (13312, 16384))):
        yield Case(
            f"skinny fp8 {rows} x {n} x {k}",
            "32",
            partial(_skinny, rows, n, k),
            n * k + rows * (k + 2 * n),
            2 * rows * n * k,
            "fp8",
        )
    heads, tokens, size = 32, 4096, 128
    for causal in (False, True):
        flops = 4 * heads * tokens * tokens * size // (2 if causal else 1)
        name = f"attention {'causal ' if causal else ''}bf16 32 x 4096 x 128"
        yield Case(
            name, "34", partial(_attention, causal, heads, tokens, size), 8 * heads * tokens * size, flops, "bf16"
        )
    batch, kv = 16, 8
    yield Case(
        "decode bf16 16 x 32/8 heads x 8192 x 128",
        "39",
        partial(_decode, batch, heads, kv, 8192, size),
        4 * batch * kv * 8192 * size,
        4 * batch * heads * 8192 * size,
        "bf16",
    )


#: All cases by name.
CASES: dict[str, Case] = {case.name: case for case in _all()}
