# SPDX-License-Identifier: MIT
"""Where the weights of a model, or the rows of a data set, lie that a reader names by one word."""

from __future__ import annotations

from pathlib import Path

from rocm_guide.common.base import GuideError, shown
from rocm_guide.models.hub import hub_id
from rocm_guide.models.real import REAL, real_source
from rocm_guide.models.shapes import SHAPES
from rocm_guide.models.trust import refuse_remote_code

__all__ = []

#: Data files that can be read, and what the datasets library calls their format.
FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_SPECS = (
    "'tiny', 'smollm2', 'random:SHAPE' (as random:llama-2-7b), "
    "a hub id (as NousResearch/Llama-2-7b-chat-hf), or a folder"
)


def checked_source(spec: str, wanted: str | None = "config.json") -> str:
    """Return ``spec`` if it can be a hub id, or is a folder (or data file) with what is needed;
    else an error with the fix.

    Args:
        wanted: the file that makes a folder a model; None for a data set.
    """
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
