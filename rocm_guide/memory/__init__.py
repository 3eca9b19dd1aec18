# SPDX-License-Identifier: MIT
"""Does it fit on these GPUs? Memory of training and serving, predicted.

In reading order:

- ``states``: Memory arithmetic of training: what has to be stored for every weight, trained or frozen.
- ``activations``: Activations: what the forward pass keeps for the backward pass, tensor by tensor, and what is held
  for a moment.
- ``step``: The peak of a training step: what is in memory at each moment that can be the largest, and which one is.
- ``recomputed``: What checkpointing leaves on the device, and what is there while a layer, or half of one, is computed
  again.
- ``sharded``: Training with FSDP: what a shard of everything costs, and what is gathered whole for a moment.
- ``work``: What is asked of a model: how it is trained or run, and on how much text.
- ``live``: The bytes alive at a moment, tensor by tensor, on any device: what the memory formulae are compared with.
- ``planner``: Will it fit? The memory of one GPU at the peak of training, generating or serving, and the largest
  batch.
- ``plot``: The stacked plot of memory plans against the memory of the GPU.
- ``limits``: What a plan has to keep to: the memory of one device, and the ways in which a model can be split at all.
- ``norm_activations``: What norms keep for their backward pass; and GPT-2 and OPT, whose LayerNorm autocast computes
  in fp32.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.memory.live import LiveBytes
    from rocm_guide.memory.planner import Fit, fit
    from rocm_guide.memory.plot import draw_fit
    from rocm_guide.memory.states import training_state_bytes
    from rocm_guide.memory.step import step_moments
    from rocm_guide.memory.work import FitError, Workload

__all__ = ["Fit", "FitError", "LiveBytes", "Workload", "draw_fit", "fit", "step_moments", "training_state_bytes"]

__getattr__, __dir__ = face(__name__, "states", "step", "work", "live", "planner", "plot")
