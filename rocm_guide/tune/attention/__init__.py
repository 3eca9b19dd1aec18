# SPDX-License-Identifier: MIT
"""Attention outside the kernels: ``in_transformers`` (ours as an ``attn_implementation``), ``backends`` (those that
work here, compared), ``cost`` (operations and bytes, counted).
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.attention.backends import attention_backends, compare_backends
    from rocm_guide.tune.attention.cost import (
        SlowMemory,
        attention_flops,
        flash_traffic,
        saved_for_backward,
        standard_traffic,
        visible_tiles,
    )
    from rocm_guide.tune.attention.in_transformers import register_attention

__all__, __getattr__, __dir__ = lazy_names(__name__)
