# SPDX-License-Identifier: MIT
"""Generating text: in this process, or as a server; its load and its size.

In reading order:

- ``served_checkpoints``: The content of a folder that somebody wants to serve: a model, a quantised one, or an adapter
  with its base.
- ``server``: A server with an OpenAI-compatible address for a saved model, as a child process: started, waited for,
  always ended.
- ``client``: One streamed request to an OpenAI-compatible server, with the time of every piece; and what the server
  calls itself.
- ``load_test``: Put load on a server: users who wait for their answer (closed loop) or arrivals that do not (open
  loop); what they got, as tables, plots and a file.
- ``sizing``: The users that a card serves: blocks of the KV cache that fit beside the weights. Computed, notebook 18.
- ``vllm``: vLLM on MI300X in words: the flags that matter, the container, a Kubernetes manifest, and TGI's names for
  the same.
- ``generate``: Generate and look closely: time of every token with and without the KV cache, batches against single
  rows, models against each other.
- ``generate_cost``: The cost of generation by arithmetic: FLOPs of a forward pass, bytes of the KV cache.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.serve.generate import continuations, generate_timed, largest_difference
    from rocm_guide.serve.generate_cost import forward_flops, kv_cache_bytes
    from rocm_guide.serve.load_test import Limits, Plan, draw_levels, level_table, measure_server, write_results
    from rocm_guide.serve.served_checkpoints import ServingError, merge_adapter, read_checkpoint
    from rocm_guide.serve.server import Server, start_server
    from rocm_guide.serve.sizing import serving_table, size_server
    from rocm_guide.serve.vllm import FROM_TGI, container_command, flag_table, manifest, manifest_text

__all__, __getattr__, __dir__ = lazy_names(__name__)
