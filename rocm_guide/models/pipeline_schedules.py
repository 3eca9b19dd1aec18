# SPDX-License-Identifier: MIT
"""Schedules of the GPUs over which a model is spread, computed."""

from __future__ import annotations

from collections.abc import Mapping

from rocm_guide.common.base import GuideError

__all__ = ["busy_share", "pipeline_schedule", "sharded_schedule"]

Lanes = dict[str, list[tuple[float, float, str]]]


def pipeline_schedule(gpus: int, micro_batches: int = 1, *, backward: float = 2.0) -> Lanes:
    """Return when each GPU works in one training step of a pipeline: all forward passes, then all backward passes.

    One micro-batch is what a device map does: the batch walks through the GPUs and back, and one works at a time.
    With more, a GPU takes the next micro-batch while its neighbour has the last (GPipe). The time unit is the forward
    pass of the whole batch through one GPU's layers; a backward pass takes ``backward`` times as long. Moving
    activations is left out. Source: Huang et al., "GPipe", arXiv:1811.06965.

    Returns:
        For each GPU [(start, duration, "forward" or "backward")], as :func:`rocm_guide.common.plots.timeline` takes it.

    Raises:
        GuideError: no GPU, or no micro-batch.

    >>> pipeline_schedule(2)["GPU 1"]
    [(1.0, 1.0, 'forward'), (2.0, 2.0, 'backward')]
    """
    if gpus < 1 or micro_batches < 1:
        raise GuideError(f"gpus={gpus}, micro_batches={micro_batches}: give one or more of each")
    piece, back = 1.0 / micro_batches, backward / micro_batches
    turn = (micro_batches + gpus - 1) * piece  # the last forward pass ends here
    lanes: Lanes = {}
    for gpu in range(gpus):
        spans = [((gpu + i) * piece, piece, "forward") for i in range(micro_batches)]
        spans += [(turn + (gpus - 1 - gpu + i) * back, back, "backward") for i in range(micro_batches)]
        lanes[f"GPU {gpu}"] = spans
    return lanes


def sharded_schedule(gpus: int, layers: int = 4, *, gather: float = 0.5, backward: float = 2.0) -> Lanes:
    """Return when each GPU works with FSDP: all compute every layer, on their own rows, while the next is gathered.

    The time unit is that of :func:`pipeline_schedule`: each GPU does a ``1 / gpus`` share of the batch, through all
    layers. ``gather`` is the time to collect one layer relative to the time to compute it forward; below 1 it hides
    behind the computation, except for the first layer. Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277.

    Raises:
        GuideError: no GPU, or no layer.

    >>> busy_share(sharded_schedule(4, layers=80)) > 0.99
    True
    """
    if gpus < 1 or layers < 1:
        raise GuideError(f"gpus={gpus}, layers={layers}: give one or more of each")
    one = 1.0 / layers  # all the GPUs' layers, for a share of the rows: one unit in sum
    now, spans = gather * one, []
    for kind, length in (("forward", one), ("backward", backward * one)):
        for _ in range(layers):
            spans.append((now, length, kind))
            now += max(length, gather * one)
    return {f"GPU {gpu}": [*spans, (0.0, gather * one, "gather")] for gpu in range(gpus)}


def busy_share(lanes: Mapping[str, list[tuple[float, float, str]]]) -> float:
    """Return the share of the time in which the GPUs compute, between the first start and the last end.

    >>> busy_share(pipeline_schedule(4)), round(busy_share(pipeline_schedule(4, 8)), 3)
    (0.25, 0.727)
    """
    spans = [span for lane in lanes.values() for span in lane]
    length = max(s + d for s, d, _ in spans) - min(s for s, _, _ in spans)
    return sum(d for _, d, kind in spans if kind != "gather") / (length * len(lanes))
