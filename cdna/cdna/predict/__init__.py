# SPDX-License-Identifier: MIT
"""GPUs as data, and models of time: what a kernel's code takes at least at a GPU's peak rates.

In reading order:

- ``specs``: GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.
- ``limits``: What a model says about time: how long each part is busy, and which part sets the limit.
- ``executed``: From executed counts to a time: what a kernel takes at least at a GPU's peak rates, in a model.
- ``loops``: What one turn of a loop asks of each unit of a compute unit, in a model.
- ``gemm_prediction``: The predicted time of a tiled matrix product on MI300X, in a model.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.predict.executed import ExecutedTime, model_time
    from cdna.predict.gemm_prediction import predict_product
    from cdna.predict.limits import ModelTime
    from cdna.predict.loops import LoopBudget, loop_budget
    from cdna.predict.specs import GPUS, GpuSpec, HardwareError, find_gpu, gpu, roofline

__all__ = [
    "GPUS",
    "ExecutedTime",
    "GpuSpec",
    "HardwareError",
    "LoopBudget",
    "ModelTime",
    "find_gpu",
    "gpu",
    "loop_budget",
    "model_time",
    "predict_product",
    "roofline",
]

__getattr__, __dir__ = lazy_names(__name__, "specs", "limits", "executed", "loops", "gemm_prediction")
