# SPDX-License-Identifier: MIT
"""Wrong results: ``compare`` finds the first layer that differs, ``nans`` the first NaN."""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.debugging.wrong.compare import first_difference
    from rocm_guide.observe.debugging.wrong.nans import nan_origin

__all__, __getattr__, __dir__ = lazy_names(__name__)
