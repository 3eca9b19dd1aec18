# SPDX-License-Identifier: MIT
"""The base of every room: errors in one line, this machine's device and its one clock, plots, drawings.

In reading order:

- ``drawing``: A drawing without axes, and what is drawn on it: boxes, arrows, grids.
- ``drawn_layers``: Weights, drawn: LoRA beside the matrix it adapts, and a linear layer as the product that BLAS
  computes.
- ``drawn_heads``: Attention, drawn: the products of one head, which query heads share keys and values, and tiles
  between memory and a compute unit.
- ``drawn_devices``: A model over several devices, drawn: what each holds and what travels between them.
- ``drawn_gpus``: Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and
  memory.
- ``drawn_programs``: Triton's programs, drawn: what kernels move through memory, who owns which element, a block over
  waves and lanes.
- ``drawn_machine_code``: Pictures of machine code at work: lane maps, LDS banks, a loop's budget, waves in time.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.common.drawing import arrow, box, canvas, grid
    from rocm_guide.common.drawn_devices import draw_stages
    from rocm_guide.common.drawn_gpus import draw_compute_unit, draw_gpu, draw_owners, draw_wave
    from rocm_guide.common.drawn_heads import draw_attention, draw_flash_tiles, draw_heads, draw_score_blocks
    from rocm_guide.common.drawn_layers import draw_linear, draw_lora
    from rocm_guide.common.drawn_machine_code import draw_banks, draw_budget, draw_lane_map, draw_waves
    from rocm_guide.common.drawn_programs import draw_block, draw_crossings, draw_programs

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

__getattr__, __dir__ = lazy_names(
    __name__,
    "drawing",
    "drawn_layers",
    "drawn_heads",
    "drawn_devices",
    "drawn_gpus",
    "drawn_programs",
    "drawn_machine_code",
)
