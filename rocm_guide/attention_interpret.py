# SPDX-License-Identifier: MIT
"""Our attention kernel on a machine without a GPU: in Triton's interpreter, in a process of its own.

Introduced in notebook 09 (flash_attention).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .attention import AttentionError

if TYPE_CHECKING:
    import torch

__all__ = ["attention_interpreted"]


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
    from .kernels.anywhere import call
    from .kernels.attention_forward import attention_forward
    from .kernels.launch import KernelError

    try:
        return call(attention_forward, q, k, v, **options)
    except KernelError as e:
        raise AttentionError(str(e)) from e
