# SPDX-License-Identifier: MIT
"""Several processes or machines that train.

In reading order:

- ``loopback``: The loopback interface, 127.0.0.1: what processes of one machine need to train together, network or
  not.
- ``resident``: Processes that have large libraries imported, and programs that run in forks of them.
- ``nodes``: Launch files for several machines, and two "machines" on this one: each a torchrun agent that can be
  lost.
- ``batches``: Which samples an optimizer step sees: a function of the seed and the step, whatever the number of
  processes is.
- ``checkpoints``: Checkpoints that a killed process cannot spoil: written whole or not at all, and checked before
  they are used.
- ``elastic``: A LoRA fine-tune that outlives its machines: `torchrun … -m rocm_guide.distributed.elastic --output
  FOLDER`.
- ``sft``: The course's LoRA fine-tune with TRL on several processes, one machine or many; the launcher decides how.
- ``fsdp_demo``: FSDP at a size that every machine can run: a few processes, each with a share of the tiny model.
  Notebook 04.
- ``launch_options``: Launch files with one's own machines, GPUs, time limit and program written into them, each value
  checked first.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.distributed.batches import read_losses, read_processes, rows_of_step
    from rocm_guide.distributed.fsdp_demo import compare_sharded
    from rocm_guide.distributed.loopback import LoopbackError
    from rocm_guide.distributed.nodes import (
        LaunchError,
        agent_command,
        free_port,
        launch_file,
        listening,
        start_node,
        wait_for,
    )
    from rocm_guide.distributed.resident import close_libraries

__all__ = [
    "LaunchError",
    "LoopbackError",
    "agent_command",
    "close_libraries",
    "compare_sharded",
    "free_port",
    "launch_file",
    "listening",
    "read_losses",
    "read_processes",
    "rows_of_step",
    "start_node",
    "wait_for",
]

__getattr__, __dir__ = face(__name__, "loopback", "resident", "nodes", "batches", "fsdp_demo")
