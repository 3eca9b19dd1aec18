# SPDX-License-Identifier: MIT
"""The configuration of a model by one word, as plain fields: no weights, no torch, no transformers, no code of others.

One set of names for every command: a shape (``llama-3-8b`` or ``random:llama-3-8b``), ``tiny``, a hub id, a folder, or
a config.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocm_guide.common.base import DoubledKey, GuideError, each_once
from rocm_guide.models.hub import hub_errors, reach
from rocm_guide.models.shapes import SHAPES
from rocm_guide.models.sources import checked_source

__all__ = ["config_fields", "with_ready_kernel"]

#: By method, what transformers calls GPTQModel's kernel made of torch operations: nothing is compiled for it.
READY_KERNELS = {"gptq": "gptq_torch", "awq": "torch_awq"}
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
    return fields
