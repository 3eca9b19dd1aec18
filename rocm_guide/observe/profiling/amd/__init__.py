# SPDX-License-Identifier: MIT
"""The files of AMD's profilers: ``reader`` opens any of them, ``rocprof_csv`` reads four generations of CSV,
``counters`` says what hardware counters mean.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.amd.counters import COUNTERS, describe_counter
    from rocm_guide.observe.profiling.amd.reader import read_profile, roofline_rows

__all__, __getattr__, __dir__ = lazy_names(__name__)
