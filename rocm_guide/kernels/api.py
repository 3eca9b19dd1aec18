# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap, and torch.compile sees operators.

Each is the function of the same name in a file of the same name, which is the one to read and to copy; what stands
around it is in :mod:`rocm_guide.kernels.fast` and :mod:`rocm_guide.kernels.ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rocm_guide.kernels import layer_norm as _layer_norm
from rocm_guide.kernels import rms_norm as _rms_norm
from rocm_guide.kernels import softmax as _softmax
from rocm_guide.kernels.fast import fast
from rocm_guide.kernels.tracing import load_operators

__all__ = []  # the helpers to copy are those in the files


def _operator(name: str) -> Callable[..., Any]:
    """Return what calls ``torch.ops.rocm_guide.NAME`` in place of a wrapper; its statistics are left out."""

    def call(x: torch.Tensor, *others: Any, **options: Any) -> Any:
        load_operators()
        result = getattr(torch.ops.rocm_guide, name)(x, *others, **options)
        return result[0] if isinstance(result, tuple) else result

    return call


softmax = fast(_softmax.softmax, _softmax.Softmax, _operator("softmax_forward"))
rms_norm = fast(_rms_norm.rms_norm, _rms_norm.RmsNorm, _operator("rms_norm_forward"))
layer_norm = fast(_layer_norm.layer_norm, _layer_norm.LayerNorm, _operator("layer_norm_forward"))
