# SPDX-License-Identifier: MIT
"""The input of a torchtune recipe: a YAML configuration, a model on disk, a JSON data set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import GuideError, write_text

__all__ = ["lora_config", "model_on_disk", "write_config", "write_rows"]


def lora_config(
    model: str | Path,
    rows: str | Path,
    output: str | Path,
    *,
    rank: int = 16,
    alpha: float | None = None,
    batch_size: int = 16,
    accumulation: int = 1,
    epochs: int = 3,
    learning_rate: float = 5e-3,
    device: str = "cpu",
    seed: int = 0,
) -> dict[str, Any]:
    """Return a configuration for ``lora_finetune_single_device`` and ``lora_finetune_distributed``: LoRA on q and v.

    Every part is named by ``_component_``, the import path of a class or function, followed by its arguments. The
    model is described by the numbers in the folder's ``config.json``, so any Llama-2-like folder will do.

    Args:
        model: folder with ``config.json``, safetensors weights and a tokenizer, as ``save_pretrained`` writes it.
        rank, alpha: of the adapter; alpha is twice the rank when it is None.
        batch_size, accumulation: rows per process at a time, and how many such batches make one optimizer step.
        device: "cpu" or "cuda". On a CPU the weights are float32, on a GPU bfloat16.

    Raises:
        GuideError: the folder lacks config.json or safetensors weights, or the rank is not positive.

    Source: torchtune 0.6.1, recipes/configs/llama2/7B_lora.yaml.

    >>> from rocm_guide.models.tiny import tiny_folder
    >>> c = lora_config(tiny_folder(), "rows.json", "out")
    >>> c["model"]["num_layers"], c["model"]["lora_attn_modules"], c["checkpointer"]["checkpoint_files"]
    (3, ['q_proj', 'v_proj'], ['model.safetensors'])
    """
    model, output = Path(model), Path(output)
    weights = sorted(p.name for p in model.glob("*.safetensors") if not p.name.startswith("adapter"))
    if not (model / "config.json").is_file() or not weights:
        raise GuideError(f"{model}: needs config.json and safetensors weights; name what save_pretrained wrote")
    if rank < 1:
        raise GuideError(f"rank={rank}: a LoRA rank is 1 or more, for example 16")
    shape = json.loads((model / "config.json").read_text(encoding="utf-8"))
    tokenizer: dict[str, Any] = {
        "_component_": "rocm_guide.finetune.torchtune.tokenizer.ChatTokenizer",
        "path": str(model),
    }
    if (model / "tokenizer.model").is_file():  # Llama 2 as published: torchtune's own SentencePiece tokenizer
        tokenizer = {
            "_component_": "torchtune.models.llama2.llama2_tokenizer",
            "path": str(model / "tokenizer.model"),
            "prompt_template": "torchtune.models.llama2.Llama2ChatTemplate",
        }
    gpu = device.startswith("cuda")
    return {
        "output_dir": str(output),
        "model": {
            "_component_": "torchtune.models.llama2.lora_llama2",
            "lora_attn_modules": ["q_proj", "v_proj"],
            "apply_lora_to_mlp": False,
            "apply_lora_to_output": False,
            "lora_rank": rank,
            "lora_alpha": alpha or 2 * rank,
            "lora_dropout": 0.0,
            "vocab_size": shape["vocab_size"],
            "num_layers": shape["num_hidden_layers"],
            "num_heads": shape["num_attention_heads"],
            "num_kv_heads": shape.get("num_key_value_heads") or shape["num_attention_heads"],
            "embed_dim": shape["hidden_size"],
            "intermediate_dim": shape["intermediate_size"],
            "max_seq_len": shape["max_position_embeddings"],
            "norm_eps": shape["rms_norm_eps"],
        },
        "tokenizer": {**tokenizer, "max_seq_len": min(512, shape["max_position_embeddings"])},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": str(model),
            "checkpoint_files": weights,
            "output_dir": "${output_dir}",
            "model_type": "LLAMA2",
        },
        "dataset": {
            "_component_": "torchtune.datasets.instruct_dataset",
            "source": "json",
            "data_files": str(rows),
            "split": "train",
            "column_map": {"input": "question", "output": "answer"},
            "train_on_input": False,
            "packed": False,
        },
        "seed": seed,
        "shuffle": True,
        "batch_size": batch_size,
        "epochs": epochs,
        "max_steps_per_epoch": None,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"_component_": "torch.optim.AdamW", "lr": learning_rate, "weight_decay": 0.0, "fused": gpu},
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": 10,
        },
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "clip_grad_norm": 1.0,
        "device": device,
        "dtype": "bf16" if gpu else "fp32",
        "compile": False,
        "enable_activation_checkpointing": False,
        "resume_from_checkpoint": False,
        "save_adapter_weights_only": False,
        "metric_logger": {
            "_component_": "torchtune.training.metric_logging.DiskLogger",
            "log_dir": "${output_dir}/logs",
            "filename": "metrics.txt",
        },
        "log_every_n_steps": 1,
        "log_peak_memory_stats": gpu,
    }


def model_on_disk(spec: str, folder: str | Path) -> Path:
    """Return the folder of the model ``spec``: torchtune reads files, not names.

    Args:
        spec: as :func:`rocm_guide.models.load.load_model` takes it. A hub model must be in its cache; random weights
            are written to ``folder``, in bfloat16.

    Raises:
        GuideError: the spec means nothing, or the hub model is not in the cache.

    >>> model_on_disk("tiny", "unused").name[:5]
    'tiny-'
    """
    from rocm_guide.models.load import checkpoint, load_model

    if not spec.startswith("random:"):
        from huggingface_hub import snapshot_download

        source = checkpoint(spec, folder)
        if Path(source).is_dir():
            return Path(source)
        try:
            return Path(snapshot_download(source, local_files_only=True))
        except (OSError, ValueError) as e:
            raise GuideError(f"{spec}: not in the hub's cache; run `hf download {spec}` first") from e
    model, tokenizer = load_model(spec, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def write_config(path: str | Path, values: Mapping[str, Any]) -> Path:
    """Write a configuration as YAML, in the order of ``values``, and return its path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     print(write_config(f"{d}/a.yaml", {"epochs": 1, "optimizer": {"lr": 0.1}}).read_text())
    epochs: 1
    optimizer:
      lr: 0.1
    <BLANKLINE>
    """
    import yaml

    return write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=110))


def write_rows(path: str | Path, rows: Any) -> int:
    """Write ``question`` and ``answer`` of each row as one JSON list, as torchtune reads it; returns their number.

    Args:
        rows: a data set, or dictionaries. Columns of other names are mapped where
            :func:`rocm_guide.models.columns.training_rows` knows them; each answer of a conversation is a row.

    Raises:
        GuideError: there are no rows, the columns are unknown, or a row has no question or no answer.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_rows(f"{d}/rows.json", [{"question": "Why?", "answer": "So.", "id": 1}])
    1
    """
    from datasets import Dataset

    from rocm_guide.models.columns import training_rows

    if not len(rows):
        raise GuideError("there are no rows to write; check the split and the filter that made them")
    known = rows if isinstance(rows, Dataset) else Dataset.from_list([dict(row) for row in rows])
    if not {"question", "answer"} <= set(known.column_names):
        known = training_rows(known)
    kept = []
    for i, row in enumerate(known):
        question, answer = _asked(dict(row))
        if not question or not answer:
            raise GuideError(f"row {i} has no {'answer' if question else 'question'}; leave such rows out")
        kept.append({"question": question, "answer": answer})
    write_text(path, json.dumps(kept, ensure_ascii=False, indent=0))
    return len(kept)


def _asked(row: dict[str, Any]) -> tuple[str, str]:
    """Return (question, answer) without the marks of Llama 2's format, which the recipe's tokenizer adds.

    >>> _asked({"text": "<s>[INST] 1 + 1? [/INST] 2 </s>"})
    ('1 + 1?', '2')
    """
    from rocm_guide.models.columns import held_out_pair

    if {"question", "answer"} <= set(row):
        return str(row["question"] or ""), str(row["answer"] or "")
    prompt, answer = held_out_pair(row, None)
    return prompt.removeprefix("[INST]").removesuffix("[/INST]").strip(), answer.strip().removesuffix("</s>").strip()
