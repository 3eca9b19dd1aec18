# SPDX-License-Identifier: MIT
"""The base of every room: errors in one line, this machine's device and its one clock, plots, drawings.

In reading order:

- ``drawing``: A drawing without axes, and what is drawn on it: boxes, arrows, grids.
- ``drawn_models``: Drawings of models: LoRA and a linear layer, heads and their masks, layers on several GPUs.
- ``drawn_gpus``: Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and
  memory.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.common.drawing import arrow, box, canvas, grid
    from rocm_guide.common.drawn_gpus import (
        draw_banks,
        draw_block,
        draw_budget,
        draw_compute_unit,
        draw_crossings,
        draw_gpu,
        draw_lane_map,
        draw_owners,
        draw_programs,
        draw_wave,
        draw_waves,
    )
    from rocm_guide.common.drawn_models import (
        draw_attention,
        draw_flash_tiles,
        draw_heads,
        draw_linear,
        draw_lora,
        draw_score_blocks,
        draw_stages,
    )

__all__ = [
    "arrow",
    "box",
    "canvas",
    "draw_attention",
    "draw_banks",
    "draw_block",
    "draw_budget",
    "draw_compute_unit",
    "draw_crossings",
    "draw_flash_tiles",
    "draw_gpu",
    "draw_heads",
    "draw_lane_map",
    "draw_linear",
    "draw_lora",
    "draw_owners",
    "draw_programs",
    "draw_score_blocks",
    "draw_stages",
    "draw_wave",
    "draw_waves",
    "grid",
]

__getattr__, __dir__ = lazy_names(__name__)
