# SPDX-License-Identifier: MIT

"""`fit` against the memory that real training steps took on a GPU: table, plot and errors.

    PYTHONPATH=. python -m benchmarks.memory.cases measure --out FOLDER [--only SUBSTRING] [--gpus 1]
    PYTHONPATH=. python -m benchmarks.memory.cases measure --out benchmarks/results/fit_families --group families
    PYTHONPATH=. python -m benchmarks.memory.cases dry --group families   # the same ten cases in miniature, on a CPU
    PYTHONPATH=. python -m benchmarks.memory.cases compare --out FOLDER

What is committed lies in benchmarks/results; take another folder for another GPU.

`measure` runs each case in a process of its own (measure.py) and adds it to fit_measured.jsonl; `compare` needs no
GPU: it asks `fit` about every measured case and writes the table and the plot (fit_report.py). The figure compared is
the peak of what torch's allocator handed out; what it held back, and what the driver and libraries took outside it,
stand beside it.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parents[1]
QV = ["q_proj", "v_proj"]

#: name -> case. Defaults: bf16 weights and AdamW states, Liger's kernels, no checkpointing, one GPU.
CASES: dict[str, dict] = {
    "tiny-full": {"model": "tinyllama-1.1b", "method": "full", "batch": 8, "seq": 1024},
    "7b-lora-qv": {
        "model": "llama-2-7b",
        "method": "lora",
        "batch": 4,
        "seq": 512,
        "rank": 64,
        "targets": QV,
        "dropout": 0.1,
    },
    "7b-full": {"model": "llama-2-7b", "method": "full", "batch": 4, "seq": 512},
    "tiny-full-mixed": {"model": "tinyllama-1.1b", "method": "full", "batch": 4, "seq": 2048, "precision": "mixed"},
    "tiny-full-torch": {"model": "tinyllama-1.1b", "method": "full", "batch": 4, "seq": 2048, "liger": False},
    "tiny-full-long": {"model": "tinyllama-1.1b", "method": "full", "batch": 16, "seq": 2048, "checkpointing": True},
    "7b-full-ckpt": {"model": "llama-2-7b", "method": "full", "batch": 8, "seq": 2048, "checkpointing": True},
    "7b-lora-torch": {"model": "llama-2-7b", "method": "lora", "batch": 2, "seq": 2048, "liger": False},
    "7b-lora-ckpt": {"model": "llama-2-7b", "method": "lora", "batch": 8, "seq": 2048, "checkpointing": True},
    "8b-lora": {"model": "llama-3-8b", "method": "lora", "batch": 4, "seq": 1024, "dropout": 0.05},
    "8b-full-ckpt": {"model": "llama-3-8b", "method": "full", "batch": 2, "seq": 2048, "checkpointing": True},
    "13b-lora": {"model": "llama-2-13b", "method": "lora", "batch": 2, "seq": 1024},
    "13b-lora-ckpt": {"model": "llama-2-13b", "method": "lora", "batch": 8, "seq": 2048, "checkpointing": True},
    "tiny-mixed-ckpt": {
        "model": "tinyllama-1.1b",
        "method": "full",
        "batch": 8,
        "seq": 1024,
        "precision": "mixed",
        "checkpointing": True,
        "liger": False,
    },
    "qwen-lora-ckpt": {
        "model": "qwen2.5-7b",
        "method": "lora",
        "batch": 4,
        "seq": 1024,
        "checkpointing": True,
        "targets": QV,
    },
    "13b-full-oom": {"model": "llama-2-13b", "method": "full", "batch": 1, "seq": 512, "checkpointing": True},
    "7b-lora-oom": {"model": "llama-2-7b", "method": "lora", "batch": 16, "seq": 2048},
    # At the limit of an 80 GB card (85.0e9 bytes): the largest batch that fit named with a margin of 3 %, and more
    "7b-lora-largest": {"model": "llama-2-7b", "method": "lora", "batch": 12, "seq": 1024},
    "7b-lora-over": {"model": "llama-2-7b", "method": "lora", "batch": 13, "seq": 1024},
    "7b-qlora-largest": {"model": "llama-2-7b", "method": "qlora", "batch": 8, "seq": 2048},
    "tiny-largest": {"model": "tinyllama-1.1b", "method": "full", "batch": 18, "seq": 2048, "liger": False},
    # The largest batches that fit names now, with a margin of 8 %; not measured yet
    "7b-lora-limit": {"model": "llama-2-7b", "method": "lora", "batch": 11, "seq": 1024},
    "tiny-limit": {"model": "tinyllama-1.1b", "method": "full", "batch": 17, "seq": 2048, "liger": False},
    "7b-mixed-oom": {"model": "llama-2-7b", "method": "full", "batch": 1, "seq": 512, "precision": "mixed"},
    "7b-qlora": {"model": "llama-2-7b", "method": "qlora", "batch": 4, "seq": 512},
    "8b-qlora": {
        "model": "llama-3-8b",
        "method": "qlora",
        "batch": 2,
        "seq": 2048,
        "dropout": 0.1,
        "targets": QV,
        "rank": 64,
    },
    "13b-qlora-ckpt": {"model": "llama-2-13b", "method": "qlora", "batch": 4, "seq": 1024, "checkpointing": True},
    "7b-generate": {"model": "llama-2-7b", "method": "generate", "batch": 16, "seq": 1024, "new": 16},
    "8b-generate": {"model": "llama-3-8b", "method": "generate", "batch": 16, "seq": 2048, "new": 8},
    "7b-fsdp2": {"model": "llama-2-7b", "method": "full", "batch": 4, "seq": 1024, "precision": "mixed", "gpus": 2},
    "13b-fsdp4": {
        "model": "llama-2-13b",
        "method": "full",
        "batch": 4,
        "seq": 1024,
        "precision": "mixed",
        "gpus": 4,
        "checkpointing": True,
    },
    "7b-fsdp4-limit": {
        "model": "llama-2-7b",
        "method": "full",
        "batch": 9,
        "seq": 2048,
        "precision": "mixed",
        "gpus": 4,
        "liger": False,
    },  # of an H200; not measured yet
    "7b-fsdp4-torch": {
        "model": "llama-2-7b",
        "method": "full",
        "batch": 2,
        "seq": 2048,
        "precision": "mixed",
        "gpus": 4,
        "liger": False,
    },
    # Other families (`--group families`), within 6 minutes on one GPU. "layers" keeps so many of the model's own;
    # "experts" so many experts.
    "qwen3-full": {"model": "qwen3-0.6b", "method": "full", "batch": 8, "seq": 2048, "group": "families"},
    "qwen3-lora-ckpt": {
        "model": "qwen3-8b",
        "method": "lora",
        "batch": 8,
        "seq": 2048,
        "checkpointing": True,
        "group": "families",
    },
    "phi3-lora": {"model": "phi-3-mini", "method": "lora", "batch": 4, "seq": 2048, "group": "families"},
    "gemma3-lora": {
        "model": "gemma-3-1b",
        "method": "lora",
        "batch": 8,
        "seq": 512,
        "liger": False,
        "group": "families",
    },
    "gpt2-full": {"model": "gpt2", "method": "full", "batch": 16, "seq": 1024, "liger": False, "group": "families"},
    "opt-lora": {"model": "opt-1.3b", "method": "lora", "batch": 8, "seq": 1024, "liger": False, "group": "families"},
    "mixtral-lora": {
        "model": "mixtral-8x7b",
        "method": "lora",
        "batch": 4,
        "seq": 1024,
        "layers": 8,
        "liger": False,
        "group": "families",
    },
    "qwen3moe-lora-ckpt": {
        "model": "qwen3-30b-a3b",
        "method": "lora",
        "batch": 8,
        "seq": 1024,
        "layers": 16,
        "liger": False,
        "checkpointing": True,
        "group": "families",
    },
    "int8-generate": {
        "model": "qwen3-8b",
        "method": "generate",
        "batch": 8,
        "seq": 4096,
        "new": 8,
        "quantised": "int8",
        "group": "families",
    },
    "qwen3-serve": {"model": "qwen3-8b", "method": "generate", "batch": 64, "seq": 2048, "new": 8, "group": "families"},
}


class Child:
    """One case's process: imports at once, waits for :meth:`go` before it touches the GPU."""

    def __init__(self, name: str, dry: bool = False) -> None:
        self.name, self.case = name, {**CASES[name], **({"dry": True} if dry else {})}
        gpus = self.case.get("gpus", 1)
        launch = (
            [sys.executable]
            if gpus == 1
            else [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        )
        command = [*launch, "-m", "benchmarks.memory.measure", json.dumps(self.case)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env, cwd=HERE.parent
        )
        given, output, errors = self.process.stdin, self.process.stdout, self.process.stderr
        assert given and output and errors  # all three are pipes
        self.input = given
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.readers = [
            threading.Thread(target=lambda: self.lines.extend(output), daemon=True),
            threading.Thread(target=lambda: self.errors.extend(errors), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def go(self, timeout: float) -> dict:
        """Let it run, wait for its end, and return what it measured."""
        try:
            self.input.write("go\n")
            self.input.close()
        except OSError:
            pass  # it died while importing; its error is reported below
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for reader in self.readers:
            reader.join(5)
        for line in self.lines:
            if line.startswith("RESULT "):
                return {"name": self.name, **json.loads(line.removeprefix("RESULT "))}
        return {"name": self.name, "case": self.case, "outcome": "failed", "error": "".join(self.errors)[-3000:]}


def chosen(only: str, gpus: int, group: str) -> list[str]:
    names = [n for n, c in CASES.items() if (c.get("gpus", 1) > 1) == (gpus > 1) and c.get("gpus", 1) <= gpus]
    names = [n for n in names if not group or CASES[n].get("group") == group]
    return [n for n in names if not only or any(part in n for part in only.split(","))]


def dry(only: str, group: str, timeout: float) -> int:
    """Run every step of `measure` but the GPU: small models of the same families, in turn; return how many failed."""
    from benchmarks.memory.report import predict

    failed = 0
    for name in chosen(only, 1, group):
        row = Child(name, dry=True).go(timeout)
        failed += row["outcome"] != "ran"
        plan = predict({**row, "case": CASES[name], "hardware": "H200", "device_bytes": 150_109_880_320})
        said = f"{plan.peak / 1e9:8.2f} GB predicted for the true size, peak at: {plan.moment}"
        print(f"{name:18s} {row['outcome']:8s} {row.get('wall', 0):6.1f} s  {said}  {row.get('error', '')}", flush=True)
    return failed


def measure(out: Path, only: str, gpus: int, ahead: int, timeout: float, group: str) -> None:
    names = chosen(only, gpus, group)
    ahead = 1 if gpus > 1 else ahead  # processes of an FSDP case do not wait for their turn
    out.mkdir(parents=True, exist_ok=True)
    waiting = list(names)
    started = [Child(waiting.pop(0)) for _ in range(min(ahead, len(waiting)))]
    with (out / "fit_measured.jsonl").open("a") as file:
        while started:
            row = started.pop(0).go(timeout)
            if waiting:
                started.append(Child(waiting.pop(0)))
            file.write(json.dumps(row) + "\n")
            file.flush()
            peak = f"{row['peak'] / 1e9:8.3f} GB" if "peak" in row else row.get("error", "")
            print(f"{row['name']:18s} {row['outcome']:14s} {row.get('wall', 0):6.1f} s  {peak}", flush=True)


def read(out: Path) -> dict[str, dict]:
    """Read the newest row of each case that ran or ran out of memory, in the order of CASES."""
    rows = {r["name"]: r for r in map(json.loads, (out / "fit_measured.jsonl").read_text().splitlines())}
    return {n: rows[n] for n in CASES if n in rows and rows[n]["outcome"] != "failed"}


def compare(out: Path) -> int:
    """Write fit_cases.md and fit_cases.png from fit_measured.jsonl; the number of missed targets."""
    from benchmarks.memory.report import picture, report
    from rocm_guide.common.base import write_bytes, write_text

    rows = read(out)
    text, missed = report(rows)
    write_text(out / "fit_cases.md", text)
    write_bytes(out / "fit_cases.png", picture(rows))
    print("\n".join([text.splitlines()[6], *missed]))
    return len(missed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "compare", "dry"))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--group", default="", help="families: the ten cases of other families")
    parser.add_argument("--only", default="")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--ahead", type=int, default=6, help="processes that import while one measures")
    parser.add_argument("--timeout", type=float, default=60)
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.out, options.only, options.gpus, options.ahead, options.timeout, options.group)
    elif options.what == "dry":
        sys.exit(1 if dry(options.only, options.group, options.timeout) else 0)
    else:
        sys.exit(1 if compare(options.out) else 0)


if __name__ == "__main__":
    main()
