# SPDX-License-Identifier: MIT
"""Profiles: where the time goes. The rooms inside: ``torch_trace`` reads torch.profiler, ``amd`` reads AMD's profilers.

In reading order:

- ``bandwidth``: Memory bandwidth of the machine at hand: read, write, copy and triad, on a CPU or a GPU.
- ``examples``: Examples for notebook 40: a planted bottleneck, and where the recorded traces lie.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.bandwidth import measure_bandwidth
    from rocm_guide.observe.profiling.examples import first_kernels, recorded, row_by_row, slice_table

__all__, __getattr__, __dir__ = lazy_names(__name__)
