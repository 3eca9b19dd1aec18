# SPDX-License-Identifier: MIT
"""The base of every room: errors in one line, this machine's device and its one clock, plots, drawings.

In reading order: ``base``, ``host``, ``device``, ``installation``, ``plots``, ``drawing``, ``drawn_models``,
``drawn_gpus``.
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

__all__, __getattr__, __dir__ = lazy_names(__name__)
