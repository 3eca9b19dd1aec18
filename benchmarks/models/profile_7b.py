# SPDX-License-Identifier: MIT
"""Profile prefill, decode and a training step of a Llama-2-7B shape with random weights; keep small traces.

    PYTHONPATH=. python -m benchmarks.models.profile_7b --out OUT            # a GPU, about 3 minutes
    PYTHONPATH=. python -m benchmarks.models.profile_7b --out OUT --tiny     # a toy shape on a CPU, to try the script

Writes profile_7b.json (times by slice for every batch size, profile A against profile B, the cross-check of our totals
with torch's own) and one gzipped trace per kind of step. Random weights change no kernel and no time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path

from rocm_guide.common.host import describe_cpu, host_facts
from rocm_guide.observe.profiling.torch_trace.events import iter_events
from rocm_guide.observe.profiling.torch_trace.recording import mark_modules, record
from rocm_guide.observe.profiling.torch_trace.summary import compare_traces, summarize

KEEP_ARGS = ("stream", "correlation", "Sequence number", "Fwd thread id", "External id", "device", "grid", "block")


def shrink(source: Path, target: Path) -> None:
    """Drop what identifies a machine and what no reader here uses; every event and every time stays."""
    header: dict = {}
    events = []
    for event in iter_events(source, header):
        args = event.get("args")
        if isinstance(args, dict) and event.get("ph") == "X":
            event["args"] = {k: args[k] for k in KEEP_ARGS if k in args}
        if event.get("ph") in ("X", "M"):
            events.append(event)
    kept = {k: header[k] for k in ("schemaVersion", "deviceProperties", "displayTimeUnit") if k in header}
    text = json.dumps({**kept, "traceEvents": events}, separators=(",", ":"))
    # mtime=0: the same trace gives the same bytes.
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def short(summary) -> dict:
    """Return the part of a summary that goes into the result file: times of one step in microseconds."""
    n = max(1, summary.steps)
    return {
        "device": summary.device_name,
        "steps": summary.steps,
        "span_us": summary.span_us / n,
        "busy_us": summary.busy_us / n,
        "idle_us": summary.idle_us / n,
        "launch_idle_us": summary.launch_idle_us / n,
        "launches": summary.launches / n,
        "launch_bound": summary.launch_bound,
        "slices_us": {k: v / n for k, v in summary.slices.items()},
        "top": [(k.name[:120], k.slice, k.count / n, k.total_us / n) for k in summary.kernels[:8]],
    }


def wall(step, sync, runs: int = 10) -> list[float]:
    """Return milliseconds of single steps: [median, 10th percentile, 90th percentile]."""
    for _ in range(3):
        step()
    times = []
    for _ in range(runs):
        sync()
        begin = time.perf_counter()
        step()
        sync()
        times.append((time.perf_counter() - begin) * 1e3)
    cuts = statistics.quantiles(times, n=10)
    return [statistics.median(times), cuts[0], cuts[-1]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    import torch
    import transformers
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

    begin = time.perf_counter()
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    sync = torch.cuda.synchronize if gpu else lambda: None
    options.out.mkdir(parents=True, exist_ok=True)
    hidden, inner, layers, heads, words = (128, 384, 2, 4, 512) if options.tiny else (4096, 11008, 32, 32, 32000)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=words,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
    )
    context, batches = (16, (1, 2)) if options.tiny else (512, (1, 2, 4, 8, 16, 24, 28, 32, 48, 64))
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if gpu else torch.float32)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(default)
    raw = options.out / "raw.json"
    result: dict = {
        "model": "Llama-2-7B shape, random weights" if not options.tiny else "toy shape",
        "dtype": "bf16" if gpu else "fp32",
        "hardware": torch.cuda.get_device_name() if gpu else describe_cpu(),
        "host": host_facts(),
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "context": context,
        "decode": {},
        "prefill": {},
    }

    def ids(rows: int, length: int):
        return torch.randint(0, config.vocab_size, (rows, length), device=device)

    def decoder(rows: int):
        cache = DynamicCache(config=config)
        with torch.no_grad():
            model(ids(rows, context), past_key_values=cache)
        token = ids(rows, 1)

        def step() -> None:
            with torch.no_grad():
                model(token, past_key_values=cache)
                cache.crop(-1)

        return step

    for rows in batches:
        step = decoder(rows)
        marked = summarize(record(step, raw, model=model, steps=2))
        result["decode"][rows] = short(marked)
        plain = summarize(record(step, raw, steps=2))
        result["decode"][rows]["unmarked"] = {k: v for k, v in short(plain).items() if k not in ("slices_us", "top")}
        result["decode"][rows]["wall_ms"] = wall(step, sync)
        if rows in (1, 32):
            shrink(record(step, raw, model=model, steps=1), options.out / f"decode_b{rows}.json.gz")
        del step
        print("decode", rows, result["decode"][rows]["wall_ms"], flush=True)

    for rows in (1, 8) if gpu else (1,):
        prompt = ids(rows, context)

        def step(prompt=prompt) -> None:
            with torch.no_grad():
                model(prompt, use_cache=False)

        result["prefill"][rows] = short(summarize(record(step, raw, model=model, steps=2)))
        result["prefill"][rows]["wall_ms"] = wall(step, sync)
        if rows == 1:
            shrink(record(step, raw, model=model, steps=1), options.out / "prefill_b1.json.gz")
        print("prefill", rows, result["prefill"][rows]["wall_ms"], flush=True)

    if gpu:
        result["graph"] = graph_decode(model, config, context, ids, raw, options.out, StaticCache, sync)
        print("graph", {k: v for k, v in result["graph"].items() if k != "summary"}, flush=True)
    result["cross_check"] = cross_check(model, ids(1, context), raw)
    print("cross-check", result["cross_check"], flush=True)

    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    text = ids(2, context)

    def train() -> None:
        model(text, labels=text, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    result["train"] = short(summarize(record(train, raw, model=model, steps=1, warmup=2)))
    shrink(raw, options.out / "train_b2.json.gz")
    result["train"]["wall_ms"] = wall(train, sync, 5)
    raw.unlink()
    result["seconds"] = time.perf_counter() - begin
    (options.out / "profile_7b.json").write_text(json.dumps(result, indent=1))
    print(f"{result['seconds']:.0f} s", flush=True)


def graph_decode(model, config, context, ids, raw, out, static_cache, sync) -> dict:
    """Record profile B: the same decode step replayed from one CUDA (HIP) graph, so that no kernel waits for Python."""
    import torch

    # Both profiles use the same static cache, so that only the launching differs.
    cache = static_cache(config=config, max_cache_len=context + 64)
    token, prompt = ids(1, 1), ids(1, context)
    position = torch.tensor([[context]], device="cuda")
    with torch.no_grad():
        model(prompt, past_key_values=cache)
        mask = torch.zeros(1, 1, 1, context + 64, device="cuda", dtype=torch.bool)
        mask[..., : context + 1] = True

    def eager():
        with torch.no_grad():
            return model(token, past_key_values=cache, attention_mask=mask, position_ids=position).logits

    try:
        for _ in range(3):
            expected = eager()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            eager()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = eager()
        graph.replay()
        sync()
    except RuntimeError as e:
        return {"error": str(e)[:300]}
    a = summarize(record(eager, raw, steps=2))
    shrink(record(eager, raw, steps=1), out / "profile_a_eager.json.gz")
    b = summarize(record(graph.replay, raw, steps=2))
    shrink(record(graph.replay, raw, steps=1), out / "profile_b_graph.json.gz")
    return {
        "a": short(a),
        "b": short(b),
        "a_wall_ms": wall(eager, sync),
        "b_wall_ms": wall(graph.replay, sync),
        "largest_logit_difference": float((logits - expected).abs().max()),
        "change_per_step_us": {c.name: [c.a_us, c.b_us] for c in compare_traces(a, b, by="total")},
    }


def cross_check(model, prompt, raw) -> dict:
    """Compare our totals with torch's own table of the same run: two readings of one measurement."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if gpu else [])

    def step() -> None:
        with torch.no_grad():
            model(prompt, use_cache=False)

    step()
    with mark_modules(model), profile(activities=activities) as found:
        step()
        if gpu:
            torch.cuda.synchronize()
    found.export_chrome_trace(str(raw))
    ours = summarize(raw)
    table = found.key_averages()
    if gpu:
        kernels = [e for e in table if e.device_type == torch.autograd.DeviceType.CUDA and "slice::" not in e.key]
        kernels = [e for e in kernels if not e.key.startswith("ProfilerStep")]
        theirs, count = sum(e.self_device_time_total for e in kernels), sum(e.count for e in kernels)
    else:
        kernels = [e for e in table if e.key.startswith("aten::")]
        theirs, count = sum(e.self_cpu_time_total for e in kernels), sum(e.count for e in kernels)
    return {"ours_us": ours.work_us, "torch_us": theirs, "our_launches": ours.launches, "torch_launches": count}


if __name__ == "__main__":
    main()
