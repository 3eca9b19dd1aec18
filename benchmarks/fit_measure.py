# SPDX-License-Identifier: MIT
"""The measuring half of fit_cases.py: one case in one process, peak device memory of a few real training steps.

    python benchmarks/fit_measure.py '{"model": "llama-2-7b", "method": "lora", "batch": 4, "seq": 512}'

Imports first, then prints "ready" and waits for a line on stdin before it touches the GPU: the parent lets one
process through at a time, while the next ones import. Random weights are made on the GPU (memory does not depend on
their values); training is the course's own :func:`rocm_guide.finetune.fine_tune`.
"""

import gc
import json
import os
import sys
import tempfile
import time
import warnings

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS = 3  # the optimizer's state exists from the second step on


def small_tokenizer():
    """A tokenizer of 1,000 words, made here: the lengths of the rows matter, their words do not."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(1000))])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="left", **special)


def text_rows(rows: int, length: int):
    """``rows`` texts that are all a little longer than ``length`` tokens, so that each is cut to exactly that."""
    import datasets

    texts = [" ".join(f"w{(7 * r + 13 * i) % 1000}" for i in range(length + 8)) for r in range(rows)]
    return datasets.Dataset.from_list([{"text": t} for t in texts])


def random_model(shape: str, dtype, quantised: bool):
    """The shape with random weights on the GPU; for QLoRA its linear layers as NF4 with double quantisation."""
    import torch
    from transformers import AutoModelForCausalLM

    from rocm_guide.zoo_shapes import config_of

    config = config_of(shape, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    if not quantised:
        with torch.device("cuda"):
            return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    import bitsandbytes as bnb
    from transformers import BitsAndBytesConfig
    from transformers.quantizers import AutoHfQuantizer

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or name == "lm_head":
            continue
        four = bnb.nn.Linear4bit(
            layer.in_features, layer.out_features, bias=layer.bias is not None, compute_dtype=dtype,
            compress_statistics=True, quant_type="nf4", device="meta",
        )  # fmt: skip
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


def phases():
    """A callback that notes allocated and peak bytes at each step's three moments."""
    import torch
    from transformers import TrainerCallback

    class Phases(TrainerCallback):
        def __init__(self):
            self.rows = []

        def note(self, what, state):
            torch.cuda.synchronize()
            self.rows.append(
                [state.global_step, what, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
            )

        def on_train_begin(self, args, state, control, **_):
            self.note("prepared", state)
            torch.cuda.reset_peak_memory_stats()
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

    from rocm_guide.finetune import fine_tune, sft_settings

    precision = case.get("precision", "bf16")
    dtype = torch.float32 if precision == "mixed" else torch.bfloat16
    method = case["method"]
    model = random_model(case["model"], dtype, method == "qlora")
    adapter = None
    if method != "full":
        adapter = LoraConfig(
            r=case.get("rank", 16), lora_alpha=32, lora_dropout=case.get("dropout", 0.0),
            target_modules=case.get("targets", SEVEN), task_type="CAUSAL_LM",
        )  # fmt: skip
    changes = {
        "per_device_train_batch_size": case["batch"],
        "max_length": case["seq"],
        "max_steps": STEPS,
        "bf16": True,
        "use_liger_kernel": case.get("liger", True),
        "dataloader_num_workers": 0,
        "learning_rate": 1e-5,
    }
    if case.get("gpus", 1) > 1:
        changes["fsdp"] = True
        own = bool(case.get("checkpointing"))  # FSDP's own checkpointing gathers each layer once less
        changes["fsdp_config"] = {"version": 2, "reshard_after_forward": True, "activation_checkpointing": own}
        changes["average_tokens_across_devices"] = False
    watch = phases()
    with tempfile.TemporaryDirectory() as folder:
        settings = sft_settings(folder, **changes)
        name = "activation_checkpointing" if hasattr(settings, "activation_checkpointing") else "gradient_checkpointing"
        if case.get("checkpointing") and case.get("gpus", 1) == 1:
            with warnings.catch_warnings():
                settings = sft_settings(folder, **changes, **{name: True})
        torch.cuda.reset_peak_memory_stats()
        run = fine_tune(model, tokenizer, rows, settings, adapter=adapter, callbacks=[watch])
    return {
        "peak": max(run.peak_bytes, max(r[3] for r in watch.rows[1:])) if case.get("gpus", 1) == 1 else max(
            r[3] for r in watch.rows[1:]
        ),
        "trainable": run.trainable,
        "total": run.total,
        "losses": run.losses,
        "seconds": round(run.seconds, 2),
        "phases": watch.rows,
    }  # fmt: skip


def generate(case: dict, tokenizer, rows) -> dict:
    import torch

    model = random_model(case["model"], torch.bfloat16, case["method"] == "qlora").eval()
    prompt = torch.randint(3, 1000, (case["batch"], case["seq"]), device="cuda")
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=case["new"], min_new_tokens=case["new"],
        do_sample=False,
    )  # fmt: skip
    torch.cuda.synchronize()
    assert out.shape[1] == case["seq"] + case["new"]
    return {"peak": torch.cuda.max_memory_allocated(), "weights": start}


def main() -> None:
    case = json.loads(sys.argv[1])
    warnings.filterwarnings("ignore", category=FutureWarning)
    import peft
    import torch
    import transformers
    import trl

    from rocm_guide.device import accelerator

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    tokenizer = small_tokenizer()
    rows = text_rows(case["batch"] * STEPS * world, case["seq"])
    print("ready", flush=True)
    if world == 1:
        sys.stdin.readline()
    began = time.perf_counter()
    result = {"case": case}
    try:
        result |= (generate if case["method"] == "generate" or case.get("new") else train)(case, tokenizer, rows)
        result["outcome"] = "ran"
    except torch.OutOfMemoryError as error:
        result |= {"outcome": "out of memory", "error": str(error).split(". ")[0]}
    result["reserved"] = torch.cuda.max_memory_reserved()
    free, whole = torch.cuda.mem_get_info()
    result["outside_torch"] = whole - free - torch.cuda.memory_reserved()
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
