# SPDX-License-Identifier: MIT
"""Quantised inference at Llama-2-7B's shape with random weights: memory and tokens per second of each library's path.

    python -m benchmarks.models.quantization_7b --out DIR                         # on a GPU, about 5 minutes
    python -m benchmarks.models.quantization_7b --out DIR --shape small --tokens 4   # a small test on a CPU
    python -m benchmarks.models.quantization_7b --out benchmarks/results --plot      # only draw what is stored there

Speed and memory do not depend on the values, so the GPTQ and AWQ checkpoints are filled with random codes instead of
being quantised for an hour; bitsandbytes quantises random 16-bit weights while it loads them, as it always does.
A path that cannot run is recorded with its reason.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SMALL = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
LINEARS = {
    "self_attn.q_proj": ("hidden", "hidden"),
    "self_attn.k_proj": ("hidden", "hidden"),
    "self_attn.v_proj": ("hidden", "hidden"),
    "self_attn.o_proj": ("hidden", "hidden"),
    "mlp.gate_proj": ("hidden", "inner"),
    "mlp.up_proj": ("hidden", "inner"),
    "mlp.down_proj": ("inner", "hidden"),
}
CASES = {
    "float16": ("plain", {}),
    "bitsandbytes int8": ("bnb", {"load_in_8bit": True}),
    "bitsandbytes NF4": ("bnb", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
    "bitsandbytes NF4, double quantisation": (
        "bnb",
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    ),
    "GPTQ 4 bits, Triton kernel": ("gptq", "gptq_triton"),
    "AWQ 4 bits, Triton kernel": ("awq", "awq_gemm_triton"),
    "GPTQ 4 bits, torch kernel": ("gptq", "gptq_torch"),
    "AWQ 4 bits, torch kernel": ("awq", "awq_torch"),
    # These compile CUDA code at their first use; by the library's own estimate 35, 117 and 62 seconds.
    "GPTQ 4 bits, ExLlamaV2 kernel": ("gptq", "gptq_exllama_v2"),
    "GPTQ 4 bits, Marlin kernel": ("gptq", "gptq_marlin"),
    "AWQ 4 bits, GEMM kernel": ("awq", "awq_gemm"),
}


def configuration(shape: str):
    from rocm_guide.models.shapes import config_of

    return config_of("llama-2-7b", **(SMALL if shape == "small" else {}))


def plain_checkpoint(folder: Path, shape: str, device: str) -> None:
    """Write 16-bit random weights as save_pretrained writes them."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(configuration(shape), dtype=torch.float16, trust_remote_code=False)
    model.save_pretrained(folder, max_shard_size="4GB")


def packed_checkpoint(folder: Path, shape: str, method: str, device: str, group: int = 128) -> None:
    """Write random 4-bit codes in the layout that GPTQModel saves; scales that keep the activations finite."""
    import torch
    from safetensors.torch import save_file

    config = configuration(shape)
    size = {"hidden": config.hidden_size, "inner": config.intermediate_size}
    generator = torch.Generator(device=device).manual_seed(0)

    def words(*dims: int):
        return torch.randint(-(2**31), 2**31 - 1, dims, dtype=torch.int32, device=device, generator=generator).cpu()

    def normal(*dims: int):
        return (torch.randn(dims, device=device, generator=generator) * 0.02).half().cpu()

    tensors = {"model.norm.weight": torch.ones(config.hidden_size, dtype=torch.float16)}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = normal(config.vocab_size, config.hidden_size)
    for i in range(config.num_hidden_layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = torch.ones(config.hidden_size, dtype=torch.float16)
        for name, (columns, rows) in LINEARS.items():
            k, n, key = size[columns], size[rows], f"model.layers.{i}.{name}"
            shape_of = (k // 8, n) if method == "gptq" else (k, n // 8)
            tensors[f"{key}.qweight"] = words(*shape_of)
            # Zero point 8 everywhere (GPTQ's first format stores one less): the weights lie around 0.
            word = 0x77777777 if method == "gptq" else 0x88888888 - 2**32
            tensors[f"{key}.qzeros"] = torch.full((k // group, n // 8), word, dtype=torch.int32)
            tensors[f"{key}.scales"] = torch.full((k // group, n), 0.004, dtype=torch.float16)
            if method == "gptq":
                tensors[f"{key}.g_idx"] = torch.arange(k, dtype=torch.int32) // group
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantization = {
        "bits": 4,
        "group_size": group,
        "desc_act": False,
        "sym": method == "gptq",
        "lm_head": False,
        "quant_method": method,
        "method": method,
        "format": "gptq" if method == "gptq" else "gemm",
        "checkpoint_format": "gptq" if method == "gptq" else "gemm",
        "pack_dtype": "int32",
        "meta": {"quantizer": ["gptqmodel:7.6.0"]},
    }
    if method == "awq":
        quantization |= {"zero_point": True, "version": "gemm"}
    fields = {**config.to_dict(), "architectures": ["LlamaForCausalLM"], "dtype": "float16"}
    (folder / "config.json").write_text(json.dumps({**fields, "quantization_config": quantization}, default=str))
    (folder / "quantize_config.json").write_text(json.dumps(quantization))
    # GPTQModel wants a tokenizer beside the weights; nothing here is ever written or read as text.
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words_only = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, unk_token="<unk>"))
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=words_only, **special).save_pretrained(folder)


def load(kind: str, option, root: Path, device: str):
    """Load the model of one case; return it and the seconds that loading (for bitsandbytes: and quantising) took."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    began = time.perf_counter()
    if kind in ("gptq", "awq"):
        from rocm_guide.quantize.libraries import gptqmodel_load

        model = gptqmodel_load(root / kind, device=device, dtype=torch.float16, backend=option)
    else:
        extra = {}
        if kind == "bnb":
            compute = {"bnb_4bit_compute_dtype": torch.float16} if "load_in_4bit" in option else {}
            extra = {"quantization_config": BitsAndBytesConfig(**option, **compute)}
        model = AutoModelForCausalLM.from_pretrained(
            root / "plain", dtype=torch.float16, device_map={"": device}, trust_remote_code=False, **extra
        )
    if device == "cuda":
        torch.cuda.synchronize()
    return model.eval(), time.perf_counter() - began


def figures(model, device: str, tokens: int, prompt: int) -> dict:
    """Measure prefill and decoding, one row and sixteen, each the median of the runs."""
    import torch

    from rocm_guide.serve.generate import generate_timed

    found = {}
    generator = torch.Generator().manual_seed(1)
    for rows, length in ((1, 128), (16, 128), (1, prompt)):
        ids = torch.randint(4, model.config.vocab_size, (rows, length), generator=generator).to(device)
        if length == prompt:
            made = generate_timed(model, ids, new_tokens=1, runs=5, warmup=1)
            found[f"prompt of {prompt} tokens, s"] = made.first_token.median
        else:
            made = generate_timed(model, ids, new_tokens=tokens, runs=2, warmup=1)
            found[f"tokens/s, {rows} row{'s' * (rows > 1)}"] = made.tokens_per_second
            found[f"s per step, {rows} row{'s' * (rows > 1)}"] = statistics.median(made.step_seconds[1:])
    return found


def plot(report: dict, folder: Path) -> None:
    """Plot the memory and tokens per second of the measured cases, as quantization_7b.png and .svg in ``folder``."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from benchmarks.timing import save_plot
    from rocm_guide.common.plots import bars, house_style

    house_style()
    measured = {label: case for label, case in report["cases"].items() if "reason" not in case}
    fig, axes = plt.subplots(2, 1, figsize=(8.6, 6.6))
    memory = {label: case["model bytes"] / 1e9 for label, case in measured.items()}
    speed = {label: case["tokens/s, 1 row"] for label, case in measured.items()}
    bars(
        memory,
        unit="model in memory (GB)",
        title="Llama-2-7B's shape",
        hardware=report["hardware"],
        ax=axes[0],
        baseline="float16",
    )
    bars(speed, unit="tokens per second, one row, eager", title="", ax=axes[1], baseline="float16")
    save_plot("quantization_7b", fig, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("build/quantization_7b"), help="room for 22 GB of checkpoints"
    )
    parser.add_argument("--shape", choices=("llama-2-7b", "small"), default="llama-2-7b")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--plot", action="store_true", help="measure nothing")
    parser.add_argument("--only", nargs="*", default=[], help="words that the wanted cases contain")
    args = parser.parse_args()
    if args.plot:
        plot(json.loads((args.out / "quantization_7b.json").read_text()), args.out)
        return
    import torch
    from transformers.utils import logging

    from rocm_guide.common.device import accelerator
    from rocm_guide.common.host import host_facts
    from rocm_guide.quantize.libraries import add_libraries

    logging.disable_progress_bar()
    versions = add_libraries()
    import transformers

    device = accelerator().device
    report = {
        "question": __doc__.splitlines()[0],
        "hardware": accelerator().label(),
        "host": host_facts(),
        "shape": args.shape,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, **versions},
        "note": "Eager mode, random weights.",
        "cases": {},
    }
    args.out.mkdir(parents=True, exist_ok=True)
    written = args.out / "quantization_7b.json"
    if written.exists():  # a run of other cases on the same machine is added to
        earlier = json.loads(written.read_text())
        if all(earlier[key] == report[key] for key in ("hardware", "shape", "versions")):
            report["cases"] = earlier["cases"]
    for label, (kind, option) in CASES.items():
        if args.only and not any(word in label for word in args.only):
            continue
        row = report["cases"][label] = {}
        try:
            folder = args.work / ("plain" if kind == "bnb" else kind)
            if not (folder / "config.json").exists():
                began = time.perf_counter()
                if folder.name == "plain":
                    plain_checkpoint(folder, args.shape, device)
                else:
                    packed_checkpoint(folder, args.shape, kind, device)
                print(f"{folder.name} checkpoint in {time.perf_counter() - began:.0f} s", flush=True)
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated() if device == "cuda" else 0
            model, row["load s"] = load(kind, option, args.work, device)
            row["layer"] = type(model.model.layers[0].mlp.down_proj).__name__
            row["disk bytes"] = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
            if device == "cuda":
                row["model bytes"] = torch.cuda.memory_allocated() - before
            row |= figures(model, device, args.tokens, 2048 if device == "cuda" else 32)
            if device == "cuda":
                row["peak bytes"] = torch.cuda.max_memory_allocated() - before
        except Exception as error:  # noqa: BLE001 - a path that fails is a result, and the next one is still wanted
            lines = str(error).strip().splitlines() or [""]
            row["reason"] = f"{type(error).__name__}: {lines[0][:300]}"
        model = None
        print(label, json.dumps(row), flush=True)
        written.write_text(json.dumps(report, indent=1) + "\n")
    if device == "cuda":
        plot(report, args.out)


if __name__ == "__main__":
    main()
