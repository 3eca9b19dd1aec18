# SPDX-License-Identifier: MIT
"""The operations of :mod:`benchmarks.kernels.peers_mi300x`, and how each library is called for them.

Liger and aiter lie in a folder of their own, which the first call fills from the package index (`peers_mi300x.txt` pins
them). Nothing of them is kept here.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cdna.predict.specs import gpu
from rocm_guide.kernels.attention import attention_backward, attention_forward, reference_attention
from rocm_guide.kernels.gemm import gemm, pick_gemm_tile
from rocm_guide.kernels.gemm_skinny import gemm_skinny
from rocm_guide.kernels.gemm_split_k import gemm_split_k
from rocm_guide.kernels.int8_gemm import linear_scaled, pick_int8_tile
from rocm_guide.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from rocm_guide.kernels.mla_decode import launch_mla
from rocm_guide.kernels.mla_prefill import mla_attention, reference_mla_naive
from rocm_guide.kernels.paged import attention_paged
from rocm_guide.kernels.rms_norm import rms_norm_backward, rms_norm_forward
from rocm_guide.kernels.rmsnorm_fp8 import rmsnorm_fp8
from rocm_guide.kernels.softmax import softmax_forward
from rocm_guide.observe.doctor.own_folders import LibraryFolder

__all__ = [
    "BF16",
    "FLOATS",
    "FOLDER",
    "FP8",
    "INT8",
    "MI300X",
    "Operation",
    "Tensors",
    "draw",
    "gemm_operations",
    "gemm_tile",
    "operations",
]

FOLDER = LibraryFolder(
    name="peers",
    listed=Path(__file__).with_name("peers_mi300x.txt").read_text("utf-8"),
    shown=("liger_kernel", "amd_aiter"),
    needed_by="benchmarks/kernels/peers_mi300x.py",
    in_cache=True,
)
MI300X = gpu("MI300X")
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fnuz

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Operation:
    """One operation at one size.

    Attributes:
        make: the inputs, on the GPU; if it is given a length, at that length of the loop.
        small: the same at a size at which every launch is executed as a whole.
        floor: bytes that the task must move: every input and every output once.
        units: what "per element" counts: elements of the output, for products 1,024 operations.
        plain: the operation in torch: what inductor compiles, and what results are held against; fp32 inside.
        calls: library -> what it does with the inputs.
        lengths: two short lengths of a long loop that are executed in its place, and how long the loop is.
        alike: library, or library and kernel -> the number of a workgroup with the same work, for each; all have the
            same if left out.
        torch_bytes: library -> bytes that torch moves for it after its kernels.
        indices: what int32 tensors of these shapes hold; nothing has values where nothing is allocated.
        close: the largest error that rounding explains, as a share of the largest result.
    """

    name: str
    make: Callable[..., Tensors]
    small: Callable[[], Tensors]
    floor: int
    units: int
    plain: Callable[..., Any]
    calls: dict[str, Callable[..., Any]]
    lengths: tuple[int, int, int] | None = None
    alike: dict[str, Callable[[int], int]] = field(default_factory=dict)
    torch_bytes: dict[str, int] = field(default_factory=dict)
    indices: tuple[torch.Tensor, ...] = ()
    close: float = 0.02


def liger(module: str, name: str) -> Any:
    """Return a function of ``liger_kernel.ops``."""
    _use_folder()
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name)


def aiter(module: str, name: str) -> Any:
    """Return a function of ``aiter.ops.triton``, past the package's own start, which wants ROCm's compiler."""
    _use_folder()
    if "aiter" not in sys.modules:
        for package in ("aiter", "aiter.ops", "aiter.utility", "aiter.jit", "aiter.jit.utils"):
            sys.modules[package] = stub = types.ModuleType(package)
            stub.__path__ = [str(FOLDER.path.joinpath(*package.split(".")))]
        chip: Any = types.ModuleType("aiter.jit.utils.chip_info")
        chip.get_gfx = lambda: "gfx942"
        # A second attention, which nothing here calls: this Triton refuses its tuner's keys, which are no arguments.
        other: Any = types.ModuleType("aiter.ops.triton._triton_kernels.flash_attn_triton_amd")
        other.flash_attn_2 = None
        sys.modules |= {stub.__name__: stub for stub in (chip, other)}
        top: Any = sys.modules["aiter"]
        top.dtypes = importlib.import_module("aiter.utility.dtypes")
    return getattr(importlib.import_module(f"aiter.ops.triton.{module}"), name)


@functools.cache
def _use_folder() -> None:
    if FOLDER.install():
        print(f"installed {' and '.join(FOLDER.requirements)} in a folder of their own", flush=True)
    sys.path.insert(0, str(FOLDER.path))


def draw(*shape: int, dtype: torch.dtype = BF16, seed: int = 0) -> torch.Tensor:
    """Return normal numbers, the same in each call."""
    torch.manual_seed(seed)
    return torch.randn(*shape, device="cuda").to(dtype)


def whole(*shape: int, first: int = 0, step: int = 1) -> torch.Tensor:
    """Return ``first``, ``first + step``, ... as int32."""
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.int32) * step + first).view(shape)


def by(library: Any, module: str, name: str, *extra: Any, order: Any = None, keep: Any = None) -> Callable[..., Any]:
    """Return a call of a library's function with the inputs, in ``order``, and ``extra``; ``keep``: of its results."""

    def call(*inputs: Any) -> Any:
        found = library(module, name)(*(inputs if order is None else [inputs[i] for i in order]), *extra)
        return found if keep is None else found[keep]

    return call


def softmax(x: Any) -> Any:
    return torch.softmax(x.float(), -1).to(x.dtype)


def rms(x: Any, w: Any) -> Any:
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    return (x.float() * rstd * w.float()).to(x.dtype), rstd.squeeze(-1)


def rms_backward(x: Any, w: Any, dy: Any, rstd: Any) -> Any:
    h, g = x.float() * rstd.unsqueeze(-1), dy.float() * w.float()
    dx = rstd.unsqueeze(-1) * (g - h * (g * h).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype)


def liger_rms_backward(x: Any, w: Any, dy: Any, rstd: Any) -> Any:
    settings = liger("utils", "calculate_settings")(x.shape[1])
    return liger("rms_norm", "rms_norm_backward")(dy, x, w, rstd, 0.0, 0, *settings, False, None)


def layer(x: Any, w: Any, b: Any) -> Any:
    mean = x.float().mean(-1, keepdim=True)
    rstd = torch.rsqrt((x.float() - mean).square().mean(-1, keepdim=True) + 1e-5)
    return ((x.float() - mean) * rstd * w.float() + b.float()).to(x.dtype), mean.squeeze(-1), rstd.squeeze(-1)


def aiter_layer(x: Any, w: Any, b: Any) -> Any:
    y, mean, rstd = torch.empty_like(x), *(x.new_empty(len(x), dtype=torch.float32) for _ in range(2))
    aiter("norm", "_layernorm_forward")(y, x, w, b, mean, rstd)
    return y, mean, rstd


def layer_backward(x: Any, w: Any, dy: Any, mean: Any, rstd: Any) -> Any:
    h, g = (x.float() - mean.unsqueeze(-1)) * rstd.unsqueeze(-1), dy.float() * w.float()
    dx = rstd.unsqueeze(-1) * (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * h).sum(0).to(w.dtype), dy.float().sum(0).to(w.dtype)


def aiter_layer_backward(x: Any, w: Any, dy: Any, mean: Any, rstd: Any) -> Any:
    dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)
    return aiter("norm", "_layernorm_backward")(dy, dx, dw, db, x, w, mean, rstd)


def add_norm(x: Any, residual: Any, w: Any, by_rows: bool) -> Any:
    added = x + residual
    y = added.float() * torch.rsqrt(added.float().square().mean(-1, keepdim=True) + 1e-6) * w.float()
    scale = y.abs().amax(-1, keepdim=True) / 240 if by_rows else STATIC
    return (y / scale).clamp(-240, 240).to(FP8), added, *([scale] if by_rows else [])


def aiter_add_norm(x: Any, residual: Any, w: Any) -> Any:
    scale = torch.full((1,), STATIC, dtype=torch.float32, device="cuda")
    fused = aiter("fused_fp8_quant", "fused_rms_fp8_per_tensor_static_quant")
    return fused(x, w, 1e-6, scale, dtype_quant=FP8, res1=residual)[::3]


def aiter_add_norm_rows(x: Any, residual: Any, w: Any) -> Any:
    out, added = torch.empty_like(x, dtype=FP8), torch.empty_like(x)
    scale = torch.empty((len(x), 1), dtype=torch.float32, device="cuda")
    aiter("rmsnorm", "rmsnorm2d_fwd_with_add_dynamicquant")(out, x, residual, added, scale, w, 1e-6)
    return out, added, scale


STATIC = 0.05
#: Name -> how many inputs have a number for each column and each row; what must be moved: bytes for each element,
#: 16-bit numbers for each column, 32-bit ones for each row; the operation.
ROWS: dict[str, tuple[tuple[int, int], tuple[int, int, int], Callable[..., Any]]] = {
    "softmax": ((0, 0), (4, 0, 0), softmax),
    "RMSNorm": ((1, 0), (4, 1, 1), rms),
    "RMSNorm backward": ((1, 1), (6, 2, 1), rms_backward),
    "LayerNorm": ((2, 0), (4, 2, 2), layer),
    "LayerNorm backward": ((1, 2), (6, 3, 2), layer_backward),
    "add, RMSNorm, FP8": ((1, 0), (7, 1, 0), partial(add_norm, by_rows=False)),
    "add, RMSNorm, FP8 by rows": ((1, 0), (7, 1, 1), partial(add_norm, by_rows=True)),
}
OURS: dict[str, Callable[..., Any]] = {
    "softmax": softmax_forward,
    "RMSNorm": rms_norm_forward,
    "RMSNorm backward": rms_norm_backward,
    "LayerNorm": layer_norm_forward,
    "LayerNorm backward": layer_norm_backward,
    "add, RMSNorm, FP8": lambda x, residual, w: rmsnorm_fp8(x, residual, w, STATIC)[:2],
    "add, RMSNorm, FP8 by rows": rmsnorm_fp8,
}
LIGER: dict[str, Callable[..., Any]] = {
    "softmax": by(liger, "softmax", "_softmax_forward", keep=0),
    "RMSNorm": by(liger, "rms_norm", "rms_norm_forward", 1e-6, 0.0, "llama", None, keep=slice(0, None, 2)),
    "RMSNorm backward": liger_rms_backward,
    "LayerNorm": by(liger, "layer_norm", "layer_norm_forward", 1e-5, keep=0),
    "LayerNorm backward": by(liger, "layer_norm", "layer_norm_backward", order=(2, 0, 1, 1, 3, 4)),
}
AITER: dict[str, Callable[..., Any]] = {
    "softmax": by(aiter, "softmax", "softmax"),
    "RMSNorm": by(aiter, "rmsnorm", "_rmsnorm_forward", 1e-6),
    "RMSNorm backward": by(aiter, "rmsnorm", "_rmsnorm_backward", order=(2, 0, 1, 3)),
    "LayerNorm": aiter_layer,
    "LayerNorm backward": aiter_layer_backward,
    "add, RMSNorm, FP8": aiter_add_norm,
    "add, RMSNorm, FP8 by rows": aiter_add_norm_rows,
}
#: Bytes for each column that torch moves afterwards: sums of parts; zeros that a kernel adds to.
AFTER = {
    "RMSNorm backward": {"liger": 4 * MI300X.units},
    "LayerNorm backward": {"liger": 8 * MI300X.units, "aiter": 2 * 256 * 4},
}


def row_operation(name: str, cols: int, rows: int = 2048) -> Operation:
    """Return an operation on rows."""
    (per_column, per_row), (nbytes, columns, numbers), plain = ROWS[name]
    matrices, back = 2 if "backward" in name or "add" in name else 1, "backward" in name

    def make(rows: int = rows) -> Tensors:
        x = [draw(rows, cols, seed=seed) for seed in range(matrices)]
        weights = [draw(cols, seed=2 + i) for i in range(per_column)]
        of_rows = (draw(rows, dtype=torch.float32, seed=4 + i).abs() + 0.5 for i in range(per_row))
        return x[0], *(weights + x[1:] if back else x[1:] + weights), *of_rows

    calls = {"ours": OURS, "liger": LIGER, "aiter": AITER}
    return Operation(
        f"{name} {'' if 'FP8' in name else 'bf16 '}{rows} x {cols}",
        make,
        partial(make, 14 if back else 4),
        nbytes * rows * cols + 2 * columns * cols + 4 * numbers * rows,
        rows * cols,
        plain,
        {library: ways[name] for library, ways in calls.items() if name in ways},
        torch_bytes={library: n * cols for library, n in AFTER.get(name, {}).items()},
        close=0.07 if "FP8" in name else 0.02,  # fp8 has steps of 16 near 240
    )


# --- products with a weight, whose rows are contiguous ---


def our_gemm(a: Any, b: Any, *scales: Any, tile: Any) -> Any:
    if scales:
        return linear_scaled(a, b.T, *scales, out_dtype=BF16, tile=tile)
    if len(a) <= 32:
        return gemm_skinny(a, b)
    return gemm_split_k(a, b.T) if len(a) <= 64 else gemm(a, b.T, tile=tile)


def aiter_gemm(a: Any, b: Any, *scales: Any, n: int, k: int) -> Any:
    module = "gemm_a16w16" if a.dtype == BF16 else "gemm_a8w8"
    config = dict(aiter(f"_triton_kernels.{module}", "_get_config")(len(a), n, k))
    if a.dtype == BF16:  # a part of K that goes to one workgroup: all of it
        assert config["NUM_KSPLIT"] == 1
        return aiter(module, module)(a, b, config=config | {"SPLITK_BLOCK_SIZE": a.shape[1]})
    scales = scales or tuple(torch.ones(len(x), dtype=torch.float32, device="cuda") for x in (a, b))
    return aiter(module, module)(a, b, *scales, config=config)


def scaled_product(a: Any, b: Any, rows: Any, columns: Any) -> Any:
    return a.float() @ b.float().T * rows.unsqueeze(1) * columns


#: Large products, and those of few tokens: rows, columns, K; those in int8 are of Llama 3 8B.
PRODUCTS = ((8192, 8192, 8192), (4096, 11008, 4096), *((m, 7168, 2048) for m in (1, 16, 32, 64)))
INT8_PRODUCTS = ((4096, 28672, 4096), (4096, 4096, 14336), (1024, 6144, 4096), (64, 4096, 4096))
FLOATS, INT8 = {"bf16": BF16, "fp8": FP8}, {"int8": torch.int8}


def gemm_tile(m: int, n: int, k: int, dtype: torch.dtype) -> Any:
    """Return the tile of our product with a weight on an MI300X."""
    if dtype == torch.int8:
        return pick_int8_tile(m, n, 1, "gfx942", MI300X.units, k=k)
    return pick_gemm_tile(m, n, 8 * dtype.itemsize, "gfx942", MI300X.units, k=k, weight=True)


def gemm_operations(
    sizes: tuple[tuple[int, int, int], ...] = PRODUCTS, types: dict[str, torch.dtype] = FLOATS
) -> Iterator[Operation]:
    """Yield products of these sizes and types; those in int8 have a scale for each row and column."""
    for m, n, k in sizes:
        for name, dtype in types.items():
            size, integer, few = dtype.itemsize, dtype == torch.int8, m <= 64 and dtype != torch.int8

            def make(k: int = k, m: int = m, n: int = n, dtype: torch.dtype = dtype) -> Tensors:
                if dtype != torch.int8:
                    return draw(m, k, dtype=dtype), draw(n, k, dtype=dtype, seed=1)
                codes = ((30 * draw(x, k, seed=x)).to(dtype) for x in (m, n))
                return *codes, *(draw(x, dtype=torch.float32, seed=x).abs() for x in (m, n))

            yield Operation(
                f"{'skinny GEMM' if few else 'GEMM'} {name} {m} x {n} x {k}",
                make,
                partial(make, 512 if few else 256, min(m, 256), 256),
                size * (m * k + k * n) + 2 * m * n + 4 * (m + n) * integer,
                2 * m * n * k // 1024,
                scaled_product if integer else lambda a, b: a @ b.T,
                {"ours": partial(our_gemm, tile=gemm_tile(m, n, k, dtype)), "aiter": partial(aiter_gemm, n=n, k=k)},
                lengths=None if few else (512, 1024, k),
                alike={"ours": lambda w, tiles=n // 64: w // tiles * tiles} if few and m <= 32 else {},  # parts of K
            )


def attended(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Return attention in torch."""
    return reference_attention(q, k, v, causal=causal)[0]


def aiter_attention(q: Any, k: Any, v: Any, causal: bool, starts: Any = None, longest: int = 0) -> Any:
    rows = longest or q.shape[2]
    given = (0.0, q.shape[-1] ** -0.5, causal, -1, -1, None, None, True, False, rows, rows, starts, starts)
    if longest:
        return aiter("mha", "_flash_attn_forward")(q, k, v, *given)[0]
    return aiter("mha", "_flash_attn_forward")(*(x.transpose(1, 2) for x in (q, k, v)), *given)[0].transpose(1, 2)


def attended_backward(q: Any, k: Any, v: Any, out: Any, lse: Any, do: Any) -> Any:
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(reference_attention(*given, causal=True)[0], given, do)


def aiter_attention_backward(q: Any, k: Any, v: Any, out: Any, lse: Any, do: Any) -> Any:
    turned = [x.transpose(1, 2) for x in (do, q, k, v, out)]
    gradients, rows = [torch.empty_like(x) for x in turned[1:4]], q.shape[2]
    given = (None, q.shape[3] ** -0.5, None, True, None, None, rows, rows, 0.0)
    backward = aiter("mha_onekernel_bwd", "flash_attn_onekernel_backward")
    backward(*turned, lse, *gradients, *given, USE_INT64_STRIDES=True)
    return [x.transpose(1, 2) for x in gradients]


def of_heads(heads: int, kv_heads: int) -> str:
    return f"{heads}" if kv_heads == heads else f"{heads}/{kv_heads}"


def attention_operations() -> Iterator[Operation]:
    """Yield attention with heads of seven sizes, backward with four, and of packed sequences.

    The last size is that of DeepSeek's latent attention with keys and values written out, whose values are narrower.
    """
    for size, tokens, kv_heads, causal in (
        *((128, 1024, 32, causal) for causal in (False, True)),
        *((size, 512 if size > 128 else 1024, 8, True) for size in (64, 80, 96, 192, 256)),
    ):
        yield forward(4, 32, kv_heads, tokens, (size, size), causal)
    yield forward(4, 16, 16, 512, (192, 128), True)
    for sequences, size, tokens, kv_heads in ((4, 128, 1024, 32), *((8, size, 512, 8) for size in (64, 256))):
        yield backward(sequences, 32, kv_heads, tokens, (size, size))
    yield backward(4, 16, 16, 512, (192, 128))
    yield packed(8, (1024, 640, 256, 128) * 2)


def of_sizes(size: int, values: int) -> str:
    return f"{size}" if values == size else f"{size}, values of {values}"


def forward(batch: int, heads: int, kv_heads: int, tokens: int, sizes: tuple[int, int], causal: bool) -> Operation:
    """Return attention with these sizes of a head, of queries and keys and of values."""
    size, values = sizes

    def make(batch: int = batch, heads: int = heads, kv_heads: int = kv_heads, tokens: int = tokens) -> Tensors:
        shapes = enumerate(((heads, size), (kv_heads, size), (kv_heads, values)))
        return tuple(draw(batch, n, tokens, width, seed=seed) for seed, (n, width) in shapes)

    # Tiles of queries have unequal work. Ours take all heads before the next tile, aiter's those of one batch.
    together, tiles = batch * heads, tokens // (128 if values == size else 256)
    alike = {"ours": lambda n: n // together * together, "aiter": lambda n: n // heads % tiles * heads}
    shape = f"{batch} x {of_heads(heads, kv_heads)} x {tokens} x {of_sizes(*sizes)}"
    return Operation(
        f"attention {'causal ' if causal else ''}bf16 {shape}",
        make,
        partial(make, 1, 2, 1, 256),
        2 * batch * (heads + kv_heads) * tokens * sum(sizes) + 4 * batch * heads * tokens,
        2 * batch * heads * tokens * tokens * sum(sizes) // 1024 // (2 if causal else 1),
        partial(attended, causal=causal),
        {
            "ours": lambda q, k, v: attention_forward(q, k, v, causal=causal)[0],
            "aiter": partial(aiter_attention, causal=causal),
        },
        alike=alike if causal else {},
    )


def backward(batch: int, heads: int, kv_heads: int, tokens: int, sizes: tuple[int, int]) -> Operation:
    """Return the backward pass of causal attention with these sizes of a head, of queries and keys and of values."""
    size, values = sizes

    def make(batch: int = batch, heads: int = heads, kv_heads: int = kv_heads, tokens: int = tokens) -> Tensors:
        shapes = enumerate(((heads, size), (kv_heads, size), (kv_heads, values)))
        q, k, v = (draw(batch, n, tokens, width, seed=seed) for seed, (n, width) in shapes)
        out, lse = reference_attention(q.float(), k.float(), v.float(), causal=True)
        return q, k, v, out.to(BF16), lse, draw(*out.shape, seed=3)

    together, shared, tiles = batch * heads, batch * kv_heads, tokens // (128 if values == size else 64)
    return Operation(
        f"attention backward causal bf16 {batch} x {of_heads(heads, kv_heads)} x {tokens} x {of_sizes(*sizes)}",
        make,
        partial(make, 1, 2, 2 * kv_heads // heads or 1, 256),
        4 * batch * (heads + kv_heads) * tokens * sum(sizes) + 4 * batch * heads * tokens,
        batch * heads * tokens * tokens * (3 * size + 2 * values) // 1024,
        attended_backward,
        {
            "ours": lambda q, k, v, o, lse, do: attention_backward(do, q, k, v, o, lse, causal=True)[:3],
            "aiter": aiter_attention_backward,
        },
        alike={
            "ours": lambda n: n // together * together,
            "ours attention_backward_kv_kernel": lambda n: n // shared * shared,
            "aiter": lambda n: n // kv_heads % tiles * kv_heads,
        },
    )


def packed(kv_heads: int, lengths: tuple[int, ...], heads: int = 32, size: int = 128) -> Operation:
    """Return causal attention of packed sequences, the second half as long as the first."""

    def starts(lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)

    def make(heads: int = heads, kv_heads: int = kv_heads, lengths: tuple[int, ...] = lengths) -> Tensors:
        x = (draw(sum(lengths), n, size, seed=seed) for seed, n in enumerate((heads, kv_heads, kv_heads)))
        return *x, starts(lengths).to("cuda")

    def plain(q: Any, k: Any, v: Any, starts: Any) -> Any:
        parts = zip(*(x.transpose(0, 1).unsqueeze(0).split(starts.diff().tolist(), 2) for x in (q, k, v)), strict=True)
        return torch.cat([attended(*part, causal=True).squeeze(0).transpose(0, 1) for part in parts])

    def ours(q: Any, k: Any, v: Any, starts: Any) -> Any:
        known: Any = (("cu_seqlens", starts), ("max_seqlen", min(longest, len(q))))
        given: dict[str, Any] = {f"{what}_{x}": value for what, value in known for x in "qk"}
        return attention_forward(q, k, v, layout="thd", causal=True, **given)[0]

    longest, tokens, half, turn = max(lengths), sum(lengths), len(lengths) // 2, len(lengths) * heads
    return Operation(
        f"attention packed causal bf16 {tokens} of {len(lengths)} x {heads}/{kv_heads} x {size}",
        make,
        partial(make, 2, 1, (160, 96)),
        4 * (heads + kv_heads) * tokens * size + 4 * heads * tokens,
        2 * heads * sum(n * n for n in lengths) * size // 1024,
        plain,
        {"ours": ours, "aiter": lambda q, k, v, s: aiter_attention(q, k, v, True, s, longest)},
        alike={
            "ours": lambda n: n // turn * turn + n % turn // heads % half * heads,
            "aiter": lambda n: n // heads % (half * longest // 128) * heads,
        },
        indices=(starts(lengths),),
    )


def paged(batch: int, heads: int, kv_heads: int, keys: int, size: int, page: int) -> Operation:
    """Return attention over keys that lie in pages."""

    def make(batch: int = batch, heads: int = heads, kv_heads: int = kv_heads, keys: int = keys) -> Tensors:
        pages = (draw(batch * keys // page, page, kv_heads, size, seed=seed) for seed in (1, 2))
        return draw(batch, heads, size), *pages, *(x.to("cuda") for x in indices(batch, keys)[:2])

    def indices(batch: int = batch, keys: int = keys) -> Tensors:
        return whole(batch, keys // page), whole(batch, first=keys, step=0), whole(batch + 1)

    def plain(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> Any:
        k, v = (x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v))
        return attended(q.unsqueeze(2), k, v, False).squeeze(2)

    def by_aiter(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> Any:
        out, starts = torch.empty_like(q), whole(len(q) + 1).to("cuda")
        most, scale = table.shape[1] * page, q.shape[2] ** -0.5
        given = (starts, 1, lengths, most, scale, True, (-1, -1), table, 0, None, None, None)
        aiter("unified_attention", "unified_attention")(q, k, v, out, *given)
        return out

    return Operation(
        f"paged decode bf16 {batch} x {heads}/{kv_heads} x {keys} x {size}",
        make,
        partial(make, 1, 8, 2, 2048),
        2 * (2 * batch * kv_heads * keys * size + 2 * batch * heads * size) + 4 * batch * (keys // page + 1),
        4 * batch * heads * keys * size // 1024,
        plain,
        {"ours": attention_paged, "aiter": by_aiter},
        indices=indices(),
    )


def latent(batch: int, heads: int, keys: int, c: int = 512, r: int = 64) -> Operation:
    """Return attention over latents that all heads share, of queries in latent space."""

    def make(batch: int = batch, heads: int = heads, keys: int = keys) -> Tensors:
        return draw(batch, heads, c), draw(batch, heads, r, seed=1), draw(batch, keys, c + r, seed=2)

    def plain(q: Any, q_pe: Any, cache: Any) -> Any:
        return (torch.cat([q, q_pe], -1) @ cache.transpose(1, 2) * scale).softmax(-1) @ cache[..., :c]

    def by_aiter(q: Any, q_pe: Any, cache: Any) -> Any:
        (batch, heads, _), keys = q.shape, cache.shape[1]
        parts = min(MI300X.units // (batch * (heads // 16)), keys // 128)  # as many workgroups as compute units
        flat, out = cache.view(batch * keys, 1, c + r), torch.empty_like(q)
        ends, order = whole(batch + 1, step=keys).to("cuda"), whole(batch * keys).to("cuda")
        sums = torch.empty(batch, heads, parts, c + 1, dtype=torch.float32, device="cuda")
        decode = aiter("mla_decode_rope", "decode_attention_fwd_grouped_rope")
        given = (out, ends, order, None, c, r, None, None, sums, parts, scale)
        decode(torch.cat([q, q_pe], -1), flat, flat[..., :c], *given)
        return out

    scale = 192**-0.5
    return Operation(
        f"MLA decode bf16 {batch} x {heads} x {keys} x {c}+{r}",
        make,
        partial(make, 1, 16, 256),
        2 * batch * (keys * (c + r) + heads * (2 * c + r)),
        2 * batch * heads * keys * (2 * c + r) // 1024,
        plain,
        {"ours": lambda q, q_pe, x: launch_mla(q, q_pe, x[..., :c], x[..., c:], None, scale), "aiter": by_aiter},
        indices=(whole(batch + 1, step=keys), whole(batch * keys)),
    )


def latent_prompt(batch: int, heads: int, tokens: int, d: int = 128, r: int = 64, c: int = 512) -> Operation:
    """Return causal attention over latents with the weights of keys and values applied to queries and sums.

    aiter's kernel is the one of its cache, whose new tokens are all; two products by heads stand around it. Its own
    settings have no ``num_stages``, and two would need more LDS than a compute unit has. What torch moves to bring
    its operands into order is not counted.
    """

    def make(batch: int = batch, heads: int = heads, tokens: int = tokens) -> Tensors:
        queries = (draw(batch, tokens, heads, n, seed=n) for n in (d, r))
        return *queries, draw(batch, tokens, c + r), draw(heads, 2 * d, c, seed=1) * c**-0.5

    def on_parts(function: Any, q: Any, q_pe: Any, cache: Any, w: Any) -> Any:
        return function(q, q_pe, cache[..., :c], cache[..., c:], w, causal=True)

    def by_aiter(q: Any, q_pe: Any, cache: Any, w: Any) -> Any:
        rows, latents, by_heads = q.shape[1], cache.flatten(0, 1).unsqueeze(1), aiter(*["batched_gemm_bf16"] * 2)
        settings = aiter("_triton_kernels.extend_attention", "_get_config")(c + r, BF16) | {"num_stages": 1}
        absorbed = by_heads(q.flatten(0, 1).transpose(0, 1), w[:, :d].transpose(1, 2))
        x = torch.cat([absorbed.transpose(0, 1), q_pe.flatten(0, 1)], -1)
        out, keys = torch.empty_like(x[..., :c]), (latents, latents[..., :c])
        starts, none = (
            whole(len(q) + 1, step=rows).to("cuda"),
            torch.zeros(len(q) + 1, dtype=torch.int64, device="cuda"),
        )
        given = (starts, none, none, None, True, None, rows, (d + r) ** -0.5)
        aiter("extend_attention", "extend_attention_fwd")(x, *keys, out, *keys, *given, config=settings)
        return by_heads(out.transpose(0, 1), w[:, d:]).transpose(0, 1).reshape(q.shape)

    ours, theirs = tokens // 64, tokens // 32
    return Operation(
        f"MLA prefill causal bf16 {batch} x {heads} x {tokens} x {c}+{r}",
        make,
        partial(make, 1, 2, 64),
        2 * batch * tokens * (c + r + heads * (2 * d + r)) + 4 * heads * d * c,
        batch * heads * tokens * tokens * (2 * c + r) // 1024,
        partial(on_parts, reference_mla_naive),
        {"ours": partial(on_parts, mla_attention), "aiter": by_aiter},
        alike={"ours": lambda n: n % ours, "aiter": lambda n: n // heads % theirs * heads},
        indices=(whole(batch + 1, step=tokens),),
    )


def operations() -> dict[str, Operation]:
    """Return all operations by name; rows long, and short, where partial sums weigh most."""
    long = (row_operation(n, 8192 if n.startswith("Layer") else 16384) for n in ROWS)
    short = (row_operation(n, 2048) for n in ROWS if "FP8" not in n)
    products = (gemm_operations(), gemm_operations(INT8_PRODUCTS, INT8))
    decode = (paged(16, 32, 8, 8192, 128, 64), latent(16, 16, 8192), latent(16, 128, 8192))
    prompt = (latent_prompt(4, 16, 512),)
    return {op.name: op for ops in (long, short, *products, attention_operations(), decode, prompt) for op in ops}
