# SPDX-License-Identifier: MIT
"""Wrong results: the first layer that differs, the first NaN.

In reading order: ``compare``, ``nans``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.debugging.wrong.compare import first_difference
    from rocm_guide.observe.debugging.wrong.nans import nan_origin

__getattr__, __dir__ = lazy_names(__name__)
