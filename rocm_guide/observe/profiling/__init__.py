# SPDX-License-Identifier: MIT
"""Profiles: where the time goes. ``torch_trace`` reads torch.profiler, ``amd`` AMD's profilers, ``bandwidth`` measures
memory, and ``examples`` are those of notebook 40.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.bandwidth import measure_bandwidth
    from rocm_guide.observe.profiling.examples import first_kernels, recorded, row_by_row, slice_table

__all__, __getattr__, __dir__ = lazy_names(__name__)
