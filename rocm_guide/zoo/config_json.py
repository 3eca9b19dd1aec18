# SPDX-License-Identifier: MIT
"""The configuration of a model by one word, as plain fields: no weights, no torch, no transformers, no code of others.

One set of names for every command: a shape (``llama-3-8b`` or ``random:llama-3-8b``), ``tiny``, a hub id, a folder, or
a config.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rocm_guide.base import GuideError
from rocm_guide.zoo.shapes import SHAPES

__all__ = ["config_fields"]

_LIMIT = 16 << 20  # bytes; the largest config.json of a known model has some 100 kB (a list of modules not quantised)


def config_fields(spec: str) -> dict[str, Any]:
    """The fields of the config.json that ``spec`` means.

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
        from rocm_guide.zoo.tiny import SHAPE, VOCABULARY

        return {"model_type": "llama", "vocab_size": VOCABULARY, "tie_word_embeddings": False, **SHAPE}
    path = Path(spec).expanduser()
    if spec and path.suffix == ".json" and path.is_file():
        return _read(path)
    from rocm_guide.zoo.load import _checked, _hub_errors, _reach

    try:
        source = _checked(spec)
    except GuideError as error:
        if path.exists():
            raise
        raise GuideError(f"{error}; shapes are {', '.join(SHAPES)}") from error
    if Path(source).is_dir():
        return _read(Path(source) / "config.json")
    from huggingface_hub import hf_hub_download

    with _hub_errors(spec):
        return _read(Path(hf_hub_download(source, "config.json", **_reach(source))))


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_LIMIT + 1)
        fields = json.loads(text) if len(text) <= _LIMIT else None
    except (OSError, ValueError, RecursionError) as e:
        raise GuideError(f"{path}: cannot be read as a configuration ({type(e).__name__}); save the model again") from e
    if not isinstance(fields, dict):
        raise GuideError(f"{path}: holds no configuration; name the folder that save_pretrained wrote")
    return fields
