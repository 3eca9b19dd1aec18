# SPDX-License-Identifier: MIT
"""Memory: named allocations, global, buffer and LDS instructions, atomics, and loads that are still in flight."""
