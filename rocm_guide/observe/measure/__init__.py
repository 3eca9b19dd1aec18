# SPDX-License-Identifier: MIT
"""Predicted, then measured by whoever has the GPU: the same cases on any GPU, one stamped file, files side by side.

In reading order:

- ``cases``: The kernels of the course at fixed sizes, with the bytes and operations that each needs at least.
- ``predictions``: What each case takes on an MI300X by a model of its kernels, as it comes with the package.
- ``predict``: That model: kernels compiled for gfx942, executed, and laid out on the compute units.
- ``loops``: What one more turn of a kernel's loop costs: two executed lengths, and what lies between them.
- ``results``: Time the cases on this machine's GPU and write the stamped file; read such files.
- ``compare``: Predicted against measured, of one file or several, as a table and a plot.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.measure.cases import CASES
    from rocm_guide.observe.measure.compare import draw_merged, merged_table
    from rocm_guide.observe.measure.predictions import read_predictions
    from rocm_guide.observe.measure.results import MeasureError, measure, read_result

__all__ = ["CASES", "MeasureError", "draw_merged", "measure", "merged_table", "read_predictions", "read_result"]

__getattr__, __dir__ = lazy_names(__name__, "cases", "predictions", "results", "compare")
