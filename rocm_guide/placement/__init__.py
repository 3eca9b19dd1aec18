# SPDX-License-Identifier: MIT
"""Which layer lies on which GPU, and which GPU then works when.

In reading order:

- ``planner``: Plan a device map: which module of a model goes to which device, for any model and any budgets, without
  weights.
- ``reasons``: Read a device map: why each device holds what it holds, tables, and a strip of layers for each device.
- ``schedules``: When each GPU works while a model that is spread over several of them runs: schedules, and real
  spans.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.placement.planner import STRATEGIES, Placement, PlacementError, pieces_of, plan_placement
    from rocm_guide.placement.reasons import bytes_by_device, draw_placement, explain_placement, memory_table, runs_of
    from rocm_guide.placement.schedules import busy_share, layer_spans, pipeline_schedule, sharded_schedule

__all__ = [
    "STRATEGIES",
    "Placement",
    "PlacementError",
    "busy_share",
    "bytes_by_device",
    "draw_placement",
    "explain_placement",
    "layer_spans",
    "memory_table",
    "pieces_of",
    "pipeline_schedule",
    "plan_placement",
    "runs_of",
    "sharded_schedule",
]

__getattr__, __dir__ = face(__name__, "planner", "reasons", "schedules")
