# SPDX-License-Identifier: MIT
"""Examples for notebook 40: a planted bottleneck, and where the recorded traces lie."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import torch

from rocm_guide.common.base import GuideError, package_folder
from rocm_guide.observe.profiling.torch_trace.attribution import iter_device_work
from rocm_guide.observe.profiling.torch_trace.summary import TraceSummary
from rocm_guide.observe.profiling.torch_trace.timeline import load_timeline

__all__ = ["first_kernels", "recorded", "row_by_row", "slice_table"]


def row_by_row(norm: Any) -> Any:
    """Return an RMSNorm that treats the rows one after the other in Python: right, and slow.

    Args:
        norm: a norm module with ``weight`` and ``variance_epsilon``; its numbers are kept.

    >>> import torch
    >>> class Norm(torch.nn.Module):
    ...     weight, variance_epsilon = torch.ones(4), 1e-6
    >>> slow = row_by_row(Norm())
    >>> bool(torch.allclose(slow(torch.tensor([[[1.0, 2.0, 2.0, 4.0]]])).pow(2).mean(), torch.tensor(1.0)))
    True
    """

    class RowByRowRMSNorm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.epsilon = norm.weight, norm.variance_epsilon

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.reshape(-1, x.shape[-1])
            # In float32, as the original does, also when the model is bf16.
            done = [row * torch.rsqrt(row.pow(2).mean() + self.epsilon) for row in rows.float()]
            return self.weight * torch.stack(done).reshape(x.shape).to(x.dtype)

    return RowByRowRMSNorm()


def recorded(name: str) -> Path:
    """Return where a trace, or a result that a benchmark measured, lies in this package.

    In a clone both places are links, to ``notebooks/recorded`` and to ``benchmarks/results``, where benchmarks write.

    Args:
        name: a file below one of them, as ``prefill_7b.json``.

    Raises:
        GuideError: there is none of that name.

    >>> recorded("prefill_7b.json").suffix
    '.json'
    """
    package = package_folder()
    for folder in (package / "notebooks" / "recorded", package / "data" / "measured"):
        if (folder / name).exists():
            return folder / name
    raise GuideError(f"{name}: neither a recorded trace nor a measured result of the course; check the name")


def slice_table(summary: TraceSummary) -> str:
    """Return the slices of a step as lines of text: milliseconds and share.

    >>> print(slice_table(TraceSummary("t", "gpu", "", 1, 9, 9, 0, 0, 4000.0, 1, (), {"norms": 4000.0}, (), 0)))
    norms                      4.000 ms  100.0%
    """
    steps = max(1, summary.steps)
    return "\n".join(
        f"{name:<22} {us / steps / 1e3:9.3f} ms {us / summary.work_us:7.1%}" for name, us in summary.slices.items()
    )


def first_kernels(path: Path, count: int = 24) -> list[tuple[float, float, str]]:
    """Return the first kernels of a torch trace: (start in microseconds from the first, duration, slice)."""
    work = list(islice(iter_device_work(load_timeline(path)), count))
    return [(w.start - work[0].start, w.duration, w.slice) for w in work]
