# SPDX-License-Identifier: MIT
"""It crashed (``faults``), or it is wrong (``wrong``); ``examples`` of both for notebook 41."""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.debugging.examples import (
        SCALE_ROWS,
        fault_sample,
        forgetful_norm,
        layer_errors,
        plant_wrong_weight,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__)
