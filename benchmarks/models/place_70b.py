# SPDX-License-Identifier: MIT
"""Llama-2-70B in bf16 really loaded over several GPUs by the "auto" map, and generating: memory beside the plan.

    PYTHONPATH=. python -m benchmarks.models.place_70b --out benchmarks/results

Random weights, made on the GPU that the map names, piece by piece: nothing passes through host memory or a disk.
Then one prompt is read with a wait after each layer, which shows when each GPU works, and when it does not.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from rocm_guide.common.base import write_text
from rocm_guide.common.device import accelerator
from rocm_guide.common.host import host_facts
from rocm_guide.models.load import meta_model
from rocm_guide.models.placement import STRATEGIES, explain_placement, memory_table, plan_placement, runs_of


def device_name(kind: str, device: int) -> str:
    return f"{kind}:{device}" if kind == "cuda" else kind


def materialise(model, plan, kind: str) -> None:
    """Give every piece its memory on its device, filled with small random numbers."""
    for name, _, device in plan.pieces:
        where = device_name(kind, device)
        piece = model.get_submodule(name)
        if "rotary" in name:  # its buffers are computed from the configuration, not stored
            with torch.device(where):
                model.set_submodule(name, type(piece)(model.config))
            continue
        piece.to_empty(device=where)
        with torch.no_grad():
            for parameter in piece.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.02)
                else:
                    parameter.fill_(1.0)


def timeline(model, plan, ids, kind: str) -> list[tuple[int, float, float]]:
    """Return (device, start, seconds) of each layer during one forward pass, waiting for the device after each."""
    spans, began = [], dict[int, float]()
    where = {name: device for name, _, device in plan.pieces}
    handles = []

    def wait(device):
        if kind == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    for name, device in where.items():
        if ".layers." not in name:
            continue
        layer = model.get_submodule(name)

        def before(*_, n=name, d=device):
            return began.__setitem__(n, wait(d))

        def after(*_, n=name, d=device):
            return spans.append((d, began[n], wait(d) - began[n]))

        handles += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
    with torch.inference_mode():
        model(ids, logits_to_keep=1)
        spans.clear()
        model(ids, logits_to_keep=1)
    for handle in handles:
        handle.remove()
    start = spans[0][1]
    return [(d, round(s - start, 6), round(t, 6)) for d, s, t in spans]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="random:llama-2-70b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--new", type=int, default=16)
    options = parser.parse_args()
    from accelerate import dispatch_model

    gpus = torch.cuda.device_count()
    kind = "cuda" if gpus else "cpu"
    totals = [torch.cuda.mem_get_info(i)[1] for i in range(gpus)] or [8 * 10**9]
    model = meta_model(options.model).bfloat16()
    plan = plan_placement(model, [int(0.9 * t) for t in totals], "auto")
    print("\n".join(explain_placement(plan)), flush=True)
    began = time.perf_counter()
    materialise(model, plan, kind)
    loading = time.perf_counter() - began
    if kind == "cuda":
        model = dispatch_model(model, device_map=plan.device_map)
    model.eval()

    def memory(which) -> list[int]:
        return [which(i) for i in range(gpus)] or [sum(p.numel() * p.element_size() for p in model.parameters())]

    loaded = memory(torch.cuda.memory_allocated)
    first = device_name(kind, int(plan.pieces[0][2]))
    ids = torch.randint(3, 1000, (options.batch, options.prompt), device=first)
    began = time.perf_counter()
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=options.new,
        min_new_tokens=options.new,
        do_sample=False,
        pad_token_id=0,
    )
    seconds = time.perf_counter() - began
    assert out.shape == (options.batch, options.prompt + options.new)
    rows = {}
    for device, planned in ((int(d), nbytes) for d, nbytes in plan.used.items()):
        measured = loaded[device]
        rows[device] = {
            "holds": ", ".join(runs_of(plan)[device]),
            "planned_bytes": planned,
            "loaded_bytes": measured,
            "error_percent": 100 * (planned / measured - 1) if measured else 0.0,
            "peak_bytes": memory(torch.cuda.max_memory_allocated)[device],
            "total_bytes": totals[device],
        }
    print(memory_table({d: (r["loaded_bytes"], r["total_bytes"]) for d, r in rows.items()}))
    for device, row in rows.items():
        planned, held, peak = (row[f"{what}_bytes"] / 1e9 for what in ("planned", "loaded", "peak"))
        error = f"{row['error_percent']:+.2f} %"
        print(f"GPU {device}: planned {planned:.3f} GB, loaded {held:.3f} GB, {error}; peak {peak:.3f} GB", flush=True)
    spans = timeline(model, plan, ids, kind)
    whole = spans[-1][1] + spans[-1][2]
    busy = {d: sum(t for device, _, t in spans if device == d) / whole for d in plan.used}
    print("share of a forward pass in which each GPU works:", {d: f"{b:.0%}" for d, b in busy.items()})
    shapes = meta_model(options.model).bfloat16()
    result = {
        "model": options.model,
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch": options.batch,
        "prompt": options.prompt,
        "new_tokens": options.new,
        "answer": out[0, options.prompt :].tolist(),
        "seconds_to_make_weights": loading,
        "seconds_to_generate": seconds,
        "devices": rows,
        "busy": busy,
        "spans": spans,
        "maps": {s: plan_placement(shapes, [int(0.9 * t) for t in totals], s).used for s in STRATEGIES},
        "hardware": accelerator().label(),
        "host": host_facts(),
    }
    write_text(options.out / "place_70b.json", json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
