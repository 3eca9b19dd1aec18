# SPDX-License-Identifier: MIT
"""Solutions of the puzzles that notebook 38 does not solve in a cell of its own; the notebook shows and grades them.

They are written as a reader would write them: short, right in every case of the puzzle, and good code for MI300X. What
the course's own kernels do beyond that stands in ``rocm_guide.kernels``. In reading order:

- ``rows``, ``products``, ``attention``, ``models``, ``gluon``: The kernels and their wrappers.
- ``show``: A solution by the name of its puzzle, and its code to look at.
"""
