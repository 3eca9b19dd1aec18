# SPDX-License-Identifier: MIT
"""Whether torch.compile or torch.export looks at a call, which then becomes an operator of ``torch.ops.rocm_guide``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["operator", "traced"]


def load_operators() -> bool:
    """Import the operators; False where there are none, as in a copy of one helper."""
    try:
        for name in ("ops", "ops_model", "ops_products"):
            import_module(f"rocm_guide.kernels.{name}")
    except ModuleNotFoundError:
        return False
    return True


# torch.compile then calls it and does not look inside. torch.compiler.assume_constant_result sets the same mark, but
# imports the compiler for it, which takes seconds.
load_operators._dynamo_marked_constant = True  # type: ignore[attr-defined]


def traced() -> bool:
    """Whether torch.compile or torch.export traces the caller: it then calls an operator of ``torch.ops.rocm_guide``.

    These are in :mod:`rocm_guide.kernels.ops`, ``ops_model`` and ``ops_products``, which are imported here.
    """
    import torch

    return torch.compiler.is_compiling() and load_operators()


def operator(name: str) -> Any:
    """``torch.ops.rocm_guide.NAME`` while something traces the caller (see :func:`traced`), else None."""
    if not traced():
        return None
    import torch

    return getattr(torch.ops.rocm_guide, name)
