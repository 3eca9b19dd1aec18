# SPDX-License-Identifier: MIT
"""GPUs as data, and drawn.

In reading order:

- ``specs``: GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.
- ``drawings``: Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and
  memory.
- ``limits``: What a model says about time: how long each part is busy, and which part sets the limit.
- ``executed``: From executed counts to a time: what a kernel takes at least at a GPU's peak rates, in a model.
- ``loops``: What one turn of a loop asks of each unit of a compute unit, in a model.
- ``gemm_prediction``: The predicted time of a tiled matrix product on MI300X, in a model.
- ``machine_drawings``: Pictures of machine code at work: lane maps, LDS banks, a loop's budget.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.hardware.drawings import draw_compute_unit, draw_gpu, draw_owners, draw_wave
    from rocm_guide.hardware.executed import ExecutedTime, model_time
    from rocm_guide.hardware.gemm_prediction import predict_product
    from rocm_guide.hardware.limits import ModelTime
    from rocm_guide.hardware.loops import LoopBudget, loop_budget
    from rocm_guide.hardware.machine_drawings import draw_banks, draw_budget, draw_lane_map
    from rocm_guide.hardware.specs import GPUS, HardwareError, find_gpu, gpu, roofline

__all__ = [
    "GPUS",
    "ExecutedTime",
    "HardwareError",
    "LoopBudget",
    "ModelTime",
    "draw_banks",
    "draw_budget",
    "draw_compute_unit",
    "draw_gpu",
    "draw_lane_map",
    "draw_owners",
    "draw_wave",
    "find_gpu",
    "gpu",
    "loop_budget",
    "model_time",
    "predict_product",
    "roofline",
]

__getattr__, __dir__ = face(
    __name__, "specs", "drawings", "limits", "executed", "loops", "gemm_prediction", "machine_drawings"
)
