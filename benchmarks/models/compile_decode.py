# SPDX-License-Identifier: MIT
"""Decoding at Llama-2-7B's shape, random weights: eager, static cache, compiled; inductor's knobs; TunableOp on/off.

    python -m benchmarks.models.compile_decode --out DIR                          # on a GPU, about 8 minutes
    python -m benchmarks.models.compile_decode --out DIR --device cpu --dry       # small, to test the script
    python -m benchmarks.models.compile_decode --plot                             # draw the stored results again

Every figure is a list of single runs; compute the median from it. Written as JSON with hardware and versions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from rocm_guide.common.host import describe_cpu, host_facts

ROOT = Path(__file__).resolve().parents[2]


def build(layers: int, dry: bool, device: str, dtype):
    """Build a Llama of Llama-2-7B's width with random weights, drawn on the device."""
    import torch
    from transformers import LlamaConfig

    from rocm_guide.models.load import meta_model

    shrink = 16 if dry else 1
    config = LlamaConfig(
        hidden_size=4096 // shrink,
        intermediate_size=11008 // shrink,
        num_attention_heads=32 // min(shrink, 8),
        num_hidden_layers=layers,
        vocab_size=32000 // shrink,
        max_position_embeddings=4096,
    )
    model = meta_model(config, dtype=str(dtype).removeprefix("torch."), attention="sdpa").eval()
    model.to_empty(device=device)
    generator = torch.Generator(device=device).manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.fill_(1)
            else:
                # Larger output weights spread the logits: a greedy choice is then not decided by rounding.
                p.normal_(0, 0.5 if "lm_head" in name else 0.02, generator=generator)
        # Buffers have no weights in a checkpoint: compute them again (the rotary frequencies).
        rotary = model.model.rotary_emb
        fresh = type(rotary)(config)
        for (_, old), (_, new) in zip(rotary.named_buffers(), fresh.named_buffers(), strict=True):
            old.copy_(new)
    return model


def decoding(args, report: dict) -> None:
    """Measure the tokens per second of each way to decode."""
    import torch

    from rocm_guide.tune.compilation.decoder import Decoder, decode_speed

    dtype = torch.float32 if args.dry else torch.bfloat16
    model = build(2 if args.dry else 32, args.dry, args.device, dtype)
    ids = torch.randint(4, model.config.vocab_size, (1, 64), generator=torch.Generator().manual_seed(1)).to(args.device)
    tokens, length = args.tokens, 64 + args.tokens
    ways: dict[str, dict[str, Any]] = {
        "eager, dynamic cache": {"cache": "dynamic"},
        "eager, static cache": {},
        "compiled, static cache": {"mode": "default"},
        "compiled, static cache, GPU graph": {"mode": "reduce-overhead"},
        "compiled, dynamic cache": {"cache": "dynamic", "mode": "default", "dynamic": None, "fullgraph": False},
    }
    reference, rows = None, []
    for name, options in ways.items():
        torch._dynamo.reset()
        started = time.time()
        r = decode_speed(Decoder(model, 1, length, **options), ids, tokens, runs=args.runs)
        reference = r["tokens"] if reference is None else reference
        same = (r["tokens"] == reference).long()
        rows.append(
            {
                "way": name,
                "tokens_per_s": r["tokens_per_s"],
                "median": statistics.median(r["tokens_per_s"]),
                "warmup": str(r["warmup"]),
                "warmup_s": r["warmup"].seconds,
                "graphs": r["warmup"].graphs,
                "recompilations": r["timed"].graphs,
                "breaks": r["warmup"].breaks,
                "kernels": r["warmup"].kernels,
                "same_tokens": bool(same.all()),
                "same_prefix": int(same.cumprod(1).sum()),
                "seconds": round(time.time() - started, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    report["decode"] = {
        "batch": 1,
        "prompt": 64,
        "tokens": tokens,
        "dtype": str(dtype),
        "rows": rows,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    # Rounding: the compiler fuses and keeps more digits. With the casts of eager mode the tokens must agree.
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    with inductor.patch(emulate_precision_casts=True):
        r = decode_speed(Decoder(model, 1, length, mode="default"), ids, tokens, runs=1, warmup=1)
    same = (r["tokens"] == reference).long()
    report["decode"]["emulated_casts"] = {"same_tokens": bool(same.all()), "same_prefix": int(same.cumprod(1).sum())}
    print(json.dumps(report["decode"]["emulated_casts"]), flush=True)


def same_tokens_fp32(args, report: dict) -> None:
    """Ask the same question where rounding cannot decide: float32, four layers of the same width."""
    import torch

    from rocm_guide.tune.compilation.decoder import Decoder

    model = build(2 if args.dry else 4, args.dry, args.device, torch.float32)
    ids = torch.randint(4, model.config.vocab_size, (2, 64), generator=torch.Generator().manual_seed(2)).to(args.device)
    eager = Decoder(model, 2, 192, cache="dynamic").run(ids, 128)
    torch._dynamo.reset()
    compiled = Decoder(model, 2, 192, mode="default").run(ids, 128)
    report["float32"] = {
        "layers": len(model.model.layers),
        "tokens": eager.numel(),
        "same_tokens": bool((eager == compiled).all()),
    }
    print(json.dumps(report["float32"]), flush=True)


def knobs(args, report: dict) -> None:
    """Measure each inductor knob alone, on one decoding step of two layers of full width."""
    import torch
    from transformers import StaticCache

    from rocm_guide.tune.compilation.knobs import measure_knobs

    dtype = torch.float32 if args.dry else torch.bfloat16
    model = build(1 if args.dry else 2, args.dry, args.device, dtype)
    token = torch.full((1, 1), 5, device=args.device)

    def make():
        past = StaticCache(config=model.config, max_cache_len=256)
        with torch.no_grad():
            model(token.expand(1, 64), past_key_values=past, use_cache=True)

        def step():
            return model(token, past_key_values=past, use_cache=True).logits

        return step

    report["knobs"] = {
        "what": f"one decoding step, {len(model.model.layers)} layers, batch 1, static cache of 256",
        "rows": measure_knobs(
            make, runs=args.runs * 10, device=args.device, progress=lambda name: print("knob", name, flush=True)
        ),
    }
    for row in report["knobs"]["rows"]:
        ms = statistics.median(row["ms"]) if "ms" in row else None
        print(json.dumps({**row, "ms": ms}), flush=True)


def kernels(args, report: dict) -> None:
    """Write the Triton sources that inductor wrote for one decoding step of one layer."""
    import torch
    from torch._inductor.utils import run_and_get_code
    from transformers import StaticCache

    model = build(1, args.dry, args.device, torch.float32 if args.dry else torch.bfloat16)
    token = torch.full((1, 1), 5, device=args.device)
    past = StaticCache(config=model.config, max_cache_len=256)
    with torch.no_grad():
        model(token.expand(1, 64), past_key_values=past, use_cache=True)
        torch._dynamo.reset()
        compiled = torch.compile(lambda: model(token, past_key_values=past, use_cache=True).logits)
        _, code = run_and_get_code(compiled)
    (args.out / "output_code.py.txt").write_text("\n# ---- next graph ----\n".join(code))
    report["output_code"] = {"graphs": len(code), "characters": sum(map(len, code))}
    from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, inspect_kernels

    x = torch.empty(64, 4096, dtype=torch.bfloat16, device="meta")
    own = extract_kernels(inductor_code(lambda a, b: torch.nn.functional.silu(a) * b, [x, x]))
    found = [k for text in code for k in extract_kernels(text)]
    report["gfx942"] = {
        "written for MI300X here": [k.name for k in own],
        "its choices": [(r.constants, r.options, r.occupancy.waves_per_simd) for r in inspect_kernels(own)],
        "kernels of this GPU's run": len(found),
        "compiled for gfx942": len(inspect_kernels(found[:6])) if found else 0,
    }
    print(json.dumps(report["gfx942"], default=str)[:1500], flush=True)
    print(json.dumps(report["output_code"]), flush=True)


def offline(args, report: dict) -> None:
    """Check that PyTorch's offline tuner takes every line of a model's plan, written as an untuned file."""
    import torch
    from transformers import LlamaConfig

    from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES
    from rocm_guide.tune.tunableop.files import explain_validators, missing, read_file, write_file
    from rocm_guide.tune.tunableop.planner import plan
    from rocm_guide.tune.tunableop.tuning import tune_file

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_hidden_layers=2, attention_bias=True
    )
    found = plan(
        config, batch=4, prompt=[20, 40], new_tokens=8, pad=8, cache="static", attention="eager", rules=CUDA_RULES
    )
    untuned = write_file(args.out / "untuned.csv", [e.gemm for e in found.gemms.values()])
    results = args.out / "results.csv"
    started = time.time()
    done = tune_file(untuned, results, gpus=1)
    left = missing(read_file(untuned), done)
    here = dict(torch.cuda.tunable.get_validators())
    report["offline"] = {
        "planned": len(found.gemms),
        "tuned": len(done.tuned),
        "seconds": round(time.time() - started, 1),
        "left": [g.line() for g in left.gemms.values()],
        "extra": [k for k in done.gemms if k not in found.gemms],
        "results": results.read_text(),
        "refused": explain_validators(done.validators, here),
    }
    print(json.dumps(report["offline"])[:3000], flush=True)


def plot() -> None:
    """Plot the tokens per second of each way to decode on every GPU with a stored result,
    and the share of the roofline.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from benchmarks.timing import RESULTS, save_plot
    from cdna.predict.specs import find_gpu
    from rocm_guide.common.plots import PALETTE, house_style

    house_style()
    stored = [json.loads(p.read_text()) for p in sorted(RESULTS.glob("compile_decode*.json"))]
    order = [row["way"] for row in stored[0]["decode"]["rows"]]
    order.sort(key=lambda way: ("compiled" in way, "static" in way, "graph" in way))
    fig, ax = plt.subplots(figsize=(8.6, 4.4))
    height = 0.8 / len(stored)
    for i, result in enumerate(stored):
        runs = {row["way"]: row["tokens_per_s"] for row in result["decode"]["rows"]}
        gpu = find_gpu(result["hardware"])
        if gpu is None:
            raise SystemExit(f"{result['hardware']}: not a GPU of the table; its roof is not known")
        roof = gpu.bandwidth_tb_s * 1e12 / (2 * 6738415616)
        for j, way in enumerate(order):
            value, half = statistics.median(runs[way]), (max(runs[way]) - min(runs[way])) / 2
            y = j + (i - (len(stored) - 1) / 2) * height
            ax.barh(y, value, height * 0.92, xerr=half, color=PALETTE[i], label=result["hardware"] if not j else None)
            ratio = value / statistics.median(runs["eager, dynamic cache"])
            text = f"  {value:.0f}  ({ratio:.2f}x; {value / roof:.0%} of roofline)"
            ax.text(value + half, y, text, va="center", fontsize=9)
    ax.set_yticks(range(len(order)), order)
    ax.invert_yaxis()
    ax.set_xlim(0, 310)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper right")
    ax.set_title("Llama-2-7B decoding, bf16, batch 1, torch 2.11")
    ax.set_xlabel("tokens/s (median of 3 runs, half the range). Roofline: every weight read once per token")
    save_plot("compile_decode", fig, RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parts", default="decoding,same_tokens_fp32,knobs,kernels,offline")
    args = parser.parse_args()
    if args.plot:
        plot()
        return
    if args.out is None:
        parser.error("--out DIR: the folder for the results")
    import platform

    import torch
    import transformers
    import triton

    args.out.mkdir(parents=True, exist_ok=True)
    gpu = args.device.startswith("cuda")
    report: dict = {
        "hardware": torch.cuda.get_device_name() if gpu else describe_cpu(),
        "host": host_facts(),
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "triton": triton.__version__,
            "python": platform.python_version(),
        },
        "dry": args.dry,
    }
    parts = {
        "decoding": decoding,
        "same_tokens_fp32": same_tokens_fp32,
        "knobs": knobs,
        "kernels": kernels,
        "offline": offline,
    }
    for part in args.parts.split(","):
        started = time.time()
        try:
            parts[part](args, report)
        except (RuntimeError, ValueError, TypeError, AttributeError, ImportError, OSError, AssertionError) as e:
            report[part] = {"error": f"{type(e).__name__}: {e}"}
            print("FAILED", part, type(e).__name__, str(e)[:500], flush=True)
        report.setdefault("seconds", {})[part] = round(time.time() - started, 1)
        # After each part: a run that is cut off still leaves what it measured.
        (args.out / "compile_decode.json").write_text(json.dumps(report, indent=1, default=str))
        if gpu:
            torch.cuda.empty_cache()
    print(json.dumps(report["seconds"]), flush=True)


if __name__ == "__main__":
    main()
