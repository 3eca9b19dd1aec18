# SPDX-License-Identifier: MIT
"""Models that bring their own Python: refused before anything of them runs.

A configuration with ``auto_map`` names Python files of the model's folder. transformers asks whether to run them, which
one letter on a terminal answers; this course never does.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocm_guide.common.base import GuideError, read_regular, shown

__all__ = ["LARGEST_CONFIG", "refuse_remote_code"]

#: No configuration file of a model comes near this; the largest known ones, with a vocabulary inside, have a few MB.
LARGEST_CONFIG = 64_000_000
# Every file in which transformers looks for auto_map. (A tokenizer.json holds data only.)
_FILES = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "generation_config.json",
)


def refuse_remote_code(folder: str | Path) -> str:
    """Return the folder of a model, if none of its configuration files names Python code that loading it would run.

    A hub id, which is no folder, comes back as it is: ``trust_remote_code=False`` guards the loading of it.

    Raises:
        GuideError: one does (``auto_map``), or is not a JSON object of a sensible size.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "config.json").write_text('{"auto_map": {"AutoConfig": "theirs.Config"}}')
    ...     refuse_remote_code(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    cdna.base.InputError: ...: config.json names the model's own Python code (auto_map: theirs.Config), ...
    """
    for file in (Path(folder) / name for name in _FILES):
        try:
            fields = json.loads(read_regular(file, LARGEST_CONFIG))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as e:
            reason = getattr(e, "strerror", None) or (str(e) if isinstance(e, OSError) else "not valid JSON")
            raise GuideError(f"{shown(file)}: cannot be read ({reason}); save the model again") from e
        if not isinstance(fields, dict):
            raise GuideError(f"{shown(file)}: holds no JSON object; save the model again")
        if code := fields.get("auto_map"):
            named = next(iter(code.values()), code) if isinstance(code, dict) else code
            raise GuideError(
                f"{shown(folder)}: {file.name} names the model's own Python code (auto_map: {shown(named, 80)}), which "
                "is never run here; use a model of an architecture that transformers has, or take auto_map out"
            )
    return str(folder)
