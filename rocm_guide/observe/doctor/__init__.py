# SPDX-License-Identifier: MIT
"""Is this machine ready for the course?

In reading order: ``software``, ``own_folders``, ``diagnosis``, ``first_look``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.doctor.diagnosis import PreflightError, checks_as_dict, diagnose, preflight
    from rocm_guide.observe.doctor.first_look import fields_of, tool_output, torch_checks

__getattr__, __dir__ = lazy_names(__name__)
