# SPDX-License-Identifier: MIT
"""Suggested changes to a compiled kernel, with the evidence.

In reading order:

- ``evidence``: What a suggestion is: a finding with its numbers, what to try, and the lines that show it.
- ``memory_rules``: Rules about memory: narrow accesses, waits without work, trips through LDS.
- ``rules``: Suggestions for a kernel, each tied to the lines that prompt it: narrow loads, waits, spills, trips
  through LDS.
"""

from typing import TYPE_CHECKING

from cdna.base import lazy_names

if TYPE_CHECKING:
    from cdna.suggest.rules import suggest

__all__ = ["suggest"]

__getattr__, __dir__ = lazy_names(__name__, "rules")
