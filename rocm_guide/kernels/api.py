# SPDX-License-Identifier: MIT
"""The kernels as a model calls them: repeated calls are cheap.

Each is the function of the same name in the file that is named beside it, which is the one to read and to copy; what
stands around it is :func:`rocm_guide.kernels.fast.fast`, which takes the wrappers of the other files too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocm_guide.kernels.attention import Attention
from rocm_guide.kernels.attention import attention as _attention
from rocm_guide.kernels.decode import attention_decode as _attention_decode
from rocm_guide.kernels.fast import fast
from rocm_guide.kernels.layer_norm import LayerNorm
from rocm_guide.kernels.layer_norm import layer_norm as _layer_norm
from rocm_guide.kernels.rms_norm import RmsNorm
from rocm_guide.kernels.rms_norm import rms_norm as _rms_norm
from rocm_guide.kernels.softmax import Softmax
from rocm_guide.kernels.softmax import softmax as _softmax

__all__ = ["attention", "attention_decode", "layer_norm", "rms_norm", "softmax"]

softmax = fast(_softmax, Softmax)
rms_norm = fast(_rms_norm, RmsNorm)
layer_norm = fast(_layer_norm, LayerNorm)
attention_decode = fast(_attention_decode)
_attention_repeated = fast(_attention, Attention)


def attention(*args: Any, **options: Any) -> Any:
    # With dropout each call has a seed of its own, and each would be a kind of call to remember.
    call: Callable[..., Any] = _attention if options.get("dropout") else _attention_repeated
    return call(*args, **options)


attention.__doc__, attention.__wrapped__ = _attention.__doc__, _attention  # type: ignore[attr-defined]
