# SPDX-License-Identifier: MIT
"""Checks of the exercises of notebook 04."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocm_guide.common.base import GuideError
from rocm_guide.exercises.common import FAULTS, no, yes
from rocm_guide.models.load import meta_model
from rocm_guide.models.memory_planner import fit
from rocm_guide.models.pipeline_schedules import busy_share, pipeline_schedule
from rocm_guide.models.placement import plan_placement
from rocm_guide.models.shapes import config_of
from rocm_guide.models.work import Workload

__all__ = ["check_busy", "check_map", "check_mi300x"]


def check_map(device_map: Any) -> bool:
    """Check exercise 1: a device map for Llama-2-7B in bf16 on two GPUs of 8 GB, embedding and output layer on GPU 0,
    that crosses from one GPU to the other as seldom as that allows: twice.

    >>> check_map({"": 0})
    [HINT] device 0: 13.48 GB placed there, budget 8.00
    False
    """
    if not isinstance(device_map, Mapping) or not device_map:
        return no("give a dictionary from module name to GPU number, such as {'model.embed_tokens': 0, …}")
    model = meta_model("random:llama-2-7b").bfloat16()
    try:
        plan = plan_placement(model, [8 * 10**9] * 2, device_map)
    except GuideError as error:
        return no(str(error))
    where = {name: device for name, _, device in plan.pieces}
    for name in ("model.embed_tokens", "lm_head"):
        if where[name] != 0:
            return no(f"{name} is on GPU {where[name]}; the exercise wants it on GPU 0")
    if plan.moves > 2:
        return no(f"{plan.moves} crossings between the GPUs; keep neighbouring layers together: 2 are enough")
    used = ", ".join(f"GPU {device} {size / 1e9:.1f} GB" for device, size in plan.used.items())
    return yes(f"{used}, {plan.moves} crossings")


def check_busy(share: Callable[[int, int], float]) -> bool:
    """Check exercise 2: a function (gpus, micro_batches) -> share of the time in which a pipeline's GPUs work.

    >>> check_busy(lambda gpus, micro_batches: 1 / gpus)
    [HINT] 2 GPUs, 2 micro-batches: 0.500 is right for one micro-batch only; with more, the GPUs overlap
    False
    """
    for gpus, micro in ((1, 1), (2, 1), (2, 2), (4, 8), (8, 8), (8, 64)):
        wanted = busy_share(pipeline_schedule(gpus, micro))
        try:
            given = float(share(gpus, micro))
        except FAULTS as error:
            return no(f"it fails for {gpus} GPUs and {micro} micro-batches: {error}")
        if abs(given - wanted) > 1e-6:
            text = f"{gpus} GPUs, {micro} micro-batches: {given:.3f}"
            if micro > 1 and abs(given - 1 / gpus) < 1e-6:
                return no(f"{text} is right for one micro-batch only; with more, the GPUs overlap")
            return no(f"{text} is not it; count the slots: a step has m + p - 1 of them, a GPU works in m")
    return yes("equal to the schedule for six pipelines")


def check_mi300x(count: Any) -> bool:
    """Check exercise 3: the smallest number of MI300X on which Llama-2-70B can be trained in full with FSDP:
    mixed precision, one row of 4,096 tokens on each GPU, checkpointing.

    >>> check_mi300x(4)
    [HINT] 4 GPUs: 310 GB needed on each, 206 there
    False
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 2:
        return no(f"{count!r}: give a whole number of GPUs, 2 or more")
    work = Workload("full", batch=1, seq=4096, precision="mixed", checkpointing=True)
    config = config_of("llama-2-70b")
    plan = fit(config, work, gpu="MI300X", count=count, fsdp=True)
    if not plan.fits:
        return no(f"{count} GPUs: {plan.total / 1e9:.0f} GB needed on each, {plan.budget / 1e9:.0f} there")
    if count > 2 and fit(config, work, gpu="MI300X", count=count - 1, fsdp=True).fits:
        return no(f"{count} fit, and so would {count - 1}")
    return yes(f"{count} GPUs: {plan.total / 1e9:.0f} GB on each; with {count - 1} it would be too much")
