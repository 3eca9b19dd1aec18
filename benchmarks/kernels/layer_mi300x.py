# SPDX-License-Identifier: MIT
"""Where would the time of one layer go on an MI300X: Llama-3-8B, Qwen3-30B-A3B and DeepSeek-V3, prefill and decode?

    python -m benchmarks.kernels.layer_mi300x [--only TEXT]

Nothing is measured on a GPU. A layer is cut into parts, bf16, the whole of it on one GPU: the prompt of one sequence
(4,096 tokens), and a token each of 64 sequences that have 8,192 keys. Norms, attention and experts are our kernels, by
the model of `rocm_guide.observe.predict` (gfx942 code, one workgroup executed) at the rates that people reach
(`cdna.predict.achieved.likely`). A product is a good library's (`product_time`, held against hipBLASLt's published
points); torch's small operators are charged by bytes and launches. Beside that stand the floor of each part and of the
layer (bytes at 5.3 TB/s or products at 1,307 TFLOPS, whichever takes longer) and, where peers_mi300x.json has a case
like the part, what the best public kernel takes of the time of ours there. `--only TEXT` works out the layers whose
names hold TEXT and keeps the others. Writes results/layer_mi300x.json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.kernels.peers_mi300x import RESULTS as PEERS
from cdna.dry_run import dry_run
from cdna.predict.achieved import likely, product_time
from cdna.predict.specs import gpu
from course.table_measure import compiled_sources, digest_of
from rocm_guide.common.base import write_text
from rocm_guide.kernels.attention import TILES, attention_forward
from rocm_guide.kernels.decode import DECODE_CONFIGS, attention_decode
from rocm_guide.kernels.experts import experts, pick_expert_tile, sort_by_expert
from rocm_guide.kernels.mla_decode import MLA_CONFIGS, mla_decode
from rocm_guide.kernels.rms_norm import rms_norm_forward
from rocm_guide.observe.predict import predict_launches

RESULTS = PEERS.with_name("layer_mi300x.json")
MI300X = gpu("MI300X")
PHASES = {"prefill": (4096, 4096), "decode": (64, 8192)}  # rows of activations; keys that each of them sees at most
SHORT = (512, 1024)  # keys that are executed of a longer loop over them
LATENT = "attention causal bf16 4 x 16 x 512"  # the case of the peers with the shapes of latent attention
LEFT_OUT = (
    "the code of a product's loop, what torch's small operators do beside moving bytes, lines fetched twice, compute "
    "units in each other's way, and gaps between kernels"
)


@dataclass(frozen=True)
class Model:
    """The sizes of one layer, as the model's config.json has them."""

    hidden: int
    heads: int
    kv_heads: int = 0
    size: int = 128  #: of a head
    inner: int = 0  #: of the dense MLP, or of the expert that all tokens share
    experts: tuple[int, int, int] = (0, 0, 0)  #: how many, how many a token, inner size
    norms_heads: bool = False
    latents: tuple[int, int, int] = (0, 0, 0)  #: of queries, of keys, rotary


MODELS = {
    "Llama-3-8B": Model(4096, 32, 8, inner=14336),
    "Qwen3-30B-A3B": Model(2048, 32, 4, experts=(128, 8, 768), norms_heads=True),
    "DeepSeek-V3": Model(7168, 128, inner=2048, experts=(256, 8, 2048), latents=(1536, 512, 64)),
}


@dataclass(frozen=True)
class Part:
    """One step of a layer.

    Attributes:
        group: what it is counted with.
        nbytes, flops: what it must move, and multiply on the matrix cores, at least.
        way: makes a call of our kernel; None: torch's operators, by their bytes.
        product: M, N, K, if it is one.
        keys: of attention: how many a query walks over; its ways take a shorter number, of which two are executed.
        like: the case of peers_mi300x.json that is of its kind, if there is one.
        launches: of torch's operators.
        share: how much of the executed work there is. Of the experts' tiles some have nothing to do; and of the keys of
            a prompt, which are executed without a mask, a query sees half, and half a tile.
        kept: bytes of weights and cache among ``nbytes``, which a layer moves even if all else stayed in registers.
    """

    name: str
    group: str
    nbytes: int
    flops: int = 0
    way: Callable[..., list[Callable[[], Any]]] | None = None
    product: tuple[int, int, int] | None = None
    keys: int = 0
    like: str = ""
    launches: int = 0
    share: float = 1.0
    kept: int = 0


def empty(*shape: int) -> torch.Tensor:
    """Return a tensor on the GPU, which has no memory where nothing is executed."""
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda")


def product(name: str, rows: int, n: int, k: int) -> Part:
    """Return a product with a weight."""
    nbytes = 2 * (rows * k + n * k + rows * n)
    return Part(name, "GEMMs", nbytes, 2 * rows * n * k, product=(rows, n, k), kept=2 * n * k)


def norm(name: str, rows: int, columns: int) -> Part:
    """Return an RMSNorm."""

    def make() -> list[Callable[[], Any]]:
        return [partial(rms_norm_forward, empty(rows, columns), empty(columns))]

    return Part(name, "norms", 4 * rows * columns, way=make, like="RMSNorm bf16 2048 x 2048")


def small(name: str, nbytes: int, launches: int = 1) -> Part:
    """Return operators of torch that only move bytes."""
    return Part(name, "small operators", nbytes, launches=launches)


def dense_attention(m: Model, rows: int, keys: int) -> Iterator[Part]:
    """Yield attention with a KV cache of whole heads."""
    q, kv, batch = m.heads * m.size, m.kv_heads * m.size, 1 if rows == keys else rows
    yield product("QKV", rows, q + 2 * kv, m.hidden)
    if m.norms_heads:
        yield norm("norm of queries and keys", rows * (m.heads + m.kv_heads), m.size)
    yield small("RoPE, cache", 2 * rows * (2 * q + 4 * kv), 3)

    def prompt(short: int) -> list[Callable[[], Any]]:
        k, v = (empty(1, m.kv_heads, short, m.size) for _ in range(2))
        return [partial(attention_forward, empty(1, m.heads, rows, m.size), k, v)]

    def token(short: int) -> list[Callable[[], Any]]:
        k, v = (empty(1, short, m.kv_heads, m.size).expand(rows, -1, -1, -1) for _ in range(2))
        x = empty(rows, m.heads, m.size)
        return [partial(attention_decode, x, k, v, parts=DECODE_CONFIGS["gfx942"].parts(x, rows * m.kv_heads, keys))]

    if batch == 1:
        share, like = 0.5 + 0.5 * TILES["gfx942"][m.size][0].m / keys, "attention causal bf16 4 x 32 x 1024 x 128"
        nbytes, flops = 4 * rows * (q + kv), 2 * rows * keys * q
        yield Part("attention", "attention", nbytes, flops, prompt, keys=keys, share=share, like=like)
    else:
        cache, like = 4 * rows * keys * kv, "paged decode bf16 16 x 32/8 x 8192 x 128"
        nbytes, flops = cache + 4 * rows * q, 4 * rows * keys * q
        yield Part("attention", "attention", nbytes, flops, token, keys=keys, like=like, kept=cache)
    yield product("output", rows, m.hidden, q)


def latent_attention(m: Model, rows: int, keys: int) -> Iterator[Part]:
    """Yield attention with a cache of latents; a prompt's keys and values are written out, of 192 and 128 numbers."""
    of_q, c, r = m.latents
    batch = 1 if rows == keys else rows
    yield product("queries' latents", rows, of_q, m.hidden)
    yield norm("norm of queries' latents", rows, of_q)
    yield product("queries", rows, m.heads * (m.size + r), of_q)
    yield product("keys' latents", rows, c + r, m.hidden)
    yield norm("norm of keys' latents", rows, c)
    yield small("RoPE, cache", 2 * rows * (2 * m.heads * r + 4 * (c + r)), 3)
    wide, weight, cache = m.size + r, 2 * m.heads * 2 * m.size * c, 2 * batch * keys * (c + r)

    def prompt(short: int) -> list[Callable[[], Any]]:
        k, v = (empty(1, m.heads, short, width) for width in (wide, m.size))
        return [partial(attention_forward, empty(1, m.heads, rows, wide), k, v)]

    def token(short: int) -> list[Callable[[], Any]]:
        store = empty(1, short, c + r).expand(batch, -1, -1)
        queries, most = (empty(rows, m.heads, m.size), empty(rows, m.heads, r)), max(MLA_CONFIGS["gfx942"])
        given = (*queries, store[..., :c], store[..., c:], empty(m.heads, 2 * m.size, c))
        parts = MLA_CONFIGS["gfx942"][most].parts(queries[0], batch * math.ceil(m.heads / most), keys)
        return [partial(mla_decode, *given, parts=parts)]

    if batch == 1:
        yield product("keys and values", rows, 2 * m.heads * m.size, c)
        yield small("keys with their rotary part", 2 * rows * m.heads * (m.size + wide))
        share, like = 0.5 + 0.5 * TILES["gfx942"][wide][0].m / keys, f"{LATENT} x {wide}, values of {m.size}"
        nbytes, flops = 4 * rows * m.heads * (wide + m.size), rows * keys * m.heads * (wide + m.size)
        yield Part("attention", "attention", nbytes, flops, prompt, keys=keys, share=share, like=like)
    else:
        nbytes = cache + weight + 2 * rows * m.heads * (2 * m.size + r)
        flops = 2 * m.heads * (rows * 2 * m.size * c + rows * keys * (2 * c + r))
        yield Part("attention", "attention", nbytes, flops, token, keys=keys, kept=weight + cache)
    yield product("output", rows, m.hidden, m.heads * m.size)


class Operators(TorchDispatchMode):
    """Counts torch's operators that launch something: those that return no view and no empty tensor."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        self.count += not (func.is_view or func.overloadpacket.__name__.startswith(("empty", "lift_fresh", "detach")))
        return func(*args, **(kwargs or {}))


def mixture(m: Model, rows: int) -> Iterator[Part]:
    """Yield router and experts; the router chooses at random, and nobody is chosen more often than by chance."""
    number, each, inner = m.experts
    torch.manual_seed(0)
    chosen = torch.rand(rows, number).topk(each).indices
    block = pick_expert_tile(rows * each, number, "gfx942").bm
    with Operators() as sorting:
        _, owner = sort_by_expert(chosen, number, block)
    used, pairs = len(chosen.unique()), rows * each

    def make() -> list[Callable[[], Any]]:
        shapes = ((2 * inner, m.hidden), (m.hidden, inner))
        gate_up, down = (empty(1, *shape).expand(number, -1, -1) for shape in shapes)
        index = torch.empty(rows, each, dtype=torch.int64, device="cuda")
        return [partial(experts, empty(rows, m.hidden), gate_up, down, index, empty(rows, each))]

    yield product("router", rows, number, m.hidden)
    yield small("choice of experts", 2 * rows * number * 3, 3)
    weights, flops = 2 * used * 3 * inner * m.hidden, 2 * pairs * 3 * inner * m.hidden
    share = float((owner < number).float().mean())
    between = 2 * pairs * 2 * (m.hidden + inner)
    yield Part("experts", "experts", weights + between, flops, make, share=share, kept=weights)
    yield small("sort by expert, sum of experts", 2 * (pairs + rows) * m.hidden, sorting.count + 2)


def layer(m: Model, phase: str) -> list[Part]:
    """Return the parts of one layer."""
    rows, keys = PHASES[phase]
    attend = latent_attention if m.latents[0] else dense_attention
    parts = [norm("norm before attention", rows, m.hidden), *attend(m, rows, keys)]
    parts += [small("residual", 6 * rows * m.hidden), norm("norm before MLP", rows, m.hidden)]
    if m.inner:
        parts += [
            product("gate and up", rows, 2 * m.inner, m.hidden),
            small("SwiGLU", 6 * rows * m.inner),
            product("down", rows, m.hidden, m.inner),
        ]
    if m.experts[0]:
        parts += mixture(m, rows)
    return [*parts, small("residual after MLP", 6 * rows * m.hidden)]


def floor_us(nbytes: int, flops: int) -> float:
    """Return the least microseconds: memory or matrix cores, at their peaks."""
    return max(nbytes / MI300X.bandwidth_tb_s, flops / MI300X.peak_tflops("bf16")) / 1e6


def calls_of(part: Part) -> list[Callable[[], Any]]:
    """Return what our kernels are called with; attention over many keys as two calls, over few."""
    assert part.way is not None
    return [lambda n=n: part.way(n)[0]() for n in SHORT] if part.keys else [lambda: part.way()[0]()]


def source_of(part: Part) -> str:
    """Return a digest of the kernels, types and options of a part. Nothing is compiled."""
    with dry_run("gfx942", device="meta"), compiled_sources(skip=True) as seen:
        calls_of(part)[-1]()
    return digest_of(seen)


def ours(part: Part) -> dict[str, Any]:
    """Return the likely time of our kernels, and what limits it."""
    found = [predict_launches(call, part.nbytes) for call in calls_of(part)]
    parts = dict(found[-1].parts)
    for n in parts if part.keys else ():
        parts[n] += (parts[n] - found[0].parts[n]) / (SHORT[1] - SHORT[0]) * (part.keys - SHORT[1])
    parts = {n: us * (part.share if n != "HBM" else 1) for n, us in parts.items()}
    matrix = min(part.flops / MI300X.peak_tflops("bf16") / 1e6, max(parts.values()))
    time = likely(parts, matrix=matrix, launches=len(found[0].launches))
    kernels = [launched.kernel for launched in found[0].launches]
    return {"us": round(time.microseconds, 2), "limit": time.limit, "kernels": kernels, "source": source_of(part)}


def row_of(part: Part, peers: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a part."""
    floor = round(floor_us(part.nbytes, part.flops), 2)
    row: dict[str, Any] = {"name": part.name, "group": part.group, "floor_us": floor}
    if part.way:
        row |= ours(part)
    elif part.product:
        time = likely(product_time(*part.product, "bf16"))
        row |= {"us": round(time.microseconds, 2), "limit": time.limit, "product": part.product}
    else:
        time = likely({"HBM": part.nbytes / MI300X.bandwidth_tb_s / 1e6}, launches=part.launches)
        row |= {"us": round(time.microseconds, 2), "limit": "HBM", "launches": part.launches}
    if part.like:
        stored = peers[part.like]
        best = min((library for library in stored if library != "ours"), key=lambda n: stored[n]["likely_us"])
        row["peer"] = {"library": best, "case": part.like}
        row["peer"]["times"] = round(stored[best]["likely_us"] / stored["ours"]["likely_us"], 3)
    return row


def main() -> None:
    """Work out the layers, print a line for each part, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="layers whose names hold this")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    stored = json.loads(PEERS.read_text("utf-8"))
    layers: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))["layers"] if only else {}
    for name, model in MODELS.items():
        for phase in PHASES:
            if only not in f"{name}, {phase}":
                continue
            parts, rows = layer(model, phase), []
            for part in parts:
                rows.append(row_of(part, stored["rows"]))
                print(f"{name}, {phase}: {rows[-1]}", flush=True)
            ends = 4 * PHASES[phase][0] * model.hidden
            nbytes, flops = sum(p.kept for p in parts) + ends, sum(p.flops for p in parts)
            layers[f"{name}, {phase}"] = {
                "us": round(sum(row["us"] for row in rows), 1),
                "floor_us": round(floor_us(nbytes, flops), 1),
                "gb": round(nbytes / 1e9, 3),
                "tflop": round(flops / 1e12, 4),
                "parts": rows,
            }
            write_text(RESULTS, json.dumps(table(layers, stored["versions"]), indent=1) + "\n")


def table(layers: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """Return what is written."""
    what = (
        "Computed by a model, not measured: one layer on one MI300X, bf16. prefill: 4,096 tokens of one sequence; "
        "decode: one token each of 64 sequences with 8,192 keys. us: likely microseconds. floor_us: bytes at 5.3 TB/s "
        "or products at 1,307 TFLOPS, whichever is longer; of a layer: weights and cache once, its input and output. "
        "Products are a good library's, the rest our kernels and torch's. peer: the best public kernel of a like case, "
        "and how many times as long as ours it takes there."
    )
    names = [f"{model}, {phase}" for model in MODELS for phase in PHASES]
    found = {name: layers[name] for name in names if name in layers}
    return {"question": what, "left_out": LEFT_OUT, "versions": versions, "layers": found}


if __name__ == "__main__":
    main()
