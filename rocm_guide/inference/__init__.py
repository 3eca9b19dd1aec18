# SPDX-License-Identifier: MIT
"""Generate text, timed, and what it costs.

In reading order:

- ``generate``: Generate and look closely: time of every token with and without the KV cache, batches against single
  rows, models against each other.
- ``cost``: What generation costs by arithmetic: FLOPs of a forward pass, bytes of the KV cache.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.inference.cost import forward_flops, kv_cache_bytes
    from rocm_guide.inference.generate import InferenceError, continuations, generate_timed, largest_difference

__all__ = ["InferenceError", "continuations", "forward_flops", "generate_timed", "kv_cache_bytes", "largest_difference"]

__getattr__, __dir__ = face(__name__, "generate", "cost")
