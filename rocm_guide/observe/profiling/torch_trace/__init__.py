# SPDX-License-Identifier: MIT
"""Traces of torch.profiler: record, read, sum up, compare.

In reading order: ``recording``, ``events`` (one at a time), ``timeline`` (in columns), ``slices`` (parts of a model),
``attribution`` (which kernel belongs to which), ``summary``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.profiling.torch_trace.events import TraceError, iter_events
    from rocm_guide.observe.profiling.torch_trace.recording import (
        NestedProfilerError,
        only_profiler,
        record,
        record_block,
    )
    from rocm_guide.observe.profiling.torch_trace.summary import (
        TraceSummary,
        check_kernels,
        compare_traces,
        replaced_kernels,
        summarize,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__)
