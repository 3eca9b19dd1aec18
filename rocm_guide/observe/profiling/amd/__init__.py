# SPDX-License-Identifier: MIT
"""The files that AMD's profilers write, rocprofv3's CSV and databases among them, and counters.

In reading order:

- ``reader``: Read the file of any AMD profiler: one door for CSV, databases and the folders of rocprof-compute.
- ``rocprof_csv``: Read what AMD's kernel profilers write: rocprofv3, rocprofv2 and the old rocprof as CSV,
  rocprof-compute's tables.
- ``counters``: The meaning of an AMD Instinct GPU's hardware counters, and where a kernel lies under the roofline.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.amd.counters import COUNTERS, describe_counter
    from rocm_guide.observe.profiling.amd.reader import read_profile, roofline_rows

__getattr__, __dir__ = lazy_names(__name__)
