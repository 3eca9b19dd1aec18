# SPDX-License-Identifier: MIT
"""A process that has torchtune imported, so that a ``tune`` line takes a moment and not the seconds of an import.

It is started with the first line and ends with this process, or with :func:`close_torchtune`. Each line runs in a fork
of it, and so do the workers that torchrun starts for a distributed recipe. On a machine with GPUs every line gets a
fresh process, and so does every worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_guide.finetune.resident import Fork, close_libraries, start_fork
from rocm_guide.observe.doctor.software import gpu_nodes

__all__ = ["close_torchtune"]

_COMMAND = "torchtune._cli.tune"
#: What the command and its recipes import.
_NEEDED = (_COMMAND, "torchtune.training", "torchdata.stateful_dataloader", "rocm_guide.finetune.torchtune.tokenizer")


def start_tune(
    arguments: Sequence[str], folder: Path, settings: Mapping[str, str], out: Path, err: Path
) -> subprocess.Popen[bytes] | Fork:
    """Start ``tune ARGUMENTS`` in ``folder``; it writes to the files ``out`` and ``err``, which exist."""
    if not gpu_nodes():
        where = {"folder": folder, "out": out, "err": err}
        return start_fork(_NEEDED, _COMMAND, arguments, settings=settings, name="tune", **where)
    to = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in (out, err)]
    try:
        command = [sys.executable, "-m", _COMMAND, *arguments]
        return subprocess.Popen(command, cwd=folder, env=dict(settings), stdout=to[0], stderr=to[1])
    finally:
        for number in to:
            os.close(number)


def close_torchtune() -> None:
    """End the process that keeps torchtune imported, whose memory somebody else may need; the next line starts another.

    >>> close_torchtune()
    """
    close_libraries(_NEEDED)
