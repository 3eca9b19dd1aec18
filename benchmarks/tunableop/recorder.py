# SPDX-License-Identifier: MIT
"""Does the planner predict, line for line, what TunableOp records on a GPU?

Runs every case (architecture x bias x batch x cache x attention) twice: for real on the GPU with
PYTORCH_TUNABLEOP_RECORD_UNTUNED=1, and on the meta device with rocm_guide.tune.tunableop.recorder; compares the two
lists and writes all of it as JSON. Also several hundred small products (tunableop_experiments.py).

    python -m benchmarks.tunableop.recorder --out DIR            # on a GPU, about 4 minutes
    python -m benchmarks.tunableop.recorder --out DIR --device cpu --dry   # no GPU: real CPU tensors take its place
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from rocm_guide.common.host import describe_cpu, host_facts

ROOT = Path(__file__).resolve().parents[2]

NEW_TOKENS = 4
PROMPT = 21
PAD = 8


def configs(shrink: int = 1) -> dict[str, object]:
    """Return published sizes with two layers: every distinct product of the full model occurs in them."""
    import transformers as t

    def s(n: int) -> int:
        return n // shrink

    two = {"num_hidden_layers": 2}
    return {
        "llama-2-7b": t.LlamaConfig(
            hidden_size=s(4096), intermediate_size=s(11008), num_attention_heads=s(32), vocab_size=32000, **two
        ),
        "llama-3-8b": t.LlamaConfig(
            hidden_size=s(4096),
            intermediate_size=s(14336),
            num_attention_heads=s(32),
            num_key_value_heads=max(1, s(8)),
            vocab_size=s(128256),
            rope_theta=500000.0,
            **two,
        ),
        "mistral-7b": t.MistralConfig(
            hidden_size=s(4096),
            intermediate_size=s(14336),
            num_attention_heads=s(32),
            num_key_value_heads=max(1, s(8)),
            vocab_size=32000,
            sliding_window=None,
            **two,
        ),
        "gemma-2b": t.GemmaConfig(
            hidden_size=s(2048),
            intermediate_size=s(16384),
            num_attention_heads=max(1, s(8)),
            num_key_value_heads=1,
            head_dim=256,
            vocab_size=s(256000),
            **two,
        ),
        "qwen2-7b": t.Qwen2Config(
            hidden_size=s(3584),
            intermediate_size=s(18944),
            num_attention_heads=28 if shrink == 1 else 4,
            num_key_value_heads=4 if shrink == 1 else 2,
            vocab_size=s(152064),
            **two,
        ),
        "gpt2": t.GPT2Config(n_embd=s(768), n_head=max(1, s(12)), n_layer=2, vocab_size=50257),
        "opt-1.3b": t.OPTConfig(
            hidden_size=s(2048), ffn_dim=s(8192), num_attention_heads=max(1, s(32)), word_embed_proj_dim=s(2048), **two
        ),
    }


def set_bias(model, bias: bool) -> None:
    """Give every nn.Linear a bias, or take all away (GPT-2's Conv1D always has one and is left alone)."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            w = module.weight
            module.bias = torch.nn.Parameter(torch.zeros(len(w), dtype=w.dtype, device=w.device)) if bias else None


def recorded(path: Path) -> list[str]:
    """Return the lines of the untuned file of device 0 (PyTorch puts the ordinal before .csv)."""
    real = path.with_name(path.stem + "0.csv")
    return real.read_text().splitlines() if real.exists() else []


def run_case(case: dict, args) -> dict:
    """Run one case: the planner's lines, then the recorded ones."""
    import torch

    from rocm_guide.models.load import meta_model
    from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES
    from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt
    from rocm_guide.tune.tunableop.recorder import record_gemms

    config = configs(8 if args.dry else 1)[case["model"]]
    meta = meta_model(config, dtype=case["dtype"], attention=case["attention"]).eval()
    set_bias(meta, case["bias"])
    ids, mask = padded_prompt(case["batch"], PROMPT, PAD if case["pad"] else 1)
    with record_gemms(meta, CUDA_RULES) as trace:
        generate_fixed(meta, ids, mask, NEW_TOKENS, cache=case["cache"])
    steps = [[c.gemm.line() for c in trace.calls if c.step == i] for i in range(trace.step + 1)]
    out = {
        **case,
        "planned": trace.lines(),
        "planned_steps": steps,
        "modules": [c.module for c in trace.calls if c.step == 0],
    }
    meta.to_empty(device=args.device)
    with torch.no_grad():
        for t in itertools.chain(meta.parameters(), meta.buffers()):
            t.zero_()
    if args.dry:
        with record_gemms(meta, CUDA_RULES) as real:
            generate_fixed(meta, ids, mask, NEW_TOKENS, cache=case["cache"])
        out["recorded"] = real.lines()
    else:
        text = generate_fixed(meta, ids.cuda(), mask.cuda(), NEW_TOKENS, cache=case["cache"])
        torch.cuda.synchronize()
        out["shape"] = list(text.shape)
        out["recorded"] = recorded(Path(os.environ["PYTORCH_TUNABLEOP_UNTUNED_FILENAME"]))
    return out


def run_experiments(args) -> dict:
    """Run all small products in one process; return the lines that each adds to the file."""
    import torch

    from benchmarks.tunableop.experiments import experiments
    from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES
    from rocm_guide.tune.tunableop.recorder import record_gemms

    path = Path(os.environ.get("PYTORCH_TUNABLEOP_UNTUNED_FILENAME", "none"))
    rows, done = list[dict[str, Any]](), 0
    for name, run in experiments():
        row: dict[str, Any] = {"name": name}
        try:
            with record_gemms(rules=CUDA_RULES) as trace:
                run("meta")
            row["planned"] = trace.lines()
        except (RuntimeError, NotImplementedError, TypeError) as e:
            row["planned_error"] = str(e).splitlines()[0]
        try:
            if args.dry:
                with record_gemms(rules=CUDA_RULES) as trace:
                    run("cpu")
                row["recorded"] = trace.lines()
            else:
                run("cuda")
                torch.cuda.synchronize()
                lines = recorded(path)
                row["recorded"], seen = lines[done:], set(lines[:done])
                # PyTorch does not list a product again; the plan of this experiment leaves it out too.
                row["planned"] = [line for line in row.get("planned", []) if line not in seen]
                done = len(lines)
        except (RuntimeError, NotImplementedError, TypeError) as e:
            row["recorded_error"] = str(e).splitlines()[0]
        rows.append(row)
    return {"experiments": rows}


def work(name: str, cases: list[dict], args, folder: Path) -> None:
    """Run one job (a case by number, or the experiments) in this process and write its JSON."""
    if not args.dry:
        os.environ |= {
            "PYTORCH_TUNABLEOP_ENABLED": "1",
            "PYTORCH_TUNABLEOP_TUNING": "0",
            "PYTORCH_TUNABLEOP_RECORD_UNTUNED": "1",
            "PYTORCH_TUNABLEOP_UNTUNED_FILENAME": str(folder / f"{name}.csv"),
        }
    try:
        if name == "probe":
            import torch

            result = {"ok": torch.zeros(1, device=args.device).item() == 0}
        else:
            result = run_experiments(args) if name == "experiments" else run_case(cases[int(name[4:])], args)
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, ImportError, OSError):
        result = {"name": name, "error": traceback.format_exc()}
    (folder / f"{name}.json").write_text(json.dumps(result))


def run_all(names: list[str], cases: list[dict], args, folder: Path, fork: bool) -> dict[str, dict]:
    """Run each job in a process of its own, because PyTorch lists a product only once per process.

    Forking imports torch once; where the GPU's driver does not survive a fork, fresh interpreters do it (slower).
    """
    names, running, results = list(names), dict[int, str](), dict[str, dict[str, Any]]()
    while names or running:
        while names and len(running) < args.jobs:
            name = names.pop(0)
            if fork:
                pid = os.fork()
                if not pid:
                    try:
                        work(name, cases, args, folder)
                    finally:
                        os._exit(0)
            else:
                extra = ["--dry"] if args.dry else []
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.tunableop.recorder",
                    "--out",
                    str(folder),
                    "--device",
                    args.device,
                    "--job",
                    name,
                    *extra,
                ]
                pid = subprocess.Popen(command).pid
            running[pid] = name
        pid, _ = os.wait()
        name = running.pop(pid)
        file = folder / f"{name}.json"
        results[name] = json.loads(file.read_text()) if file.exists() else {"name": name, "error": "the process died"}
    return results


def make_cases(only: str) -> list[dict]:
    """Return all combinations; float16 and float32 for one combination per model."""
    names = [n for n in configs() if not only or n in only.split(",")]
    cases = [
        {
            "model": model,
            "bias": bias,
            "batch": batch,
            "cache": cache,
            "attention": attention,
            "dtype": "bfloat16",
            "pad": batch == 8,
        }
        for model, bias, batch, cache, attention in itertools.product(
            names, (False, True), (1, 2, 8), ("dynamic", "static"), ("sdpa", "eager")
        )
    ]
    cases += [
        {"model": model, "bias": False, "batch": 2, "cache": cache, "attention": "sdpa", "dtype": dtype, "pad": False}
        for model, cache, dtype in itertools.product(names, ("dynamic", "static"), ("float16", "float32"))
    ]
    return cases


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry", action="store_true", help="no GPU: compare with real CPU tensors, sizes divided by 8")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", default="", help="models, comma-separated")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    # Asks the driver library, not the driver: a process that has touched the GPU cannot fork workers that use it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if args.job:
        work(args.job, make_cases(""), args, args.out)
        return
    import torch
    import transformers
    import transformers.generation.utils  # once, before the forks

    started, cases = time.time(), make_cases(args.only)
    jobs = ["experiments", *(f"case{i:03d}" for i in range(len(cases)))]
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        fork = run_all(["probe"], cases, args, folder, fork=True)["probe"].get("ok", False)
        results = run_all(jobs, cases if fork else make_cases(""), args, folder, fork)
    rows = [results[k] for k in sorted(results) if k != "experiments"]
    tried = results["experiments"].get("experiments", [])
    same = [r for r in rows if "error" not in r and r["planned"] == r["recorded"]]
    as_set = [r for r in rows if "error" not in r and set(r["planned"]) == set(r["recorded"])]
    good = [e for e in tried if "recorded" in e and e.get("planned") == e["recorded"]]
    summary = {
        "cases": len(rows),
        "equal line for line": len(same),
        "equal as sets": len(as_set),
        "failed": sum("error" in r for r in rows),
        "lines compared": sum(len(r.get("recorded", ())) for r in rows),
        "experiments": len(tried),
        "experiments equal": len(good),
        "seconds": round(time.time() - started, 1),
    }
    report = {
        "what": "dry run on a CPU" if args.dry else "planner against PYTORCH_TUNABLEOP_RECORD_UNTUNED=1",
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": sys.version.split()[0],
        },
        "workers": "forked" if fork else "started",
        "hardware": describe_cpu() if args.dry else torch.cuda.get_device_name(),
        "host": host_facts(),
        "summary": summary,
        "cases": rows,
        "experiments": tried,
        "experiments_error": results["experiments"].get("error"),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "tunableop_recorder.json").write_text(json.dumps(report, indent=0))
    print(json.dumps(summary))
    for e in tried:
        if e not in good:
            print(
                "EXPERIMENT",
                e["name"],
                "planned",
                e.get("planned", e.get("planned_error")),
                "recorded",
                e.get("recorded", e.get("recorded_error")),
            )
    for r in rows:
        if r not in same:
            missing = [x for x in r.get("recorded", []) if x not in r.get("planned", [])][:4]
            extra = [x for x in r.get("planned", []) if x not in r.get("recorded", [])][:4]
            keys = ("model", "bias", "batch", "cache", "attention", "dtype")
            print("CASE", *(r.get(k) for k in keys), r.get("error", "")[-300:], "missing", missing, "extra", extra)


if __name__ == "__main__":
    main()
