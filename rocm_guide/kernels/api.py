# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap, and torch.compile sees operators.

Each is the function of the same name in a file of the same name, which is the one to read and to copy; what stands
around it is in :mod:`rocm_guide.kernels.fast` and :mod:`rocm_guide.kernels.ops`.
"""

from __future__ import annotations

from typing import Any

import torch

from rocm_guide.kernels import layer_norm as _layer_norm
from rocm_guide.kernels import rms_norm as _rms_norm
from rocm_guide.kernels import softmax as _softmax
from rocm_guide.kernels.fast import fast
from rocm_guide.kernels.tracing import load_operators

__all__ = []  # the helpers to copy are those in the files


def _traced_softmax(x: torch.Tensor) -> Any:
    load_operators()
    return torch.ops.rocm_guide.softmax_forward(x)


def _traced_rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> Any:
    load_operators()
    return torch.ops.rocm_guide.rms_norm_forward(x, weight, eps)[0]


def _traced_layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, eps: float = 1e-5
) -> Any:
    load_operators()
    return torch.ops.rocm_guide.layer_norm_forward(x, weight, bias, eps)[0]


softmax = fast(_softmax.softmax, _softmax.Softmax, _traced_softmax)
rms_norm = fast(_rms_norm.rms_norm, _rms_norm.RmsNorm, _traced_rms_norm)
layer_norm = fast(_layer_norm.layer_norm, _layer_norm.LayerNorm, _traced_layer_norm)
