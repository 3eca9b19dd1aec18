# SPDX-License-Identifier: MIT
"""GPUs as data, and drawn.

In reading order:

- ``specs``: GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.
- ``drawings``: Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and
  memory.
- ``executed``: From executed counts to a time: what a kernel takes at least at a GPU's peak rates, in a model.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.hardware.drawings import draw_compute_unit, draw_gpu, draw_owners, draw_wave
    from rocm_guide.hardware.executed import ModelTime, model_time
    from rocm_guide.hardware.specs import GPUS, HardwareError, find_gpu, gpu, roofline

__all__ = [
    "GPUS",
    "HardwareError",
    "ModelTime",
    "draw_compute_unit",
    "draw_gpu",
    "draw_owners",
    "draw_wave",
    "find_gpu",
    "gpu",
    "model_time",
    "roofline",
]

__getattr__, __dir__ = face(__name__, "specs", "drawings", "executed")
