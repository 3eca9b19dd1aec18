# SPDX-License-Identifier: MIT
"""GPUs as data, and models of time: what a kernel's code takes at least at a GPU's peak rates.

In reading order:

- ``specs``: GPU specifications as data, each peak recomputed from units x FLOPs per clock x clock, and the roofline.
- ``times``: Models of time: a launch that was executed, and a turn of a loop.
- ``gemm_prediction``: The predicted time of a tiled matrix product on MI300X, in a model.
- ``achieved``: The likely time of a launch on an MI300X, beside its bound.
- ``published``: Published measurements of an MI300X, and how far likely times lie from them.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.predict.achieved import LikelyTime, likely, product_time
    from cdna.predict.gemm_prediction import predict_product
    from cdna.predict.published import Accuracy, Published, accuracy, caveat, published_points
    from cdna.predict.specs import GPUS, GpuSpec, HardwareError, find_gpu, gpu, roofline
    from cdna.predict.times import LEFT_OUT, ExecutedTime, LoopBudget, ModelTime, loop_budget, model_time

__all__ = [
    "GPUS",
    "LEFT_OUT",
    "Accuracy",
    "ExecutedTime",
    "GpuSpec",
    "HardwareError",
    "LikelyTime",
    "LoopBudget",
    "ModelTime",
    "Published",
    "accuracy",
    "caveat",
    "find_gpu",
    "gpu",
    "likely",
    "loop_budget",
    "model_time",
    "predict_product",
    "product_time",
    "published_points",
    "roofline",
]

__getattr__, __dir__ = lazy_names(__name__)
