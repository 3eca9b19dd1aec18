# SPDX-License-Identifier: MIT
"""The launches that the resource table compiles for MI300X.

``softmax_cases`` holds those of the file ``softmax``. Each case is a label and a function without arguments that
launches; :mod:`course.resource_table` calls both in a dry run, where tensors take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch

from rocm_guide.kernels.attention import attention_backward, attention_forward
from rocm_guide.kernels.attention_fp8 import attention_quantized
from rocm_guide.kernels.bandwidth import stream
from rocm_guide.kernels.decode import attention_decode
from rocm_guide.kernels.decode_int4 import attention_decode_int, grid_shape
from rocm_guide.kernels.experts import CONFIGS as EXPERT_TILES
from rocm_guide.kernels.experts import experts
from rocm_guide.kernels.fp8_ladder import RUNGS, run_rung
from rocm_guide.kernels.gemm import CONFIGS as GEMM_TILES
from rocm_guide.kernels.gemm import gemm
from rocm_guide.kernels.gemm_skinny import SHAPES, gemm_skinny
from rocm_guide.kernels.gemm_split_k import gemm_split_k
from rocm_guide.kernels.gemm_stream_k import gemm_stream_k
from rocm_guide.kernels.int8_gemm import CONFIGS as INT8_TILES
from rocm_guide.kernels.int8_gemm import (
    bmm_ab_i8_e_f32,
    bmm_abe_i8,
    linear_ab_i8_de_f32,
    linear_abde_i8,
    linear_relu_abde_i8,
    linear_scaled,
)
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.mla_decode import mla_decode
from rocm_guide.kernels.mla_prefill import mla_attention
from rocm_guide.kernels.paged import attention_paged
from rocm_guide.kernels.rms_norm import FLOATS, rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
from rocm_guide.kernels.softmax import softmax_backward, softmax_forward
from rocm_guide.kernels.swiglu_fp8 import swiglu_fp8

__all__ = [
    "attention_cases",
    "decode_cases",
    "decode_int4_cases",
    "mla_decode_cases",
    "mla_prefill_cases",
    "rmsnorm_fp8_cases",
    "swiglu_fp8_cases",
]

#: Pairs of a label and a launch.
Cases: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]

FP16, BF16, FP32, INT8 = torch.float16, torch.bfloat16, torch.float32, torch.int8
#: Types of the products, in the order of the table.
PRODUCTS = (torch.float16, BF16, FP32, INT8, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
#: Row lengths: usual ones, odd ones, a blocked one.
COLUMNS = (128, 512, 1024, 2048, 4096, 8192, 8191, 16384, 16383, 32768, 131072)


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Return a tensor on the GPU."""
    return torch.empty(shape, dtype=dtype, device="cuda")


def name_of(dtype: torch.dtype, weight: bool | None = None) -> str:
    """Return the start of a label: the type, and whether the second operand is a weight, which is stored transposed."""
    return str(dtype).removeprefix("torch.") + {None: "", True: " A B^T", False: " A B"}[weight]


def multiply(
    product: Callable[..., Any], m: int, n: int, k: int, dtype: torch.dtype, weight: bool = True, **options: Any
) -> Callable[[], Any]:
    """Return a launch of ``product(a, b)``, A (m, k) and B (k, n); as a ``weight`` B is stored transposed."""

    def run() -> None:
        a, b = empty(m, k, dtype=dtype), empty(*((n, k) if weight else (k, n)), dtype=dtype)
        product(a, b.T if weight else b, **options)

    return run


def attention_cases() -> Cases:
    """Yield (label, launch) for the resource table: every feature, forward and backward; for a dry run."""

    def launch(
        backward: bool, d: int, rows: int = 1024, kv_heads: int = 8, dtype: Any = FP16, values: int = 0, **given: Any
    ) -> None:
        q, out, do = (empty(2, 8, rows, width, dtype=dtype) for width in (d, values or d, values or d))
        k, v = (empty(2, kv_heads, rows, width, dtype=dtype) for width in (d, values or d))
        if given.pop("alibi", False):
            given["alibi_slopes"] = empty(8, dtype=FP32)
        if given.pop("matrix", False):
            given["bias"] = empty(2, 8, rows, rows, dtype=dtype)
        v = v.mT.contiguous().mT if given.pop("v_transposed", False) else v
        if backward:
            lse = empty(2, 8, rows, dtype=FP32)
            attention_backward(do, q, k, v, out, lse, bias_gradient="bias" in given, **given)
        else:
            attention_forward(q, k, v, **given)

    for name, backward in (("forward", False), ("backward", True)):
        for d in (64, 128):
            for causal in (False, True):
                label = f"{name}, heads of {d}{', causal' if causal else ''}"
                yield label, partial(launch, backward, d, causal=causal)
                for feature in ("alibi", "matrix", *(() if backward else ("v_transposed",))):
                    yield f"{label}, {feature}", partial(launch, backward, d, causal=causal, **{feature: True})
                yield f"{label}, dropout", partial(launch, backward, d, causal=causal, dropout=0.1, seed=12345)
                for schedule in () if backward else ("fixed", "dynamic"):
                    yield (
                        f"{label}, persistent {schedule}",
                        partial(launch, backward, d, causal=causal, schedule=schedule),
                    )
            grouped = partial(launch, backward, d, kv_heads=2, dtype=BF16, causal=True)
            yield f"{name}, heads of {d}, causal, bf16, 4 per KV head", grouped
            if not backward:
                yield f"{name}, heads of {d}, causal, 1023 tokens", partial(launch, backward, d, rows=1023, causal=True)
        for d in (16, 72, 80, 256) if backward else (16, 32, 72, 80, 96, 112, 256):
            yield f"{name}, heads of {d}, causal", partial(launch, backward, d, causal=True)
        for dtype, label in ((FP16, ""), (BF16, ", bf16")):  # DeepSeek's, with keys and values written out
            latent = partial(launch, backward, 192, dtype=dtype, values=128, causal=True)
            yield f"{name}, heads of 192, values of 128, causal{label}", latent


def attention_fp8_cases() -> Cases:
    """Yield (label, launch) for the resource table: each pair of types; for a dry run."""

    def launch(d: int, dtype: Any, q_dtype: Any = None, **more: Any) -> None:
        q, k = empty(2, 8, 1024, d, dtype=q_dtype or dtype), empty(2, 8, 1024, d, dtype=dtype)
        scale = empty(2, 8, dtype=FP32)
        attention_quantized(q, k, k, q_scale=None if q_dtype else scale, k_scale=scale, v_scale=scale, **more)

    for d in (64, 128):
        for causal in (False, True):
            label = f"heads of {d}{', causal' if causal else ''}"
            yield f"{label}, int8 q k v", partial(launch, d, INT8, causal=causal)
            yield f"{label}, int8 q k v p", partial(launch, d, INT8, p_scale=1 / 127, causal=causal)
            yield f"{label}, int8 k v", partial(launch, d, INT8, FP16, causal=causal)
            yield f"{label}, fp8", partial(launch, d, torch.float8_e4m3fnuz, causal=causal)


def bandwidth_cases() -> Cases:
    """Yield every stream in fp32 and bf16."""
    for dtype in (FP32, BF16):
        x, y, z = (empty(1 << 28, dtype=dtype) for _ in range(3))
        yield f"read {name_of(dtype)}", partial(stream, "read", None, x)
        yield f"write {name_of(dtype)}", partial(stream, "write", z)
        yield f"copy {name_of(dtype)}", partial(stream, "copy", z, x)
        yield f"triad {name_of(dtype)}", partial(stream, "triad", z, x, y)


def decode_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def launch(batch: int, q_heads: int, heads: int, width: int, dtype: torch.dtype) -> Any:
        k, v = (empty(batch, 32768, heads, width, dtype=dtype) for _ in range(2))
        return attention_decode(empty(batch, q_heads, width, dtype=dtype), k, v)

    for width in (64, 72, 80, 96, 128, 256):
        yield f"32k keys, 32/8 heads of {width}, fp16", partial(launch, 1, 32, 8, width, FP16)
    yield "32k keys, 32/8 heads of 128, bf16", partial(launch, 16, 32, 8, 128, BF16)
    yield "32k keys, 32/32 heads of 128, fp16", partial(launch, 1, 32, 32, 128, FP16)
    yield "32k keys, 64/1 heads of 128, bf16", partial(launch, 1, 64, 1, 128, BF16)


def decode_int4_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def launch(bits: int, width: int, dtype: torch.dtype) -> Any:
        codes = empty(1, 32768, 8, width // (8 // bits), dtype=INT8 if bits == 8 else torch.uint8)
        grid = empty(*grid_shape((1, 32768, 8, width), bits), dtype=torch.int32)
        return attention_decode_int(empty(1, 32, width, dtype=dtype), codes, codes.clone(), grid, grid.clone())

    for bits in (8, 4):
        for width, dtype in ((64, FP16), (128, FP16), (128, BF16), (256, FP16)):
            label = f"32k keys, 32/8 heads of {width}, {name_of(dtype)}, int{bits} cache"
            yield label, partial(launch, bits, width, dtype)


def mla_decode_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def launch(heads: int, d: int, r: int, c: int, dtype: torch.dtype) -> Any:
        q, q_pe = (empty(1, heads, size, dtype=dtype) for size in (d, r))
        cache, w = empty(1, 32768, c + r, dtype=dtype), empty(heads, 2 * d, c, dtype=dtype)
        return mla_decode(q, q_pe, cache[..., :c], cache[..., c:], w)

    for heads, dtype in ((128, FP16), (128, BF16), (16, BF16)):
        label = f"32k keys, {heads} heads of 128 + 64, latents of 512, {name_of(dtype)}"
        yield label, partial(launch, heads, 128, 64, 512, dtype)
    yield "32k keys, 16 heads of 64 + 32, latents of 256, float16", partial(launch, 16, 64, 32, 256, FP16)


def mla_prefill_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def launch(b: int, s: int, h: int, d: int, r: int, c: int, causal: bool = False) -> Any:
        q, q_pe = (empty(b, s, h, size) for size in (d, r))
        cache, w = empty(b, s, c + r), empty(h, 2 * d, c)
        return mla_attention(q, q_pe, cache[..., :c], cache[..., c:], w, causal=causal)

    # The first is the size that the document was "currently running with"; the others are DeepSeek-V3's.
    yield "128 queries, 16 heads of 64 + 32, latents of 256", partial(launch, 2, 128, 16, 64, 32, 256)
    large = "4k queries, 128 heads of 128 + 64, latents of 512"
    yield large, partial(launch, 1, 4096, 128, 128, 64, 512)
    yield f"{large}, causal", partial(launch, 1, 4096, 128, 128, 64, 512, causal=True)


def paged_cases() -> Cases:
    """Yield (label, launch) for the resource table; for a dry run."""

    def launch(page: int) -> Any:
        pages = empty(4096, page, 8, 128, dtype=FP16)
        table, lengths = empty(16, 2048, dtype=torch.int32), empty(16, dtype=torch.int32)
        return attention_paged(empty(16, 32, 128, dtype=FP16), pages, pages.clone(), table, lengths)

    for page in (16, 64):
        yield f"pages of {page} keys, 32/8 heads of 128, fp16 cache", partial(launch, page)


def _both_directions(forward: Callable[..., Any], backward: Callable[..., Any], weights: int) -> Cases:
    """Yield both at all row lengths; with so many weights, and so many numbers of a row that are kept in between."""
    for cols in COLUMNS:
        for dtype in FLOATS if cols in (4096, 16384) else (BF16,):
            x, w, kept = empty(2048, cols, dtype=dtype), empty(cols, dtype=dtype), [empty(2048, dtype=FP32)] * weights
            yield f"forward, {cols} columns, {name_of(dtype)}", partial(forward, x, *[w] * weights)
            yield f"backward, {cols} columns, {name_of(dtype)}", partial(backward, x, *[w][:weights], x, *kept)


def layer_norm_cases() -> Cases:
    """Yield both directions at all row lengths."""
    yield from _both_directions(layer_norm_forward, layer_norm_backward, 2)


def rms_norm_cases() -> Cases:
    """Yield both directions at all row lengths."""
    yield from _both_directions(rms_norm_forward, rms_norm_backward, 1)


def softmax_cases() -> Cases:
    """Yield both directions at all row lengths."""
    yield from _both_directions(softmax_forward, softmax_backward, 0)


def gemm_cases() -> Cases:
    """Yield each type and tile, both layouts of B, odd sizes, and the three products of a training step."""

    def with_bias(a: torch.Tensor, b: torch.Tensor) -> None:
        gemm(a, b, empty(b.shape[1]), activation="gelu")

    def training() -> None:
        x, w = empty(8192, 4096), empty(4096, 4096)
        gemm(x, w.T)
        gemm(x, w)
        gemm(x.T, x)

    for dtype in PRODUCTS:
        for tile in GEMM_TILES["gfx942"][8 * dtype.itemsize]:
            for weight in (False, True):
                launch = multiply(gemm, 8192, 8192, 8192, dtype, weight, tile=tile)
                yield f"{name_of(dtype, weight)} {tile.bm}x{tile.bn}x{tile.bk}", launch
    yield "bfloat16 bias gelu", multiply(with_bias, 8192, 8192, 8192, BF16)
    yield "bfloat16 4097x4099x4100", multiply(gemm, 4097, 4099, 4100, BF16)
    for dtype in (BF16, FP32):
        for weight in (False, True):  # multiples of 8, not of 16
            yield f"{name_of(dtype, weight)} 8200x8200x8200", multiply(gemm, 8200, 8200, 8200, dtype, weight)
    yield "bfloat16 forward, dx, dW 8192x4096x4096", training


def gemm_skinny_cases() -> Cases:
    """Yield the document's shapes, both widths, 16 and 32 rows."""

    def launch(m: int, n: int, k: int, dtype: torch.dtype) -> Any:
        return gemm_skinny(empty(m, k, dtype=dtype), empty(n, k, dtype=dtype), 0.5, 0.5)

    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, BF16, FP16):
        for n, k in SHAPES:
            for m in (1, 8, 16, 32) if dtype == torch.float8_e4m3fnuz else (16, 32):
                yield f"{name_of(dtype)} {m}x{n}x{k}", partial(launch, m, n, k, dtype)


def gemm_split_k_cases() -> Cases:
    """Yield each type, both ways of adding, odd sizes."""
    for dtype in PRODUCTS:
        yield f"{name_of(dtype)} 128x2048x16384", multiply(gemm_split_k, 128, 2048, 16384, dtype)
        launch = multiply(gemm_split_k, 128, 2048, 16384, dtype, atomic=True)
        yield f"{name_of(dtype)} 128x2048x16384 {{'atomic': True}}", launch
    yield "float16 100x100x999", multiply(gemm_split_k, 100, 100, 999, FP16)
    for weight in (False, True):  # multiples of 8, not of 16
        label = f"{name_of(FP16, weight)} 136x2056x16392"
        yield label, multiply(gemm_split_k, 136, 2056, 16392, FP16, weight)


def gemm_stream_k_cases() -> Cases:
    """Yield each type, both layouts of B, odd sizes."""
    for dtype in (FP16, BF16, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, FP32):
        for weight in (False, True):
            for m, n, k in ((4864, 4096, 8192), (4097, 4096, 4100), *[(4104, 4104, 8200)] * (dtype == BF16)):
                yield f"{name_of(dtype, weight)} {m}x{n}x{k}", multiply(gemm_stream_k, m, n, k, dtype, weight)


def int8_gemm_cases() -> Cases:
    """Yield each operator at the sizes of OPT-13B, and the scaled product in every tile."""

    def linear(operator: Callable[..., Any], tokens: int, n: int, k: int, matrix: bool = False) -> Any:
        kind, shape = FP32 if operator is linear_ab_i8_de_f32 else INT8, (tokens, n) if matrix else (n,)
        a, b = empty(tokens, k, dtype=INT8), empty(n, k, dtype=INT8)
        return operator(a, b.T, empty(*shape, dtype=kind), 0.01, 0.5)

    def scaled(n: int, tile: Any) -> Any:
        a, b = (empty(n, n, dtype=INT8) for _ in range(2))
        scales = [empty(n, dtype=FP32) for _ in range(2)]
        return linear_scaled(a, b.T, *scales, out_dtype=BF16, tile=tile)

    for operator, n, k in (
        (linear_abde_i8, 5120, 5120),
        (linear_relu_abde_i8, 20480, 5120),
        (linear_ab_i8_de_f32, 5120, 20480),
    ):
        for tokens in (2048, 32):
            yield f"{operator.__name__} {tokens}x{n}x{k}", partial(linear, operator, tokens, n, k)
    yield "linear_abde_i8 with a matrix D 2048x5120x5120", partial(linear, linear_abde_i8, 2048, 5120, 5120, True)
    yield "linear_abde_i8 2047x5120x5118", partial(linear, linear_abde_i8, 2047, 5120, 5118)
    many = partial(empty, dtype=INT8)
    yield (
        "bmm_ab_i8_e_f32 40x2048x2048x128",
        lambda: bmm_ab_i8_e_f32(many(40, 2048, 128), many(40, 2048, 128).transpose(1, 2), 0.01),
    )
    yield (
        "bmm_abe_i8 40x2048x128x2048",
        lambda: bmm_abe_i8(many(40, 2048, 2048), many(40, 2048, 128), 0.01),
    )
    for tile in INT8_TILES["gfx942"]:
        yield f"linear_scaled bfloat16 {tile.bm}x{tile.bn}x{tile.bk}", partial(scaled, 4096, tile)


def experts_cases() -> Cases:
    """Yield every tile at the sizes of Qwen3-30B-A3B and of Mixtral-8x7B, and sizes that no tile divides."""

    def launch(tokens: int, sizes: tuple[int, int, int, int], dtype: torch.dtype, tile: Any = None) -> Any:
        hidden, inner, number, per = sizes
        index = empty(tokens, per, dtype=torch.int64)
        gate_up, down = empty(number, 2 * inner, hidden, dtype=dtype), empty(number, hidden, inner, dtype=dtype)
        return experts(empty(tokens, hidden, dtype=dtype), gate_up, down, index, empty(tokens, per), tile=tile)

    for name, sizes in (("128 experts of 2048 x 768", (2048, 768, 128, 8)), ("8 of 4096 x 14336", (4096, 14336, 8, 2))):
        for tile in EXPERT_TILES["gfx942"]:
            for dtype in (BF16, FP16) if sizes[2] == 8 else (BF16,):
                yield (
                    f"{name}, {name_of(dtype)} {tile.bm}x{tile.bn}x{tile.bk}",
                    partial(launch, 4096, sizes, dtype, tile),
                )
    yield "6 of 1000 x 700, bfloat16, 33 tokens", partial(launch, 33, (1000, 700, 6, 2), BF16)


def fp8_ladder_cases() -> Cases:
    """Yield the rungs at 16,384 columns."""
    for rung, name in enumerate(RUNGS[:4], 1):
        x, w = empty(1024, 16384, dtype=FP16), empty(16384, dtype=FP16)
        yield f"rung {rung}, {name}", partial(run_rung, rung, x, x, w, 0.5)


def rmsnorm_fp8_cases() -> Cases:
    """Yield every configuration."""

    def launch(columns: int, scale: float | None, dtype: torch.dtype) -> Any:
        x = empty(1024, columns, dtype=dtype)
        return rmsnorm_fp8(x, empty(1024, columns, dtype=dtype), empty(columns, dtype=dtype), scale)

    for columns in (1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536, 131072):
        for scale in (0.5, None):
            for dtype in (FP16, BF16) if columns == 16384 else (BF16,):
                name = f"{name_of(dtype)} {columns} columns, {'static' if scale else 'per-row'} scale"
                yield name, partial(launch, columns, scale, dtype)


def swiglu_fp8_cases() -> Cases:
    """Yield every configuration."""

    def launch(columns: int, scale: float | None, dtype: torch.dtype) -> Any:
        return swiglu_fp8(empty(1024, 2 * columns, dtype=dtype), scale)

    for columns in (1024, 2048, 4096, 8192, 14336, 16384, 28672, 53248):
        for scale in (0.5, None):
            for dtype in (FP16, BF16) if columns == 8192 else (BF16,):
                name = f"{name_of(dtype)} {columns} columns, {'static' if scale else 'per-row'} scale"
                yield name, partial(launch, columns, scale, dtype)
