# SPDX-License-Identifier: MIT
"""The measuring half of cases.py: one case in one process, peak device memory of a few real training steps.

    python -m benchmarks.memory.measure '{"model": "llama-2-7b", "method": "lora", "batch": 4, "seq": 512}'

Imports first, then prints "ready" and waits for a line on stdin before it touches the GPU: the parent lets one
process through at a time, while the next ones import. Random weights are made on the GPU (memory does not depend on
their values); training is the course's own :func:`rocm_guide.finetune.sft.fine_tune`.
"""

import gc
import json
import os
import sys
import tempfile
import time
import warnings

STEPS = 3  # the optimizer's state exists from the second step on


def small_tokenizer():
    """Make a tokenizer of 1,000 words: the lengths of the rows matter, their words do not."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(1000))])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **special)


def text_rows(rows: int, length: int):
    """Return ``rows`` texts that are all a little longer than ``length`` tokens,
    so that each is cut to exactly that.
    """
    import datasets

    texts = [" ".join(f"w{(7 * r + 13 * i) % 1000}" for i in range(length + 8)) for r in range(rows)]
    return datasets.Dataset.from_list([{"text": t} for t in texts])


#: What the cases become on a machine without a GPU: every step of the script, small.
DRY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_local_experts": 4,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 2,
    "ffn_dim": 96,
    "word_embed_proj_dim": 64,
}


def config_for(case: dict):
    """Return the configuration of a case: a shape, with fewer layers if it says so, in miniature for a dry run."""
    from rocm_guide.models.shapes import SHAPES, config_of

    changes = {"num_hidden_layers": case["layers"]} if "layers" in case else {}
    if case.get("dry"):
        changes = {name: value for name, value in DRY.items() if name in SHAPES[case["model"]]}
    return config_of(case["model"], bos_token_id=1, eos_token_id=2, pad_token_id=0, **changes)


def device_of(case: dict) -> str:
    return "cpu" if case.get("dry") else "cuda"


class Gpu:
    """The calls of torch.cuda that are used here; on a CPU they do nothing and count nothing."""

    def __init__(self, case: dict) -> None:
        import torch

        self.cuda = None if case.get("dry") else torch.cuda

    def __getattr__(self, name: str):
        return getattr(self.cuda, name) if self.cuda else lambda *a: (0, 0) if name == "mem_get_info" else 0


def int8_linears(model):
    """Make every linear layer of the layers int8 with an fp32 scale a row, unpacked to bf16 for each product."""
    import torch

    class Int8(torch.nn.Module):
        def __init__(self, like) -> None:
            super().__init__()
            scale = like.weight.abs().amax(1, keepdim=True).float() / 127
            self.register_buffer("weight", (like.weight / scale).round().to(torch.int8))
            self.register_buffer("scale", scale)

        def forward(self, x):
            return torch.nn.functional.linear(x, self.weight.to(x.dtype).mul_(self.scale))

    with torch.no_grad():  # a scale with a history would keep its bf16 weight alive
        for name, layer in list(model.named_modules()):
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                model.set_submodule(name, Int8(layer))
    gc.collect()
    return model


def random_model(case: dict, dtype):
    """Make a model of the shape with random weights on the GPU;
    for QLoRA its linear layers as NF4 with double quantisation.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = config_for(case)
    if case["method"] != "qlora":
        with torch.device(device_of(case)):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
        return int8_linears(model) if case.get("quantised") == "int8" else model
    import bitsandbytes as bnb
    from transformers import BitsAndBytesConfig
    from transformers.quantizers import AutoHfQuantizer

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or name == "lm_head":
            continue
        four = bnb.nn.Linear4bit(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            compute_dtype=dtype,
            compress_statistics=True,
            quant_type="nf4",
            device="meta",
        )
        weight = torch.randn(layer.weight.shape, device="cuda", dtype=dtype) * 0.02
        four.weight = bnb.nn.Params4bit(
            weight, requires_grad=False, compress_statistics=True, quant_type="nf4", module=four
        ).to("cuda")
        if layer.bias is not None:
            four.bias = torch.nn.Parameter(torch.zeros(layer.out_features, device="cuda", dtype=dtype))
        model.set_submodule(name, four)
        del weight
    for module in model.modules():
        for key, value in list(module._parameters.items()):
            if value is not None and value.is_meta:
                full = torch.randn(value.shape, device="cuda", dtype=dtype) * 0.02
                module._parameters[key] = torch.nn.Parameter(full, requires_grad=False)
    with torch.device("cuda"):  # its buffers are computed, not stored
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    # What from_pretrained leaves behind, and by which TRL and PEFT know a quantised model.
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    model.hf_quantizer = AutoHfQuantizer.from_config(four_bits, pre_quantized=False)
    model.is_loaded_in_4bit = model.is_quantized = True
    model.config.quantization_config = four_bits
    model.quantization_method = "bitsandbytes"
    gc.collect()
    torch.cuda.empty_cache()
    return model


def phases(gpu):
    """Return a callback that notes allocated and peak bytes at each step's three moments."""
    from transformers import TrainerCallback

    class Phases(TrainerCallback):
        def __init__(self):
            self.rows = []

        def note(self, what, state):
            gpu.synchronize()
            self.rows.append([state.global_step, what, gpu.memory_allocated(), gpu.max_memory_allocated()])

        def on_train_begin(self, args, state, control, **_):
            self.note("prepared", state)
            gpu.reset_peak_memory_stats()
            self.note("begin", state)

        def on_pre_optimizer_step(self, args, state, control, **_):
            self.note("backward", state)

        def on_optimizer_step(self, args, state, control, **_):
            self.note("optimizer", state)

        def on_step_end(self, args, state, control, **_):
            self.note("end", state)

    return Phases()


def train(case: dict, tokenizer, rows) -> dict:
    import torch
    from peft import LoraConfig

    from rocm_guide.finetune.sft import fine_tune, sft_settings
    from rocm_guide.models.sizes import sizes_of

    precision = case.get("precision", "bf16")
    dtype = torch.float32 if precision == "mixed" else torch.bfloat16
    method = case["method"]
    gpu, dry = Gpu(case), bool(case.get("dry"))
    model = random_model(case, dtype)
    adapter = None
    if method != "full":
        adapter = LoraConfig(
            r=case.get("rank", 16),
            lora_alpha=32,
            lora_dropout=case.get("dropout", 0.0),
            target_modules=case.get("targets") or list(sizes_of(model.config).lora_targets()),
            task_type="CAUSAL_LM",
        )
    changes = {
        "per_device_train_batch_size": case["batch"],
        "max_length": case["seq"],
        "max_steps": STEPS,
        "bf16": True,
        "use_liger_kernel": case.get("liger", True) and not dry,
        "use_cpu": dry,
        "dataloader_num_workers": 0,
        "learning_rate": 1e-5,
    }
    if case.get("gpus", 1) > 1:
        changes["fsdp"] = True
        own = bool(case.get("checkpointing"))  # FSDP's own checkpointing gathers each layer once less
        changes["fsdp_config"] = {"version": 2, "reshard_after_forward": True, "activation_checkpointing": own}
        changes["average_tokens_across_devices"] = False
    watch = phases(gpu)
    with tempfile.TemporaryDirectory() as folder:
        settings = sft_settings(folder, **changes)
        name = "activation_checkpointing" if hasattr(settings, "activation_checkpointing") else "gradient_checkpointing"
        if case.get("checkpointing") and case.get("gpus", 1) == 1:
            with warnings.catch_warnings():
                settings = sft_settings(folder, **{**changes, name: True})
        gpu.reset_peak_memory_stats()
        run = fine_tune(model, tokenizer, rows, settings, adapter=adapter, callbacks=[watch])
    if dry:
        return {"peak": 0, "trainable": run.trainable, "total": run.total, "losses": run.losses}
    return {
        "peak": max(run.peak_bytes, max(r[3] for r in watch.rows[1:]))
        if case.get("gpus", 1) == 1
        else max(r[3] for r in watch.rows[1:]),
        "trainable": run.trainable,
        "total": run.total,
        "losses": run.losses,
        "seconds": round(run.seconds, 2),
        "phases": watch.rows,
    }


def generate(case: dict, tokenizer, rows) -> dict:
    import torch

    gpu = Gpu(case)
    model = random_model(case, torch.bfloat16).eval()
    gpu.empty_cache()
    prompt = torch.randint(3, 1000, (case["batch"], case["seq"]), device=device_of(case))
    gpu.synchronize()
    start = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=case["new"],
        min_new_tokens=case["new"],
        do_sample=False,
    )
    gpu.synchronize()
    assert out.shape[1] == case["seq"] + case["new"]
    return {"peak": gpu.max_memory_allocated(), "weights": start}


def main() -> None:
    case = json.loads(sys.argv[1])
    if case.get("dry"):
        case |= {"batch": 2, "seq": min(case["seq"], 32)}
    warnings.filterwarnings("ignore", category=FutureWarning)
    import peft
    import torch
    import transformers
    import trl

    from rocm_guide.common.device import accelerator

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tokenizer = small_tokenizer()
    rows = text_rows(case["batch"] * STEPS * world, case["seq"])
    print("ready", flush=True)
    if world == 1:
        sys.stdin.readline()
    began = time.perf_counter()
    result, gpu = {"case": case}, Gpu(case)
    try:
        result |= (generate if case["method"] == "generate" or case.get("new") else train)(case, tokenizer, rows)
        result["outcome"] = "ran"
    except torch.OutOfMemoryError as error:
        result |= {"outcome": "out of memory", "error": str(error).split(". ")[0]}
    result["reserved"] = gpu.max_memory_reserved()
    free, whole = gpu.mem_get_info()
    result["outside_torch"] = whole - free - gpu.memory_reserved()
    result["device_bytes"] = whole
    result["hardware"] = accelerator().label()
    result["wall"] = round(time.perf_counter() - began, 2)
    result["versions"] = {m.__name__: m.__version__ for m in (torch, transformers, trl, peft)}
    if rank == 0:
        print("RESULT " + json.dumps(result), flush=True)
    if world > 1 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
