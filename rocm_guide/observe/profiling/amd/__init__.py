# SPDX-License-Identifier: MIT
"""The files that AMD's profilers write, rocprofv3's CSV and databases among them, and counters.

In reading order: ``reader``, ``rocprof_csv``, ``counters``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.amd.counters import COUNTERS, describe_counter
    from rocm_guide.observe.profiling.amd.reader import read_profile, roofline_rows

__getattr__, __dir__ = lazy_names(__name__)
