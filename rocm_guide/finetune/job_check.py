# SPDX-License-Identifier: MIT
"""Check that a model, a data set and the knobs fit together and into this machine, before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rocm_guide.common.base import GuideError, shown
from rocm_guide.common.device import accelerator, free_memory, pick_dtype
from rocm_guide.finetune.job import adapter_size
from rocm_guide.models.columns import is_chat, kind_of
from rocm_guide.models.layer import SizesError
from rocm_guide.models.load import load_data, load_tokenizer, meta_model
from rocm_guide.models.memory_planner import FRAGMENTED, fit, trains
from rocm_guide.models.sizes import Sizes, sizes_of
from rocm_guide.models.sources import config_fields
from rocm_guide.models.work import Workload
from rocm_guide.quantize.held_out import LOGITS_AT_ONCE

__all__ = ["check_job", "usual_group"]

#: Families that a library cannot do: GPTQModel 7.6 calls Gemma 3's rotary embedding without the kind of layer.
_REFUSED = {"awq": ("gemma3", "gemma3_text", "gemma3n", "gemma3n_text")}
LIBRARIES = ("gptqmodel", "awq", "bitsandbytes", "torchtune")
_GROUPS = (1024, 512, 256, 128, 64, 32, 16)


def check_job(
    model: str,
    dataset: str | None = "tiny",
    copies: float = 1,
    training: bool | str = False,
    group: int | None = None,
    calibration_tokens: int | None = None,
    chat: bool = False,
    library: str | None = None,
    *,
    targets: Iterable[str] | str | None = None,
    rank: int = 0,
    batch: int = 0,
    length: int = 0,
    checkpointing: bool = False,
) -> None:
    """Check that a notebook can do its work with these knobs, and print one line: what it takes, and what is free.

    Nothing is loaded but the configuration, the tokenizer and the data set. Memory is computed: the weights in the
    type that :func:`rocm_guide.models.load.load_model` would choose, ``copies`` times, the logits that are there at
    once, and for training what :func:`rocm_guide.models.memory_planner.fit` adds for gradients, optimizer and
    activations (twice that where the type is float32). It is compared with what is free on this device now.

    Args:
        model: as :func:`rocm_guide.models.load.load_model` takes it.
        dataset: as :func:`rocm_guide.models.load.load_data` takes it; None if the notebook takes none.
        copies: copies of the weights in memory at the same time; 1.3 for a 16-bit model and a 4-bit one.
        training: False, True or "lora" (an adapter), or "full" (every weight).
        group: columns of a matrix that share one scale, when quantising; -1 for whole rows.
        calibration_tokens: tokens that a quantisation looks at; fewer than a matrix has columns is warned of.
        chat: whether messages are put into the model's chat template.
        library: "gptqmodel", "awq" (as GPTQModel does it), "bitsandbytes" or "torchtune".
        targets: names of the matrices that LoRA adapts, or "all-linear".
        rank: of the adapter; 0 as in :func:`rocm_guide.finetune.job.adapter_size`.
        batch, length: rows and tokens of a row that are trained on at a time; 0 takes 4 and 512.
        checkpointing: whether activations are computed again in the backward pass.

    Raises:
        GuideError: what does not fit, in one line: the knob, its value, and values that work.

    >>> check_job("random:phi-3-mini", None, targets=["q_proj", "v_proj"])
    Traceback (most recent call last):
        ...
    cdna.base.InputError: TARGETS: phi3 has no q_proj, v_proj; choose from o_proj, qkv_proj, gate_up_proj, \
down_proj, or 'all-linear'
    """
    if library is not None and library not in LIBRARIES:
        raise GuideError(f"library={library!r}: choose one of {', '.join(LIBRARIES)}")
    fields = config_fields(model)
    kind = str(fields.get("model_type"))
    _check_family(kind, fields, library)
    if targets is not None:
        _check_targets(model, kind, targets)
    try:
        sizes = sizes_of(fields)
    except SizesError:
        sizes = None  # another family: what depends on its matrices is not checked, its weights are counted below
    widest = _check_group(model, sizes, group) if sizes else 0
    _check_data(model, dataset, chat)
    if calibration_tokens is not None and calibration_tokens < widest:
        print(
            f"[WARN] {calibration_tokens:,} calibration tokens for matrices of up to {widest:,} columns: an error "
            "measured on them says little about other text; take more rows or longer ones"
        )
    work: dict[str, Any] = {}
    if training:
        work = {
            "method": "lora" if training is True else training,
            "batch": batch or 4,
            "seq": length or 512,
            "kernels": "torch",
        }
        names = () if targets is None or isinstance(targets, str) else tuple(t.split(".")[-1] for t in targets)
        work |= {"rank": adapter_size(model, rank)[0], "targets": names, "checkpointing": checkpointing}
    _check_memory(model, fields, sizes, copies, work)


def _check_family(kind: str, fields: Mapping[str, Any], library: str | None) -> None:
    """Refuse a family that a library cannot do, with what was seen to fail."""
    if kind in _REFUSED.get(library or "", ()):
        fix = "its layers take two kinds of positions, and GPTQModel gives one; take GPTQ (notebook 10)"
        raise GuideError(f"MODEL: AWQ of the family {kind} is not possible: {fix}")
    if library == "torchtune":
        rope = (fields.get("rope_parameters") or {}).get("rope_theta") or fields.get("rope_theta") or 10000.0
        if kind != "llama" or fields.get("tie_word_embeddings") or rope != 10000.0:
            fix = "its recipe here builds Llama 2's layers; take a Llama 2 or TinyLlama, or TRL (notebook 02)"
            tied = ", tied embeddings" if fields.get("tie_word_embeddings") else ""
            raise GuideError(f"MODEL: torchtune cannot train this one ({kind}{tied}, rope_theta {rope:g}): {fix}")


def _check_targets(model: str, kind: str, targets: Iterable[str] | str) -> None:
    """Make sure that each target is the end of a name of a linear layer, as PEFT compares them."""
    if isinstance(targets, str):
        if targets != "all-linear":
            raise GuideError(f"TARGETS={targets!r}: give a list of names such as ['q_proj', 'v_proj'], or 'all-linear'")
        return
    layers = [n for n, m in meta_model(model).named_modules() if type(m).__name__ in ("Linear", "Conv1D")]
    missing = [t for t in targets if not any(n == t or n.endswith(f".{t}") for n in layers)]
    if missing or not targets:
        # Outside the decoder's layers there is one more, the output layer, which "all-linear" leaves out too.
        own = dict.fromkeys(n.rpartition(".")[2] for n in layers if any(part.isdigit() for part in n.split(".")))
        said = f"{kind} has no {shown(', '.join(missing), 80)}" if missing else "the list is empty"
        raise GuideError(f"TARGETS: {said}; choose from {', '.join(own)}, or 'all-linear'")


def usual_group(model: str, most: int = 128) -> int:
    """Return how many columns are to share a scale: ``most``, or what below it divides the columns of every matrix.

    >>> usual_group("random:llama-2-7b"), usual_group("random:tinyllama-1.1b", most=512)
    (128, 512)
    """
    try:
        divisor = math.gcd(*_columns(sizes_of(config_fields(model))))
    except SizesError:
        return most  # nobody knows its matrices: the library will say what it cannot do
    return next((g for g in _GROUPS if g <= most and divisor % g == 0), -1)


def _columns(sizes: Sizes) -> dict[int, str]:
    """Return the numbers of columns of the decoder's matrices, each with the name of a matrix that has so many."""
    columns: dict[int, str] = {}
    for layer, _ in sizes.groups:
        named = reversed([*layer.matrices.items()])
        columns |= {inputs: name.rpartition(".")[2] for name, (inputs, _) in named}
        if layer.experts:
            columns |= {layer.expert_inner: "an expert", sizes.hidden: "an expert"}
    return columns


def _check_group(model: str, sizes: Sizes, group: int | None) -> int:
    """Refuse a group that does not divide the columns of every matrix; return the most columns of one."""
    columns = _columns(sizes)
    if group is not None and group != -1:
        works = [str(g) for g in _GROUPS if math.gcd(*columns) % g == 0]
        uneven = next((n for n in sorted(columns) if group < 1 or n % group), None)
        if uneven is not None:
            fix = f"take {', '.join(works)}" if works else "take -1, a whole row"
            raise GuideError(
                f"GROUP={group}: does not divide the {uneven} columns of {columns[uneven]} ({model}); {fix}"
            )
    return max(columns)


def _check_data(model: str, dataset: str | None, chat: bool) -> None:
    """Refuse unknown columns, and conversations or messages for a model that has no chat template."""
    rows = None if dataset is None else load_data(dataset)["train"]
    why = "messages are to be put into it" if chat else ""
    if rows is not None:
        kind_of(rows.column_names)
        if is_chat(rows):
            why = f"DATASET={shown(dataset, 80)} holds conversations"
    if why and not getattr(load_tokenizer(model), "chat_template", None):
        fix = "take its chat or instruct variant" + ("" if chat else ", or data with prompt and completion, or text")
        raise GuideError(f"MODEL={shown(model)}: has no chat template, and {why}; {fix}")


def _check_memory(model: str, fields: dict[str, Any], sizes: Sizes | None, copies: float, work: dict[str, Any]) -> None:
    """Compare what the job takes with what is free on this device, and print it."""
    machine, free = accelerator(), free_memory()
    number = pick_dtype().itemsize
    if sizes is None:
        parameters = sum(p.numel() for p in meta_model(model).parameters())
        weights, vocabulary = number * parameters, int(fields.get("vocab_size") or 0)
    else:
        parameters, vocabulary = sizes.parameters, sizes.vocab
        weights = sizes.stored_bytes if sizes.quantised else number * parameters
    # The logits themselves, and in float32 once more for the loss and its logarithms.
    logits = min(LOGITS_AT_ONCE, 1024 * vocabulary) * (number + 8)
    parts = {f"{copies:g} x weights": copies * weights, "logits": logits}
    if work:
        parts["training"] = _training_bytes(fields, sizes, parameters, work) * number // 2
    total = sum(parts.values()) * (1 + (FRAGMENTED if machine.is_gpu else 0))
    said = " + ".join(f"{name} {size / 1e9:,.2f}" for name, size in parts.items())
    line = f"{said} = {total / 1e9:,.2f} GB, and {free / 1e9:,.1f} GB are free ({machine.name})"
    if free and total > free:
        knobs = "a smaller MODEL" + (", BATCH or LENGTH" if work else "")
        knobs += ", or FULL=False" if work.get("method") == "full" else ""
        raise GuideError(f"MODEL={shown(model)}: does not fit: {line}; take {knobs}")
    print(f"[OK]   {shown(model)} fits: {line}")


def _training_bytes(fields: dict[str, Any], sizes: Sizes | None, parameters: int, work: dict[str, Any]) -> int:
    """Return the bytes beside the weights at the peak of a step in bfloat16; activations only where somebody counts."""
    if sizes is None or not trains(sizes):
        return 6 * parameters if work["method"] == "full" else parameters // 10
    plan = fit(fields, Workload(**work))
    return sum(size for name, size in plan.parts.items() if name != "parameters")
