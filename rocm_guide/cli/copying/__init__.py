# SPDX-License-Identifier: MIT
"""The work of ``rocm-guide copy``: one helper as a file (``scan``, ``writer``), or a notebook's ``script``."""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.cli.copying.scan import public_helpers
    from rocm_guide.cli.copying.script import script_of
    from rocm_guide.cli.copying.writer import copy_source, find_helper

__all__, __getattr__, __dir__ = lazy_names(__name__)
