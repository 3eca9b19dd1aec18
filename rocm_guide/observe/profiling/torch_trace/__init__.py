# SPDX-License-Identifier: MIT
"""Traces of torch.profiler: record, read, sum up, compare.

In reading order:

- ``recording``: Record a trace of any step, with the place of every module written into it.
- ``events``: Read a trace of any size, one event at a time, without ever holding the file.
- ``timeline``: The few numbers per event that a summary needs, kept in columns of machine numbers.
- ``slices``: The part of a transformer that a kernel belongs to.
- ``attribution``: From a timeline to answers: what ran, for which part of the model, and why the device stood still.
- ``summary``: Summarise a torch.profiler trace, compare two of them.
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

__getattr__, __dir__ = lazy_names(__name__)
