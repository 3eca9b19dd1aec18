# SPDX-License-Identifier: MIT
"""The examples at the end of every `--help`: command path -> (command line, what it is for)."""

from __future__ import annotations

__all__ = ["EXAMPLES"]

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "list": [("rocm-guide list", "number, title, time and memory")],
    "run": [
        ("rocm-guide run 01 02 --jobs 2", "two notebooks at a time"),
        ("rocm-guide run 02 -p MODEL random:llama-2-7b --out runs/7b", "with a parameter of your own"),
        ("rocm-guide run 02 03 10 18 --jobs 1 -p MODEL random:llama-3-8b -p RUN 8b", "one model from start to server"),
        ("rocm-guide run --resume", "only what is missing, failed or stale"),
    ],
    "lab": [("rocm-guide lab", "open the course"), ("rocm-guide lab -- --no-browser --port 9000", "on a server")],
    "doctor": [("rocm-guide doctor", "each finding with its fix")],
    "copy": [
        ("rocm-guide copy finetune.lora.LoRALinear --out lora_linear.py", "one helper as a file"),
        ("rocm-guide copy 02 --out train.py", "what notebook 02 does, as a script"),
        ("rocm-guide copy --list", "all names"),
    ],
    "fit": [
        ("rocm-guide fit llama-3-70b --gpu MI300X --count 8 --fsdp", "full training on eight GPUs"),
        ("rocm-guide fit llama-3-8b --method lora --batch 4 --seq 4096", "LoRA on one"),
        ("rocm-guide fit llama-3-70b --method serve --batch 32 --json", "serving, for a program"),
    ],
    "passport": [("rocm-guide passport my-model", "figures of every stage, and what it says before and after")],
    "serve": [
        ("rocm-guide serve runs/my-model", "on a free port of this machine"),
        ("rocm-guide serve runs/my-adapter --port 8000", "merged into its base, or beside it in vLLM"),
        ("rocm-guide serve runs/my-model --engine vllm -- --max-model-len 8192", "options of the server"),
    ],
    "bench": [
        ("rocm-guide bench http://127.0.0.1:8000 --users 1,4,16,64", "four levels of load"),
        ("rocm-guide bench http://127.0.0.1:8000 --users '' --rates 4,8,16", "open arrivals"),
        ("rocm-guide bench http://127.0.0.1:8000 --out bench.json --plot bench.png", "results and picture"),
    ],
    "launch": [
        ("rocm-guide launch slurm --nodes 4 --gpus 8 --time 08:00:00 --out train.sbatch", "a Slurm job"),
        ("rocm-guide launch torchrun --nodes 1:2 -- train.py --lr 1e-4", "your own program"),
        ("rocm-guide launch accelerate --nodes 2 --out fsdp.yaml", "a configuration for Accelerate"),
    ],
    "ck": [("rocm-guide ck search 3840x4096x4096", "instances for a product, the fastest by prediction first")],
    "ck search": [
        ("rocm-guide ck search 3840x4096x4096 --top 5", "fp16, B by columns"),
        ("rocm-guide ck search 16x4096x4096 --dtype I8 --json", "INT8, as JSON"),
    ],
    "ck check": [
        ("rocm-guide ck check document_prose 3840x4096x4096", "does CK take it?"),
        ("rocm-guide ck check document_prose 3840x4096x4096 --set KPerBlock=24", "and with another parameter?"),
    ],
    "ck source": [
        ("rocm-guide ck source int8_small 128x4096x4096", "C++ for gfx942"),
        ("rocm-guide ck source int8_small 128x4096x4096 --torch-extension --out gemm.cpp", "a torch operator"),
    ],
    "tunable": [("rocm-guide tunable plan random:llama-3-8b --batch 8", "what to tune")],
    "tunable plan": [
        ("rocm-guide tunable plan random:llama-3-70b --batch 8 --prompt 1:64 --out untuned.csv", "a file to tune"),
        ("rocm-guide tunable plan llama-3-8b --batch 8 --covers a8w8_tuned_gemm.csv", "what AITER's file covers"),
        ("rocm-guide tunable plan random:llama-2-7b --covers tunableop_results0.csv", "is every product tuned?"),
    ],
    "tunable check": [
        ("rocm-guide tunable check tunableop_results0.csv", "is it whole, and accepted here?"),
        ("rocm-guide tunable check untuned.csv --explain", "each line in words"),
    ],
    "tunable merge": [("rocm-guide tunable merge a.csv b.csv --out both.csv", "the faster solution stays")],
    "tunable tune": [("rocm-guide tunable tune untuned.csv results.csv --gpus 8", "on eight GPUs")],
    "trace": [("rocm-guide trace summary trace.json.gz", "where the time went")],
    "trace record": [
        ("rocm-guide trace record --out step.json.gz train.py --steps 3", "a script and its arguments"),
        ("rocm-guide trace record -m package.train --steps 3", "a module"),
    ],
    "trace summary": [("rocm-guide trace summary trace.json.gz --top 20", "slices, kernels, idle gaps")],
    "trace compare": [("rocm-guide trace compare before.json.gz after.json.gz --by kernel", "the largest first")],
    "trace kernels": [("rocm-guide trace kernels kernel_trace.csv --gpu MI300X --dtype fp8", "with the roofline")],
    "trace counters": [("rocm-guide trace counters SQ_WAVES", "what a hardware counter means")],
    "faults": [("rocm-guide faults read report.txt", "from the crash to the instruction")],
    "faults explain": [
        (
            "rocm-guide faults explain 'out of resource: shared memory, Required: 73728'",
            "from the tables of all notebooks",
        )
    ],
    "faults read": [("rocm-guide faults read report.txt --code code_objects/", "with the saved code objects")],
    "faults log": [("rocm-guide faults log dmesg.txt --json", "faults of the kernel log")],
    "faults env": [
        ("rocm-guide faults env --save-code code_objects", 'for eval "$(…)"'),
        ("rocm-guide faults env --undo", "unset it all"),
    ],
    "system": [("rocm-guide system check", "needs no root")],
    "system check": [("rocm-guide system check --json", "for a program")],
    "system set": [("rocm-guide system set --clock 2100 --dry-run", "what would be done")],
    "system reset": [("rocm-guide system reset", "put back what set has saved")],
}
