# SPDX-License-Identifier: MIT
"""The fine-tuned model that a notebook starts from; it is made where an earlier notebook has not left it."""

from __future__ import annotations

import gc
import time
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from rocm_guide.common.base import GuideError, shown
from rocm_guide.finetune.passport import RunError, add_stage
from rocm_guide.finetune.run_folder import RunFolder, check_complete
from rocm_guide.finetune.run_measurements import measure_stage
from rocm_guide.models.hub import hub_errors, reach

__all__ = ["adapter_folder", "check_adapter", "check_same", "full_folder", "merged_model", "record"]

#: What notebook 02 adapts, unless told otherwise.
TARGETS = ("q_proj", "v_proj")


def record(
    run: RunFolder,
    stage: str,
    model: Any,
    tokenizer: Any,
    rows: Any,
    *,
    notebook: str,
    settings: dict[str, Any] | None = None,
    training: Any = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Measure a stage and put it into the passport of the run; gives the entry.

    Args:
        stage: its name, "base" or that of its folder in the run.
        settings: what it was made with, as numbers and short texts.
        training: what :func:`rocm_guide.finetune.sft.fine_tune` gave back.
        most: held-out rows that are judged; 108 of the tiny data set, 64 of any other, when None.
    """
    most = most or (108 if run.dataset == "tiny" else 64)
    folder = run.path(stage) if run.has(stage) else None
    found = measure_stage(model, tokenizer, rows, folder=folder, most=most, training=training)
    speed = found["speed"]
    if not speed["training_tokens_per_s"]:  # a run that took the stage over has no training to time
        earlier: dict[str, Any] = next((s for s in run.passport()["stages"] if s["stage"] == stage), {})
        speed["training_tokens_per_s"] = earlier.get("speed", {}).get("training_tokens_per_s") or None
        settings = settings or earlier.get("settings")
    return add_stage(run.folder, stage, notebook, settings=settings or {}, **found)


def check_same(run: RunFolder, stage: str, settings: dict[str, Any]) -> None:
    """Make sure that a kept stage was made with these settings, before anything is trained again.

    Raises:
        RunError: it was made with others; the message names the first one that differs.
    """
    if not run.has(stage):
        return
    kept: dict[str, Any] = next((s.get("settings", {}) for s in run.passport()["stages"] if s["stage"] == stage), {})
    for name, value in settings.items():
        if name in kept and kept[name] != value:
            fix = "give RUN another name, or take the kept one's value"
            raise RunError(f"{run.label}/{stage}: was made with {name} {kept[name]}, not {value}; {fix}")


def check_adapter(folder: str | Path, model: Any, label: str = "") -> int:
    """Make sure that a LoRA adapter belongs to ``model``, by the shapes of its matrices; gives its rank.

    PEFT would say so too, in a hundred lines; and an adapter with matching shapes is the business of the passport.

    Raises:
        RunError: another base model, or half-written weights.
    """
    from peft import load_peft_weights
    from safetensors import SafetensorError, safe_open

    folder, label = Path(folder), label or str(folder)
    if not folder.is_dir():
        raise RunError(f"{shown(label)}: no such folder; name the one that PEFT's save_pretrained wrote")
    pickled = (folder / "adapter_model.bin").is_file()  # older ones; PEFT reads numbers from it, and no code
    if not pickled:
        check_complete(folder, label)
    rank = 0
    try:
        if pickled:
            shapes = {name: tuple(weight.shape) for name, weight in load_peft_weights(str(folder), "cpu").items()}
        else:
            with safe_open(folder / "adapter_model.safetensors", "pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, UnpicklingError) as e:
        raise RunError(f"{label}: its weights cannot be read; delete it, and it is made again") from e
    layers = dict(model.named_modules())
    for name, shape in shapes.items():
        layer_name, mark, _ = name.removeprefix("base_model.model.").partition(".lora_A.")
        if not mark:
            continue
        rank = shape[0]
        layer = layers.get(layer_name)
        columns = getattr(layer, "in_features", getattr(layer, "nx", None))  # nx: of GPT-2's Conv1D
        if columns != shape[1]:
            has = f"{columns} columns there" if columns else "no such layer"
            fix = "load the base model that it was trained on, or give RUN another name"
            raise RunError(f"{label}: belongs to another base model ({layer_name} takes {shape[1]}: {has}); {fix}")
    if not rank:
        raise RunError(f"{label}: has no LoRA matrices; only LoRA adapters are taken here")
    return rank


def merged_model(run: RunFolder, *, train: bool = True, say: Any = print) -> str:
    """Return the model to go on with, the fine-tuned and merged one, as ``load_model`` takes it.

    It is what notebook 03 left in the run. Where only the adapter of notebook 02 is there, it is merged now. Where
    nothing is there, the tiny model is fine-tuned as notebook 02 does it and kept; any other model is taken as it is,
    because training it takes longer than a reader of a later notebook expects.

    Args:
        train: whether the tiny model may be fine-tuned; where it may not, it is taken as it is, too.

    Raises:
        RunError: what is kept there is half-written, or belongs to another model.
    """
    with run.lock("merged"):
        if run.has("merged"):
            check_complete(run.path("merged"), f"{run.label}/merged")
            say(f"{run.label}/merged: the fine-tuned model that an earlier run kept")
            return str(run.path("merged"))
        if not run.has("adapter"):
            if not train or not is_course_run(run):
                say(f"{run.label}: nothing fine-tuned there yet (notebook 02 does that), so {run.model} as it is")
                return run.model
            adapter_folder(run, say=say)
        merge_kept_adapter(run)
        say(f"{run.label}/merged: the adapter merged into its base, and kept")
    return str(run.path("merged"))


def merge_kept_adapter(run: RunFolder) -> None:
    """Merge the run's adapter into a fresh copy of its base and keep the result with its tokenizer.

    Raises:
        RunError: the adapter is half-written or belongs to another base model.
    """
    from peft import PeftModel

    from rocm_guide.models.load import load_model

    base, tokenizer = load_model(run.model, seed=run.seed)
    check_adapter(run.path("adapter"), base, f"{run.label}/adapter")
    try:
        with warnings.catch_warnings():
            # peft 0.21 asks transformers 5.23 by an old name; a reader can do nothing about it.
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
            merged = PeftModel.from_pretrained(base, run.path("adapter")).merge_and_unload()
    except (RuntimeError, ValueError) as e:
        if isinstance(e, GuideError):
            raise
        reason = " ".join(str(e).split())[:160]
        raise RunError(f"{run.label}/adapter: does not fit {run.model} ({reason}); train it again") from e
    with run.keep("merged") as part:
        merged.save_pretrained(part)
        tokenizer.save_pretrained(part)


def is_course_run(run: RunFolder) -> bool:
    """Return whether a run is of the tiny model and its data, which can be trained again in half a minute."""
    return run.model == "tiny" and run.dataset == "tiny"


def adapter_folder(run: RunFolder, own: str = "", *, say: Any = print) -> Path:
    """Return the folder of the run's adapter: what notebook 02 left.

    Where it left none, the tiny model is trained as notebook 02 does it, and its adapter kept. Of any other model an
    adapter is made in four steps: it has the right files and no wisdom, so it is not kept under that name.

    Args:
        own: a folder that PEFT saved, or an id of the hub, taken in place of the run's; a folder need not be there.

    Raises:
        GuideError: the hub does not give it.
    """
    if own:
        place = Path(own).expanduser()
        if place.exists() or own.count("/") != 1 or own.startswith(("/", ".", "~")):
            return place
        from huggingface_hub import snapshot_download

        with hub_errors(own):
            return Path(snapshot_download(own, ignore_patterns="*/*", **reach(own)))
    if run.has("adapter"):
        check_complete(run.path("adapter"), f"{run.label}/adapter")
        say(f"{run.label}/adapter: the adapter that an earlier run kept")
        return run.path("adapter")
    return _trained(run, "adapter", "lora", say)


def full_folder(run: RunFolder, *, say: Any = print) -> Path | None:
    """Return the folder of the run's fully fine-tuned model: what notebook 02 left, or of the tiny model one made now.

    None for any other model that was not trained in full.
    """
    if run.has("full"):
        check_complete(run.path("full"), f"{run.label}/full")
        say(f"{run.label}/full: the fully fine-tuned model that an earlier run kept")
        return run.path("full")
    return _trained(run, "full", "full", say) if is_course_run(run) else None


def _trained(run: RunFolder, stage: str, method: str, say: Any) -> Path:
    """Train as notebook 02 does; of a model that is not the tiny one four steps, into a hidden folder."""
    from peft import LoraConfig

    from rocm_guide.finetune.job import adapter_size
    from rocm_guide.finetune.sft import fine_tune, recipe, sft_settings
    from rocm_guide.models.load import load_data, load_model

    began, whole = time.perf_counter(), is_course_run(run)
    model, tokenizer = load_model(run.model, seed=run.seed)
    rank, alpha = adapter_size(run.model)
    there = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = list(TARGETS) if there.issuperset(TARGETS) else "all-linear"
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.1, target_modules=targets, task_type="CAUSAL_LM")
    data = load_data(run.dataset)
    fields = recipe(run.model, method) | ({} if whole else {"max_steps": 4, "warmup_steps": 0, "packing": False})
    if whole and method == "full":
        fields["num_train_epochs"] = 1
    settings = sft_settings(run.folder / ".trainer", seed=run.seed, **fields)
    done = fine_tune(model, tokenizer, data["train"], settings, adapter=config if method == "lora" else None)
    if not whole:
        folder = run.folder / ".rehearsal"
        done.model.save_pretrained(folder)
        say(f"{run.label}: no {stage} there (notebook 02 makes one), so four steps make one for this notebook")
        return folder
    with run.keep(stage) as part:
        done.model.save_pretrained(part)
        tokenizer.save_pretrained(part)
    made_with: dict[str, Any] = {"method": method}
    if method == "lora":
        made_with |= {"rank": rank, "alpha": alpha}
    record(run, stage, done.model, tokenizer, data["test"], notebook="02", settings=made_with, training=done)
    say(f"{run.label}/{stage}: trained as in notebook 02 ({time.perf_counter() - began:.0f} s), and kept")
    del done, model
    gc.collect()
    return run.path(stage)
