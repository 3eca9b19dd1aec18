# SPDX-License-Identifier: MIT
"""Profiles: where the time goes. The rooms inside: ``torch_trace`` reads torch.profiler, ``amd`` reads AMD's profilers.

In reading order: ``bandwidth``, ``examples``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.bandwidth import BandwidthError, measure_bandwidth
    from rocm_guide.observe.profiling.examples import first_kernels, recorded, row_by_row, slice_table

__getattr__, __dir__ = lazy_names(__name__)
