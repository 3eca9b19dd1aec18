# SPDX-License-Identifier: MIT
"""GPUs, and machine code at work, drawn. Their figures: :mod:`cdna.predict`.

In reading order:

- ``drawings``: Pictures of a GPU drawn from its specification: a wave and its registers, a compute unit, dies and
  memory.
- ``machine_drawings``: Pictures of machine code at work: lane maps, LDS banks, a loop's budget.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.hardware.drawings import draw_compute_unit, draw_gpu, draw_owners, draw_wave
    from rocm_guide.hardware.machine_drawings import draw_banks, draw_budget, draw_lane_map

__all__ = [
    "draw_banks",
    "draw_budget",
    "draw_compute_unit",
    "draw_gpu",
    "draw_lane_map",
    "draw_owners",
    "draw_wave",
]

__getattr__, __dir__ = face(__name__, "drawings", "machine_drawings")
