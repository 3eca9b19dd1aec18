# SPDX-License-Identifier: MIT
"""Looking at a machine and a run: ``doctor``, ``system``, ``predict``, ``profiling``, ``debugging``."""
