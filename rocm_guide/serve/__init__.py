# SPDX-License-Identifier: MIT
"""Generating text, in this process or as a server.

In reading order: ``served_checkpoints`` (what lies in a folder), ``server`` and ``door`` (a server as a child process),
``client`` and ``load_test`` (its load), ``sizing`` (users that a card serves), ``vllm`` (its flags, container and
manifest), ``generate`` and ``generate_cost`` (token by token, and by arithmetic).
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
