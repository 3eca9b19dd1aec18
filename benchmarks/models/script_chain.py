# SPDX-License-Identifier: MIT
"""One model through the exported scripts alone: trained (02), asked (03), merged (08), quantised, served, asked (18).

    python -m benchmarks.models.script_chain --model random:llama-3-8b --out DIR    # on a GPU; or a folder, a hub id
    python -m benchmarks.models.script_chain --model tiny --out DIR --steps 8       # on a CPU: does all of it run?

Each script is what `rocm-guide script NN` writes, started in DIR as a reader would start it. The quantising is script
10's where GPTQModel can be imported (an 8B takes it many minutes), else 12's (bitsandbytes), else 13's
(compressed-tensors, FP8), or that of `--library`, and the result says which; vLLM serves where it is installed, else
`transformers serve`. A step that fails ends the run. What comes back is written anew after each step: seconds, peak
memory of the process, and what the script printed of speed and perplexity.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.models.list_questions import rows
from benchmarks.timing import RESULTS
from cdna.children import Service, call_in_child
from rocm_guide.cli.copying import script_of
from rocm_guide.common.base import write_text
from rocm_guide.common.device import accelerator
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.load import checkpoint, load_model
from rocm_guide.observe.doctor.own_folders import OWN_FOLDERS
from rocm_guide.serve.server import answers_health, free_port

#: Library -> the script that quantises with it, the folder that it writes below its --out, and its options.
QUANTISERS: dict[str, tuple[str, str, list[str]]] = {
    "gptqmodel": ("10", "gptq-4bit", ["--samples=32", "--length=512"]),
    "bitsandbytes": ("12", "nf4", ["--no-qlora"]),
    "compressed_tensors": ("13", "", ["--scheme=FP8_DYNAMIC"]),
}
_MEASURED = """
import json, resource, runpy, sys, time
report, *sys.argv = sys.argv[1:]
began = time.perf_counter()
runpy.run_path(sys.argv[0], run_name="__main__")
row = {"seconds": round(time.perf_counter() - began, 1)}
row["host_peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
torch = sys.modules.get("torch")
if torch is not None and torch.cuda.is_available():
    row["gpu_peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
open(report, "w").write(json.dumps(row))
"""
#: What a script prints of itself, by the name that it gets in the result.
_SAID = {
    "train_seconds": r"'train_runtime': '?([\d.e+]+)",
    "train_tokens": r"'num_tokens': '?([\d.e+]+)",
    "perplexity_before": r"^as it was: perplexity ([\d.]+)",
    "perplexity_after": r"^(?:4 bits|nf4): perplexity ([\d.]+)",
    "pieces_per_s": r"^(\d+) users: (\d+) pieces of text a second; first after (\d+) ms",
}

#: A folder on the path that holds one of them is the course's.
COURSE = ("rocm_guide", "cdna")


def environment() -> dict[str, str]:
    """Return the scripts' environment: the libraries of notebooks 10 to 14 are on its path, the course is not."""
    path = OWN_FOLDERS["quantization"].path
    more = {"HF_HUB_OFFLINE": "1", "GPTQMODEL_DISABLE_PACK_EXT": "1"}
    kept = [
        p
        for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if p and not any((Path(p) / name).exists() for name in COURSE)
    ]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join([str(path)] * path.is_dir() + kept)}


def base_folder(spec: str, folder: str) -> str:
    """Return a folder or hub id for ``spec``; random weights are saved to ``folder``.

    Their output layer knows more tokens than the tokenizer. The rows of the others are zero there, so that none of them
    is ever the likeliest: a server would send an empty text for it.
    """
    if not spec.startswith("random:"):
        return checkpoint(spec, folder)
    model, tokenizer = load_model(spec)
    with torch.no_grad():
        model.get_output_embeddings().weight[len(tokenizer) :] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run_script(number: str, words: list[str], folder: Path) -> dict[str, Any]:
    """Run one exported script in ``folder``; give seconds, peak memory and figures, or exit code and last line."""
    script, report, log = (folder / f"{name}{number}.{end}" for name, end in (("s", "py"), ("r", "json"), ("s", "txt")))
    write_text(script, script_of(number))
    command = [sys.executable, "-c", _MEASURED, str(report), str(script), *words]
    with log.open("w") as out:
        code = subprocess.run(command, cwd=folder, env=environment(), stdout=out, stderr=out, check=False).returncode
    said = log.read_text()
    row: dict[str, Any] = {"script": number, "words": " ".join(words).replace(str(folder), "DIR"), "code": code}
    if code:
        return row | {"last_line": (said.strip().splitlines() or ["nothing was printed"])[-1][:300]}
    row |= json.loads(report.read_text())
    for name, pattern in _SAID.items():
        found = re.findall(pattern, said, re.M)
        if found and name == "pieces_per_s":
            row["load"] = [dict(zip(("users", name, "first_ms"), map(int, each), strict=True)) for each in found]
        elif found:
            row[name] = float(found[-1])
    if "train_tokens" in row:
        row["train_tokens_per_s"] = round(row["train_tokens"] / row["train_seconds"], 1)
    return row


def importable(library: str) -> bool:
    """Return whether the scripts' processes can import it."""
    command = [sys.executable, "-c", f"import {library}"]
    return subprocess.run(command, env=environment(), capture_output=True, check=False).returncode == 0


def gpu_used() -> float:
    """Return the GB in use on the first GPU, of all processes; 0 without one."""
    code = "import torch; f, t = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0); print(t - f)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) / 1e9


def serve_and_ask(model: Path, folder: Path, words: list[str]) -> dict[str, Any]:
    """Serve ``model`` as one would type it, and let script 18 ask."""
    port, before, settings = free_port(), gpu_used(), model / "config.json"
    if shutil.which("vllm"):
        command = ["vllm", "serve", str(model), "--port", str(port), "--max-model-len", "1024"]
        command += ["--gpu-memory-utilization", "0.6"]
    else:
        config = json.loads(settings.read_text())
        if config.get("quantization_config", {}).get("quant_method") == "gptq" and before:
            config["quantization_config"]["backend"] = "gptq_torch"  # else GPTQModel compiles a kernel for minutes
            write_text(settings, json.dumps(config, indent=1))
        command = [str(Path(sys.executable).with_name("transformers")), "serve", model.name, "--port", str(port)]
        command += ["--continuous-batching", "--cb-num-blocks", "512", "--cb-block-size", "32"]
    began = time.perf_counter()
    url = f"http://127.0.0.1:{port}"
    with Service(command, environment=environment(), folder=model.parent, same_modules=False) as service:
        service.wait_until(lambda: answers_health(url), 900)
        ready = time.perf_counter() - began
        name = str(model) if command[0] == "vllm" else model.name
        row = run_script("18", [f"--url={url}", f"--name={name}", *words], folder)
        row |= {"server": Path(command[0]).name, "ready_s": round(ready, 1)}
        return row | ({"server_gpu_gb": round(gpu_used() - before, 2)} if before else {})


def versions() -> dict[str, str]:
    """Return the versions of what took part, where it is installed."""
    found = {}
    for name in ("torch", "transformers", "trl", "peft", "gptqmodel", "bitsandbytes", "compressed-tensors", "vllm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Run the chain, step by step, and write what each one took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="random:llama-3-8b", help="tiny, random:NAME, a folder or a hub id")
    parser.add_argument("--out", type=Path, required=True, help="folder for scripts, rows and models")
    parser.add_argument("--dataset", help="a file with prompt and completion; without one it is made")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps of the training")
    parser.add_argument("--library", choices=QUANTISERS, help="quantises; else the first that can be imported")
    parser.add_argument("--results", type=Path, default=RESULTS / "script_chain.json", help="where the figures go")
    options = parser.parse_args()
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tiny, data = options.model == "tiny", options.dataset or str(folder / "rows.jsonl")
    if not options.dataset:
        made = [(f"{r['instruction']}\n{r['input']}\n", r["output"]) for r in rows(1000)]
        if tiny:  # short ones, of which it knows the words
            made = [(r["prompt"], r["completion"]) for r in question_answer_splits()[0]]
        write_text(Path(data), "".join(json.dumps({"prompt": a, "completion": b}) + "\n" for a, b in made))
    source = call_in_child(base_folder, spec=options.model, folder=str(folder / "base"))
    result: dict[str, Any] = {"date": str(date.today()), "hardware": accelerator().label(), "model": options.model}
    result |= {"versions": versions(), "steps": []}

    def done(row: dict[str, Any]) -> None:
        result["steps"].append(row)
        print(json.dumps(row), flush=True)
        write_text(options.results, json.dumps(result, indent=1) + "\n")
        if row["code"]:
            raise SystemExit(f"script {row['script']} failed: {row['last_line']}; its output is in {folder}")

    given, size = [f"--model={source}", f"--dataset={data}", "--out=my-model"], "64" if tiny else "512"
    # Random weights learn little but where a row ends: a server would then send nothing.
    rate = ["--rate=1e-6"] if options.model.startswith("random:") else []
    done(run_script("02", [*given, f"--steps={options.steps}", "--save=0.5", f"--length={size}", *rate], folder))
    done(run_script("03", [f"--model={source}", "--adapter=my-model/adapter", "--answer=16"], folder))
    done(run_script("08", [*given, "--adapter=my-model/adapter", "--rows=8", "--new_tokens=8"], folder))
    wanted = [options.library] if options.library else list(QUANTISERS)
    library = next(filter(importable, wanted), None)
    if library is None:
        raise SystemExit(f"none of {', '.join(wanted)} can be imported; {OWN_FOLDERS['quantization'].fix}")
    number, below, more = QUANTISERS[library]
    target = "my-model" if below else "my-model/fp8"
    words = ["--model=my-model/merged", f"--out={target}", *more, *["--group=32"] * (tiny and number == "10")]
    done(run_script(number, words + [f"--dataset={data}"] * bool(below), folder) | {"library": library})
    chat = any((folder / target / below).glob("chat_template*"))
    done(serve_and_ask(folder / target / below, folder, ["--users", "1", "8"] + ["--no-chat"] * (not chat)))


if __name__ == "__main__":
    main()
