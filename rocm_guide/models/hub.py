# SPDX-License-Identifier: MIT
"""The hub of models: whether it can be reached, which names it could have, and its long errors in one line."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from rocm_guide.common.base import GuideError, read_regular, shown

__all__ = ["LARGEST_CONFIG", "hub_errors", "reach", "refuse_remote_code"]


def hub_id(spec: str) -> str:
    """Return ``spec`` if the hub could have a model or data set of that name.

    Raises:
        GuideError: it could not; with the rule that the name breaks.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(spec)
    except HFValidationError as e:
        rule = "a hub id is ORGANISATION/NAME of letters, digits, -, _ and ., at most 96, without -- or .."
        raise GuideError(f"{shown(repr(spec))}: no such folder, and no hub id ({rule}); check the spelling") from e
    return spec


def reach(source: str) -> dict[str, bool]:
    """Return ``local_files_only`` where there is no way to the hub, which the libraries would try for a minute."""
    proxies = getproxies()
    if Path(source).exists() or os.environ.get("HF_HUB_OFFLINE") or proxies.get("https") or proxies.get("all"):
        return {}
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        with socket.create_connection((host.hostname or "", host.port or 443), timeout=5):
            return {}
    except OSError:
        return {"local_files_only": True}


@contextmanager
def hub_errors(spec: str) -> Iterator[None]:
    """Turn the hub libraries' long failures into one line with the fix."""
    try:
        yield
    except GuideError:
        raise
    except Exception as error:
        chain: BaseException | None = error
        text = ""
        while chain is not None:
            text += f"{type(chain).__name__} {chain} "
            chain = chain.__cause__ or chain.__context__
        if "trust_remote_code" in text or "scripts are no longer supported" in text:
            fix = "which is never run here; take one of an architecture or format that the libraries have"
            raise GuideError(f"{spec}: needs Python code of its own, {fix}") from error
        if full := re.search("No space left on device|Disk quota exceeded|File too large", text):
            fix = "free some space, or set HF_HOME to a folder on another disk"
            raise GuideError(f"{spec}: {full[0]} while it was read or downloaded; {fix}") from error
        if re.search(r"gated|\b40[13]\b", text, re.IGNORECASE):
            # For a name that does not exist the hub answers the same as for one that is private.
            fix = "check the spelling; for a gated model, request access on its page and run `hf auth login`"
            raise GuideError(f"{spec}: the hub does not show it to you; {fix}") from error
        if Path(spec).expanduser().exists() and not isinstance(error, RuntimeError | MemoryError):
            reason = " ".join(str(error).split())[:160]
            if isinstance(error, ImportError):
                fix = "install it; for quantised weights call rocm_guide.quantize.libraries.add_reader first"
                raise GuideError(f"{spec}: needs a library that is not there ({reason}); {fix}") from error
            raise GuideError(f"{spec}: cannot be loaded ({type(error).__name__}: {reason}); save it again") from error
        if isinstance(error, OSError) or re.search("offline|connect", text, re.IGNORECASE):
            fix = f"connect, or run `hf download {spec}` where there is a network, or use 'tiny'"
            raise GuideError(f"{spec}: not in the local cache and the hub gave nothing; {fix}") from error
        raise


#: No configuration file of a model comes near this; the largest known ones, with a vocabulary inside, have a few MB.
LARGEST_CONFIG = 64_000_000
# Every file in which transformers looks for auto_map. (A tokenizer.json holds data only.)
_FILES = (
    "config.json",
    *(f"{x}_config.json" for x in ("tokenizer", "processor", "preprocessor", "video_preprocessor", "generation")),
)


def refuse_remote_code(folder: str | Path) -> str:
    """Return the folder of a model, if none of its configuration files names Python code that loading it would run.

    A hub id, which is no folder, comes back as it is: ``trust_remote_code=False`` guards the loading of it.

    Raises:
        GuideError: one does (``auto_map``), or is not a JSON object of a sensible size.
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
            fix = "use a model of an architecture that transformers has, or take auto_map out"
            said = f"{file.name} names the model's own Python code (auto_map: {shown(named, 80)})"
            raise GuideError(f"{shown(folder)}: {said}, which is never run here; {fix}")
    return str(folder)
