# SPDX-License-Identifier: MIT
"""The old place of :mod:`cdna.hip`, a package of its own now; importing it says so in one line."""

__all__ = []

raise ImportError("rocm_guide.hip is the package cdna.hip now: write cdna.hip wherever you import rocm_guide.hip")
