# SPDX-License-Identifier: MIT
"""Ideas that have a shape, drawn by code in the style of the course's plots. Sizes in the labels are real; lengths are
not to scale.

In reading order:

- ``drawing``: A drawing without axes, and what is drawn on it: boxes, arrows, grids.
- ``layers``: Weights, drawn: LoRA beside the matrix it adapts, and a linear layer as the product that BLAS computes.
- ``heads``: Attention, drawn: the products of one head, which query heads share keys and values, and tiles between
  memory and a compute unit.
- ``devices``: A model over several devices, drawn: what each holds and what travels between them.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.schematics.devices import draw_stages
    from rocm_guide.schematics.drawing import arrow, box, canvas, grid
    from rocm_guide.schematics.heads import draw_attention, draw_flash_tiles, draw_heads
    from rocm_guide.schematics.layers import draw_linear, draw_lora

__all__ = [
    "arrow",
    "box",
    "canvas",
    "draw_attention",
    "draw_flash_tiles",
    "draw_heads",
    "draw_linear",
    "draw_lora",
    "draw_stages",
    "grid",
]

__getattr__, __dir__ = face(__name__, "drawing", "layers", "heads", "devices")
