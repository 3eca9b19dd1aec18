# SPDX-License-Identifier: MIT
"""The output of a torchtune recipe: a log of figures, and an epoch folder to be sorted before it is loaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rocm_guide.common.base import GuideError, whole_file

__all__ = ["split_epoch"]


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read the lines of torchtune's ``DiskLogger`` as dictionaries: ``step``, ``loss``, ``lr``, ….

    A last line that is still being written is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = Path(d, "m.txt").write_text("Step 1 | loss:2.5 lr:0.1 \\nStep 2 | loss:1.")
    ...     read_metrics(f"{d}/m.txt")
    [{'step': 1.0, 'loss': 2.5, 'lr': 0.1}]
    """
    path = Path(path)
    found = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []:
        step, bar, rest = line.removeprefix("Step ").partition(" | ")
        pairs = [item.rpartition(":") for item in rest.split()]
        try:
            found.append({"step": float(step), **{name: float(value) for name, _, value in pairs if name}})
        except ValueError as e:
            raise GuideError(f"{path.name}: {line[:80]!r} is no line of torchtune's DiskLogger") from e
        if not bar:
            raise GuideError(f"{path.name}: {line[:80]!r} is no line of torchtune's DiskLogger")
    return found


def split_epoch(epoch: str | Path, output: str | Path) -> tuple[Path, Path]:
    """Sort a LoRA recipe's epoch folder into two folders that mean one thing each: (merged model, adapter).

    torchtune writes both into one. Transformers, seeing merged weights *and* an adapter there, loads the first and
    applies the second on top: the update counts twice. Files are linked where the file system can, else copied.

    Raises:
        GuideError: the folder holds no merged weights, or no adapter.
    """
    epoch, output = Path(epoch), Path(output)
    files = [p for p in sorted(epoch.iterdir()) if p.is_file()] if epoch.is_dir() else []
    adapter = [p for p in files if p.name.startswith("adapter_")]
    model = [p for p in files if p not in adapter and p.suffix not in (".bin", ".pt")]
    if not any(p.suffix == ".safetensors" for p in adapter) or not any(p.suffix == ".safetensors" for p in model):
        raise GuideError(f"{epoch}: not the epoch folder of a LoRA recipe; it lies in output_dir and is called epoch_0")
    folders = (output / "merged", output / "adapter")
    for folder, members in zip(folders, (model, adapter), strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in members:
            try:
                os.link(file, folder / file.name)
            except OSError:
                with whole_file(folder / file.name) as part:
                    shutil.copy2(file, part)
    return folders
