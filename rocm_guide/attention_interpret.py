# SPDX-License-Identifier: MIT
"""Our attention kernel on a machine without a GPU: in Triton's interpreter, in a process of its own.

Introduced in notebook 09 (flash_attention).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .attention import AttentionError

if TYPE_CHECKING:
    import torch

__all__ = ["attention_interpreted"]

_CHILD = """
import importlib, sys, torch
q, k, v, options, module = torch.load(sys.argv[1])
torch.save(importlib.import_module(module).attention_forward(q, k, v, **options), sys.argv[2])
"""
_SECONDS = 600


def attention_interpreted(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """``attention_forward`` on CPU tensors: (output, log-sum-exp). Keep them small, this is Python element by element.

    The interpreter must be switched on before a kernel is imported, hence the other process.

    Raises:
        AttentionError: the process failed; the last line of its error is in the message.

    Introduced in notebook 09. ::

        out, lse = attention_interpreted(q, k, v, causal=True)
    """
    import torch

    from .kernels.attention_forward import attention_forward

    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "given.pt", Path(folder) / "result.pt"
        torch.save((q, k, v, options, attention_forward.__module__), given)
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(given), str(result)]
        try:
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired as e:
            raise AttentionError(f"the interpreter ran longer than {_SECONDS} s; use smaller tensors") from e
        if run.returncode:
            last = next((x for x in reversed(run.stderr.splitlines()) if x.strip()), "no message")
            raise AttentionError(f"attention failed in the interpreter: {last.strip()}")
        out, lse = torch.load(result)
    return out, lse
