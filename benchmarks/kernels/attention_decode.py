# SPDX-License-Identifier: MIT
"""Decoding one token over a long cache: ours against SDPA's back ends, as a share of this GPU's copy bandwidth.

fp16 over 1k to 128k keys at batch 1 and 16, with 32 query heads on 8 and on 32 KV heads of 128; at 32k keys also bf16,
head sizes 64 and 256, uneven lengths, pages of 16 keys, and int8 and int4 caches. CUDA graphs, caches in turn so that
nothing is found in L2, medians; see benchmarks/timing.py. "SDPA, grouped" folds the query heads of a KV head into rows
by hand, which is as far as SDPA can be helped.

    python -m benchmarks.kernels.attention_decode            # measure, write results/attention_decode.json and plots
    python -m benchmarks.kernels.attention_decode --quick    # 32k keys only
    python -m benchmarks.kernels.attention_decode --plot     # only draw the plots again
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import (
    RESULTS,
    copies_past_cache,
    copy_bandwidth,
    plot_by_size,
    save,
    save_plot,
    tensors,
    time_graph,
)

KEYS = [1 << n for n in range(10, 18)]
LONG = 32768
BACKENDS = {
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA default": None,
}


def sdpa(q, k, v, backend, grouped):
    """SDPA on (batch, heads, size) queries and (batch, keys, KV heads, size) caches."""
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    rows = q.unflatten(1, (k.shape[1], -1)) if grouped else q[:, :, None]
    gqa = rows.shape[1] != k.shape[1]

    def call():
        if backend is None:
            return F.scaled_dot_product_attention(rows, k, v, enable_gqa=gqa)
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(rows, k, v, enable_gqa=gqa)

    return call


def caches(batch, keys, heads, width, dtype):
    copies = copies_past_cache(4 * batch * keys * heads * width)
    return [tensors((batch, keys, heads, width), dtype, copies, seed=s) for s in (1, 2)]


def check(q, k, v):
    """Ours against float64 on one sequence and one group, before anything is timed."""
    from rocm_guide.kernels.decode import attention_decode, reference_attention_decode

    group = q.shape[1] // k.shape[2]
    got = attention_decode(q, k, v)[:1, :group].double()
    wanted = reference_attention_decode(*(x.double() for x in (q[:1, :group], k[:1, :, :1], v[:1, :, :1])))
    assert float((got - wanted).abs().max()) <= 0.02 * float(wanted.abs().max()), "wrong result"


def measure(batch, keys, q_heads, heads, width=128, dtype=torch.float16, peers=True):
    """Microseconds of every contender, and the bytes of K and V."""
    from rocm_guide.kernels.decode import attention_decode

    k, v = caches(batch, keys, heads, width, dtype)
    q = tensors((batch, q_heads, width), dtype, 1)[0]
    nbytes, found = 4 * batch * keys * heads * width, {}
    check(q, k[0], v[0])
    ways = {"ours": lambda i: lambda: attention_decode(q, k[i], v[i])}
    for name, backend in BACKENDS.items() if peers else ():
        ways[name] = lambda i, b=backend: sdpa(q, k[i], v[i], b, False)
        if heads != q_heads:
            ways[f"{name}, grouped"] = lambda i, b=backend: sdpa(q, k[i], v[i], b, True)
    for name, make in ways.items():
        try:
            t = time_graph(make, nbytes)
            found[name] = [round(t.us, 2), round(t.spread, 2)]
        except Exception as e:  # noqa: BLE001 - a back end that refuses must not end the others
            print(f"  {name}: {type(e).__name__}: {str(e)[:90]}".replace("\n", " "), flush=True)
            torch.cuda.synchronize()
    return found, nbytes


def variants(batch):
    """At 32k keys: uneven lengths, pages, int8, int4. (label, {way: [us, spread]}, bytes that must be read.)"""
    from rocm_guide.kernels.decode import attention_decode
    from rocm_guide.kernels.decode_int4 import attention_decode_int, quantize_kv
    from rocm_guide.kernels.paged import attention_paged

    shape, row = (batch, LONG, 8, 128), 8 * 128 * 4
    k, v = caches(*shape, torch.float16)
    copies, q = k.shape[0], tensors((batch, 32, 128), torch.float16, 1)[0]

    def timed(make, nbytes):
        t = time_graph(make, nbytes)
        return {"ours": [round(t.us, 2), round(t.spread, 2)]}

    if batch > 1:
        lengths = torch.linspace(LONG // 16, LONG, batch, device="cuda").int()
        nbytes = int(lengths.sum()) * row
        yield (
            "uneven lengths",
            timed(lambda i: lambda: attention_decode(q, k[i], v[i], lengths=lengths), nbytes),
            nbytes,
        )
    full = torch.full((batch,), LONG, dtype=torch.int32, device="cuda")
    nbytes = batch * LONG * row
    for page in (16, 64):
        table = torch.randperm(batch * LONG // page, device="cuda").int().view(batch, -1)
        pages = [x.view(copies, -1, page, 8, 128) for x in (k, v)]

        def paged(i, p=pages, t=table):
            return lambda: attention_paged(q, p[0][i], p[1][i], t, full)

        yield f"pages of {page}", timed(paged, nbytes), nbytes
    for bits in (8, 4):
        kc, kg = quantize_kv(k[0], bits)
        more = range(copies_past_cache(2 * (kc.numel() + 4 * kg.numel())))
        sets = [(kc.clone(), kc.clone(), kg.clone(), kg.clone()) for _ in more]
        nbytes = 2 * (kc.numel() + 4 * kg.numel())

        def stored(i, s=sets):
            return lambda: attention_decode_int(q, *s[i])

        yield f"int{bits}", timed(stored, nbytes), nbytes


def show(r):
    ours, others = r["us"]["ours"][0], {n: t[0] for n, t in r["us"].items() if n != "ours"}
    text = f"{r['label']:<16} batch {r['batch']:>2} {r['keys']:>6} keys {r['q_heads']}/{r['heads']} x {r['width']}: "
    text += (
        f"{ours:8.1f} us {r['bytes'] / ours / 1e3:5.0f} GB/s = {r['bytes'] / ours / 1e3 / r['copy_gb_s']:4.0%} of copy"
    )
    if others:
        best = min(others, key=lambda n: others[n])
        text += f" | best peer {best} {others[best]:8.1f} us: {others[best] / ours:.2f}x"
        text += "" if others[best] >= ours else "  BEHIND"
    print(text, flush=True)


def plots(data, folder):
    """GB of K and V per second over the number of keys; of each back end the better of grouped and not grouped."""
    for batch in (1, 16):
        rows = [r for r in data["results"] if (r["label"], r["batch"], r["width"]) == ("fp16", batch, 128)]
        keys, panels = sorted({r["keys"] for r in rows}), {}
        for heads in (8, 32):
            found = {r["keys"]: r for r in rows if r["heads"] == heads}
            title = f"32 query heads on {heads} KV heads"
            panels[title] = {name: [float("nan")] * len(keys) for name in ("SDPA flash", "SDPA cuDNN", "ours")}
            for name, n in itertools.product(panels[title], found):
                times = [t[0] for way, t in found[n]["us"].items() if way.startswith(name)]
                if times:
                    panels[title][name][keys.index(n)] = found[n]["bytes"] / min(times) / 1e3
        if len(keys) > 1:
            fig = plot_by_size(
                panels,
                [f"{k // 1024}k" for k in keys],
                x="keys in the cache",
                columns=2,
                y="GB of K and V per second",
                title=f"Decoding, batch {batch}, fp16, heads of 128",
                hardware=f"{data['hardware']}, triton {data['triton']}",
                ceiling={"copy of 1 GiB": data["copy_gb_s"]},
            )
            print(*save_plot(f"attention_decode_batch_{batch}", fig, folder))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--out", default="", help="folder; benchmarks/results if empty")
    args = parser.parse_args()
    folder = Path(args.out) if args.out else RESULTS
    warnings.filterwarnings("ignore")  # SDPA explains at length why a back end refuses
    if not args.plot:
        began, copy, results = time.perf_counter(), copy_bandwidth(), []
        print(f"copy of 1 GiB: {copy:.0f} GB/s", flush=True)

        def note(label, timed, shape, width=128):
            """Show and save what measure() gave for a shape (batch, keys, query heads, KV heads)."""
            us, nbytes = timed
            row = {"label": label, **dict(zip(("batch", "keys", "q_heads", "heads"), shape, strict=True))}
            results.append({**row, "width": width, "bytes": nbytes, "us": us, "copy_gb_s": round(copy)})
            show(results[-1])
            save(
                "attention_decode",
                {
                    "unit": "microseconds: median, half the interquartile range",
                    "copy_gb_s": round(copy),
                    "results": results,
                },
                folder,
            )

        first = [(b, LONG, 32, h) for h in (8, 32) for b in (1, 16)]
        rest = [(b, n, 32, h) for n in KEYS if n != LONG for h in (8, 32) for b in (1, 16) if b * n * h <= 1 << 24]

        def dense(shape):
            try:
                note("fp16", measure(*shape), shape)
            except torch.cuda.OutOfMemoryError as e:
                print(f"{shape}: {str(e)[:80]}", flush=True)
            torch.cuda.empty_cache()

        for shape in first:
            dense(shape)
        for batch in (1, 16):
            shape = (batch, LONG, 32, 8)
            for label, us, nbytes in variants(batch):
                note(label, (us, nbytes), shape)
            torch.cuda.empty_cache()
            note("bf16", measure(*shape, dtype=torch.bfloat16), shape)
            for width in (64, 256):
                note("fp16", measure(*shape, width), shape, width)
            torch.cuda.empty_cache()
        for shape in () if args.quick else rest:
            dense(shape)
        print(f"({time.perf_counter() - began:.0f} s)")
    plots(json.loads((folder / "attention_decode.json").read_text()), folder)


if __name__ == "__main__":
    main()
