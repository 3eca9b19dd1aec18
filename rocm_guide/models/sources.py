# SPDX-License-Identifier: MIT
"""Where the weights or the config.json of a model, or the rows of a data set, lie that a reader names by one word."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocm_guide.common.base import DoubledKey, GuideError, each_once, shown
from rocm_guide.models.hub import hub_errors, hub_id, reach, refuse_remote_code
from rocm_guide.models.real import REAL, real_source
from rocm_guide.models.shapes import SHAPES

__all__ = ["config_fields", "with_ready_kernel"]


#: Data files that can be read, and what the datasets library calls their format.
FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_SPECS = (
    "'tiny', 'smollm2', 'random:SHAPE' (as random:llama-2-7b), "
    "a hub id (as NousResearch/Llama-2-7b-chat-hf), or a folder"
)


def checked_source(spec: str, wanted: str | None = "config.json") -> str:
    """Return ``spec`` if it can be a hub id, a folder with ``wanted`` in it, or a data file where that is None."""
    if spec in REAL and wanted:
        return real_source(spec)
    try:
        path = Path(spec).expanduser()
        folder, file = bool(spec) and path.is_dir(), bool(spec) and path.is_file()
    except (OSError, RuntimeError, ValueError) as e:  # longer than a name can be, ~ of nobody, a zero byte
        reason = getattr(e, "strerror", None) or str(e).rstrip(".")
        raise GuideError(f"{shown(spec)}: no path ({reason}); give {_SPECS}") from e
    if folder:
        if wanted and not (path / wanted).is_file():
            raise GuideError(f"{spec}: this folder has no {wanted}; name the folder that save_pretrained wrote")
        return refuse_remote_code(path) if wanted else str(path)
    if file:
        if wanted:
            raise GuideError(f"{spec}: is a file; name the folder of the model, with {wanted} and its weights")
        return str(path)
    if wanted is None and path.suffix.lower() in FORMATS:
        raise GuideError(f"{spec}: no such file; check the path, or use 'tiny'")
    if spec.count("/") == 1 and not spec.startswith((".", "/", "~")):
        return hub_id(spec)
    if spec in SHAPES and wanted:
        fix = f"give random:{spec} (its size, random weights), or the hub id of a trained one"
        raise GuideError(f"{spec}: the name of a shape, which has no weights; {fix}")
    raise GuideError(f"{spec!r}: neither a model or data set that the course knows nor a folder; give {_SPECS}")


def data_format(path: str) -> str:
    """Return the format of a data file by its ending."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise GuideError(f"{path}: a data file ends in {', '.join(FORMATS)}; convert it to one of these")
    return FORMATS[ending]


#: By method, what transformers calls GPTQModel's kernel made of torch operations: nothing is compiled for it.
READY_KERNELS = {"gptq": "gptq_torch", "awq": "torch_awq"}
#: Fields that say how often something is built or summed; a number without bound there would take hours.
_COUNTED = re.compile(r"(?:n|num)_(?:\w+_)?(?:layers?|experts)|(?:en|de)coder_layers|depth|layers")
_MOST = 2000  # layers or experts; the largest known have 126 and 512
_LIMIT = 16 << 20  # bytes; the largest config.json of a known model has some 100 kB (a list of modules not quantised)


def config_fields(spec: str) -> dict[str, Any]:
    """Return the fields of the config.json that ``spec`` means.

    Raises:
        GuideError: nothing of that name, or a file that is no configuration.

    >>> config_fields("llama-2-7b") == config_fields("random:llama-2-7b")
    True
    """
    name = spec.removeprefix("random:")
    if name in SHAPES:
        return dict(SHAPES[name])
    if spec.startswith("random:"):
        raise GuideError(f"{name!r}: no such shape; choose one of {', '.join(SHAPES)}")
    if spec == "tiny":
        from rocm_guide.models.tiny import SHAPE, VOCABULARY

        return {"model_type": "llama", "vocab_size": VOCABULARY, "tie_word_embeddings": False, **SHAPE}
    json_file = spec.endswith(".json")
    try:
        source = checked_source(spec, wanted=None if json_file else "config.json")
    except GuideError as error:
        if error.__cause__ is not None or Path(spec).expanduser().exists():
            raise
        raise GuideError(f"{error}; shapes are {', '.join(SHAPES)}") from error
    if json_file and Path(source).is_file():
        return _read(Path(source))
    if Path(source).is_dir():
        return _read(Path(source) / "config.json")
    from huggingface_hub import hf_hub_download

    with hub_errors(spec):
        return _read(Path(hf_hub_download(source, "config.json", **reach(source))))


def with_ready_kernel(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``quantization_config`` for loading on a GPU: GPTQ's and AWQ's name the kernel made of torch operations.

    Where none is named, GPTQModel takes the first that the GPU could run. It compiles that one for minutes, and for
    Hopper's (Machete) it first fetches the sources of CUTLASS, which ends the loading where there is no network. On an
    AMD GPU the kernel of torch operations is the only one for GPTQ. One that is named stays.

    >>> with_ready_kernel({"quant_method": "gptq", "bits": 4})["backend"]
    'gptq_torch'
    >>> with_ready_kernel({"quant_method": "gptq", "backend": "gptq_marlin"})["backend"]
    'gptq_marlin'
    >>> with_ready_kernel({"quant_method": "bitsandbytes"})
    {'quant_method': 'bitsandbytes'}
    """
    kernel = READY_KERNELS.get(str(recipe.get("quant_method")))
    if kernel is None or recipe.get("backend") not in (None, "auto"):
        return dict(recipe)
    return {**recipe, "backend": kernel}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_LIMIT + 1)
        fields = json.loads(text, object_pairs_hook=each_once) if len(text) <= _LIMIT else None
    except DoubledKey as e:
        raise GuideError(f"{path}: {e}") from e
    except (OSError, ValueError, RecursionError) as e:
        raise GuideError(f"{path}: cannot be read as a configuration ({type(e).__name__}); save the model again") from e
    if not isinstance(fields, dict):
        raise GuideError(f"{path}: holds no configuration; name the folder that save_pretrained wrote")
    for name, value in (item for part in (fields, *fields.values()) if isinstance(part, dict) for item in part.items()):
        if _COUNTED.fullmatch(name) and isinstance(value, (int, float)) and value > _MOST:
            told = f"{name} = {shown(value, 40)}; no model has more than {_MOST:,}"
            raise GuideError(f"{shown(path)}: {told}; correct it")
    return fields
