# SPDX-License-Identifier: MIT
"""The old place of :mod:`cdna`, a package of its own now; importing it says so in one line."""

__all__ = []

raise ImportError("rocm_guide.mi300x is the package cdna now: write cdna wherever you import rocm_guide.mi300x")
