# SPDX-License-Identifier: MIT
"""Puzzles for kernel writers, and a grader that needs no GPU.

In reading order: ``catalogue`` names the puzzles, which stand in ``elementwise``, ``rows``, ``products``,
``attention``, ``models``, ``repairs`` (slow kernels to begin with), ``gluon`` and ``listings`` (of assembly); ``path``,
``solved``, ``grading``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.dojo.catalogue import PUZZLES
    from rocm_guide.dojo.grading import grade
    from rocm_guide.dojo.listings import LISTINGS
    from rocm_guide.dojo.path import PATH, start
    from rocm_guide.dojo.solved.show import SOLVED, show_solution

__all__, __getattr__, __dir__ = lazy_names(__name__)
