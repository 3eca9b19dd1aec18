# SPDX-License-Identifier: MIT
"""Models and data sets by one word: ``tiny``, ``smollm2``, ``random:SHAPE`` (random weights), a hub id, or a path."""

from __future__ import annotations

import codecs
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_guide.common.base import GuideError, shown, write_text
from rocm_guide.models.course_data import question_answer_splits
from rocm_guide.models.hub import hub_errors, reach
from rocm_guide.models.layer import SizesError, reason_of
from rocm_guide.models.shapes import config_of
from rocm_guide.models.sources import checked_source, config_fields, data_format, with_ready_kernel
from rocm_guide.models.tiny import tiny_folder

if TYPE_CHECKING:
    import torch
    from datasets import DatasetDict
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["checkpoint", "config_from", "load_data", "load_model", "load_tokenizer", "meta_model"]


def load_model(
    spec: str = "tiny", *, dtype: torch.dtype | None = None, device: str | None = None, seed: int = 0, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer, fresh at every call.

    Args:
        spec: ``tiny``, ``smollm2`` (a real chat model of 135 million parameters), ``random:SHAPE``, a hub id, or a
            folder.
        dtype: type of the weights; :func:`rocm_guide.common.device.pick_dtype` decides when it is None.
        device: "cpu", "cuda", "cuda:1"; the accelerator of this machine when it is None. Pass ``device_map`` in
            ``options`` instead to spread a hub model over several devices.
        seed: of the tiny model's training, and of random weights.
        options: passed to ``from_pretrained`` for a hub id or a folder (``attn_implementation``, ``device_map``, …).
            A GPTQ or AWQ checkpoint in a folder gets a kernel that need not be compiled
            (:func:`rocm_guide.models.sources.with_ready_kernel`) where ``quantization_config`` names none.

    Raises:
        GuideError: the spec means nothing, the model brings Python code of its own, the hub cannot be reached and the
            model is not in its cache, or the library for its quantised weights cannot be imported.

    Python code of a model is never run. A folder whose configuration names such code (``auto_map``) is refused. A hub
    model that names it is loaded with transformers' own class where there is one for its ``model_type``, and is
    refused where there is none.
    """
    from rocm_guide.common.device import accelerator, pick_dtype

    if options.pop("trust_remote_code", False):
        raise GuideError(f"{spec}: trust_remote_code=True: Python code of a model is never run here; leave it out")
    device = device or accelerator().device
    dtype = dtype or pick_dtype(device)
    if spec.startswith("random:"):
        return _random_model(spec.removeprefix("random:"), dtype, device, seed, options), load_tokenizer("tiny")
    from transformers import AutoConfig, AutoModelForCausalLM

    source = str(tiny_folder(seed)) if spec == "tiny" else checked_source(spec)
    options |= {"dtype": dtype, **reach(source)}
    with hub_errors(spec):
        if Path(source).is_dir():
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            if recipe := getattr(config, "quantization_config", None):
                options.setdefault("device_map", device)  # such a model may refuse to be moved afterwards
                if device != "cpu" and "quantization_config" not in options:
                    config.quantization_config = with_ready_kernel(recipe)
                    options.setdefault("config", config)
        model = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False, **options)
        model = model if "device_map" in options else model.to(device)
    # Every seed of the tiny model has the same tokenizer: take the one at hand.
    return model.eval(), load_tokenizer(source)


def checkpoint(spec: str, folder: str | Path) -> str:
    """Return what ``from_pretrained`` takes for ``spec``: a folder with model and tokenizer, or a hub id.

    Nothing is loaded for it, except where there are no files yet: random weights are made, and put to ``folder`` in
    one rename. Those of the same ``spec`` stay: another notebook of the run may be reading them.

    Raises:
        GuideError: as :func:`load_model`; ``folder`` holds something else.

    >>> Path(checkpoint("tiny", "not-needed"), "config.json").is_file()
    True
    """
    if not spec.startswith("random:"):
        return str(tiny_folder()) if spec == "tiny" else checked_source(spec)
    folder = Path(folder)
    mark = folder / ".made-of"

    def there() -> bool:
        return mark.is_file() and mark.read_text(encoding="utf-8") == spec

    if not there():
        model, tokenizer = load_model(spec)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as work:
            made = Path(work, "made")
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            write_text(made / mark.name, spec)
            if mark.is_file():  # another model's
                shutil.rmtree(folder, ignore_errors=True)
            try:
                made.rename(folder)
            except OSError as e:
                if not there():  # else another notebook was first
                    raise GuideError(f"{folder}: {spec} needs a folder of its own ({e.strerror}); name one") from e
    return str(folder)


def load_tokenizer(spec: str = "tiny") -> PreTrainedTokenizerBase:
    """Load the tokenizer of ``spec``, padding on the left and with a padding token. ``random:…`` uses the tiny one.

    Generation continues at the right end of a row, so the padding of a batch belongs on the left (notebook 03). Its
    errors are those of :func:`load_model`.
    """
    from transformers import AutoTokenizer

    ours = spec == "tiny" or spec.startswith("random:")
    with hub_errors(spec):
        source = str(tiny_folder()) if ours else checked_source(spec)
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", trust_remote_code=False, **reach(source))
    if tokenizer.pad_token is None:
        # Llama has no padding token. Its unknown token never occurs in text, so masking it in the loss costs nothing.
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    return tokenizer


def load_data(spec: str = "tiny") -> DatasetDict:
    """Load a data set with splits ``train`` and ``test``, from one word.

    ``tiny`` has columns prompt, completion, question, answer. A hub id or path keeps its columns (SFTTrainer accepts
    ``text``, ``messages`` or ``prompt`` and ``completion``); one without a test split gives up a tenth for it.

    Raises:
        GuideError: the spec means nothing, or the hub cannot be reached and the data set is not in its cache.

    >>> {name: len(rows) for name, rows in load_data("tiny").items()}
    {'train': 1080, 'test': 216}
    """
    import datasets

    if spec == "tiny":
        train, test = question_answer_splits()
        return datasets.DatasetDict(train=datasets.Dataset.from_list(train), test=datasets.Dataset.from_list(test))
    source = checked_source(spec, wanted=None)
    with hub_errors(spec):
        _refuse_other_encodings(Path(source))
        if Path(source).is_file():
            data = datasets.load_dataset(data_format(source), data_files=source)
        else:
            data = datasets.load_dataset(source, download_config=datasets.DownloadConfig(**reach(source)))
    if "train" not in data:
        raise GuideError(f"{spec}: has the splits {', '.join(data)}; a data set to train on needs one called 'train'")
    if "test" not in data and len(data["train"]) < 2:
        told = f"has {len(data['train'])} row to train on and no split 'test'"
        raise GuideError(f"{spec}: {told}; give two rows at least, a tenth is kept for the test")
    return data if "test" in data else data["train"].train_test_split(test_size=0.1, seed=0)


def _refuse_other_encodings(path: Path) -> None:
    """Make sure that a data file, or each in a folder, is UTF-8: ``datasets`` finds out only as a row is asked for."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.suffix.lower() not in (".json", ".jsonl", ".csv") or not file.is_file():
            continue
        decoder, read, part = codecs.getincrementaldecoder("utf-8")(), 0, b"-"
        with file.open("rb") as f:
            while part:
                before = len(decoder.getstate()[0])  # bytes of a letter that the last part cut
                part = f.read(1 << 20)
                try:
                    decoder.decode(part, final=not part)
                except UnicodeDecodeError as e:
                    told = f"byte {read - before + e.start:,} is not UTF-8"
                    raise GuideError(f"{shown(file)}: {told}; save the file in UTF-8") from e
                read += len(part)


def meta_model(
    spec: str | PretrainedConfig, *, dtype: str | None = None, attention: str | None = None, **changes: Any
) -> PreTrainedModel:
    """Build the model of ``spec`` on the meta device: every shape and parameter count, not one byte of weights.

    Args:
        spec: a name as for :func:`load_model`, a shape's name alone (``llama-2-7b``), a config.json, or a transformers
            configuration.
        dtype: torch's name of the type, such as "bfloat16"; the configuration's own if None.
        attention: "sdpa" or "eager"; what transformers chooses if None.
        changes: fields of the configuration to replace.

    Raises:
        GuideError: as :func:`load_model`.

    >>> sum(p.numel() for p in meta_model("random:llama-2-7b").parameters())
    6738415616
    """
    import torch
    import transformers

    config = config_from({**config_fields(spec), **changes}) if isinstance(spec, str) else spec
    options = {} if dtype is None else {"dtype": getattr(torch, dtype)}
    if attention is not None:
        options["attn_implementation"] = attention
    with torch.device("meta"):
        for name in getattr(config, "architectures", None) or ():
            kind = getattr(transformers, str(name), None)
            if isinstance(kind, type) and isinstance(config, getattr(kind, "config_class", None) or ()):
                return kind._from_config(config, **options)  # type: ignore[attr-defined]
        causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
        auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMultimodalLM
        return auto.from_config(config, trust_remote_code=False, **options)


def config_from(fields: Mapping[str, Any]) -> PretrainedConfig:
    """Return transformers' configuration of the fields of a config.json.

    Raises:
        GuideError: a type that the installed transformers does not know.
    """
    import transformers

    named = fields.get("model_type")
    if named not in transformers.CONFIG_MAPPING:
        known = f"transformers {transformers.__version__} knows no such type; install a newer one if there is one"
        raise SizesError(f"model type {named!r}: {known}")
    try:
        return transformers.CONFIG_MAPPING[named].from_dict(dict(fields))
    except Exception as e:  # transformers refuses a field with whatever its code meets first
        told = f"transformers cannot take its configuration ({reason_of(e)})"
        raise SizesError(f"{shown(named)}: {told}; give it what it names") from e


def _random_model(shape: str, dtype: torch.dtype, device: str, seed: int, options: dict[str, Any]) -> PreTrainedModel:
    """Return a model of a true shape with random weights, made where they will be used.

    A 7B model never passes through host memory, unless a ``device_map`` spreads it and one device has no room for it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    spread = options.pop("device_map", None)
    offload, memory = options.pop("offload_folder", None), options.pop("max_memory", None)
    if spread is not None:
        from rocm_guide.common.device import free_memory

        shapes = meta_model(shape).to(dtype)
        spread = _device_map(shapes, spread, memory)
        # Where there is room the weights are those that the model has without a map: each device draws its own numbers.
        size = sum(p.nbytes for p in shapes.parameters())
        device = device if device == "cpu" or size < 0.9 * free_memory(device) else "cpu"
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices), torch.device(device):
        torch.manual_seed(seed)
        config = config_of(shape, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False, **options).eval()
    if spread is None:
        return model
    from accelerate import dispatch_model

    return dispatch_model(model, spread, offload_dir=offload)


def _device_map(shapes: PreTrainedModel, spread: Any, memory: Any) -> dict[str, Any]:
    """Return the map that ``from_pretrained`` makes of ``spread``: a strategy's name, a device, or a map already."""
    from accelerate.utils import get_max_memory

    from rocm_guide.models.placement import STRATEGIES, by_accelerate

    if not isinstance(spread, str):
        return dict(spread)
    if spread not in STRATEGIES:
        return {"": spread}
    return by_accelerate(shapes, get_max_memory(memory), spread)[0]
