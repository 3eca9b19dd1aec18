# SPDX-License-Identifier: MIT
"""Attention outside the kernels: in transformers, its back ends, its cost.

In reading order:

- ``in_transformers``: Our attention kernels inside transformers: ``attn_implementation="rocm_guide"`` trains and
  generates with them.
- ``backends``: Which attention implementations work on this machine, why the others do not, and what each one costs.
- ``cost``: What attention costs: operations, bytes moved by the standard and by the tiled way, and a counter to check
  them.
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
