# SPDX-License-Identifier: MIT
"""Ordinary kernel launches, compiled for MI300X instead of run.

In reading order:

- ``recorder``: What a dry run records, and the object that Triton hands kernels to while it lasts (see ``dry_run``).
- ``torch_gpu``: What PyTorch says about the GPU while a dry run lasts: the questions that Triton libraries ask before
  a launch.
- ``driver``: Run code that launches Triton kernels, compile every launch for an AMD GPU, and launch nothing.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.dry_run.driver import dry_run
    from cdna.dry_run.recorder import DryRunError

__all__ = ["DryRunError", "dry_run"]

__getattr__, __dir__ = lazy_names(__name__)
