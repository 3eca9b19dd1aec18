# SPDX-License-Identifier: MIT
"""The work of ``rocm-guide copy``: one helper as a file of its own.

In reading order:

- ``scan``: Read this package's source without importing it: which statement defines a name, and which names it needs.
- ``writer``: `rocm-guide copy tune.tunableop.planner.plan`: one helper as one file that needs nothing of this package.
- ``script``: `rocm-guide script 02`: the cells of a notebook that are to be taken away, as one script that needs no
  course.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.cli.copying.scan import public_helpers
    from rocm_guide.cli.copying.script import script_of
    from rocm_guide.cli.copying.writer import CopyError, copy_source, find_helper

__all__ = ["CopyError", "copy_source", "find_helper", "public_helpers", "script_of"]

__getattr__, __dir__ = lazy_names(__name__)
