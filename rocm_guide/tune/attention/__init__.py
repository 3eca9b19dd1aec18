# SPDX-License-Identifier: MIT
"""Attention outside the kernels: in transformers, its back ends, its cost.

In reading order: ``in_transformers``, ``backends``, ``cost``.
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
    from rocm_guide.tune.attention.in_transformers import AttentionError, register_attention

__getattr__, __dir__ = lazy_names(__name__)
