# SPDX-License-Identifier: MIT
"""Is this machine ready for the course? ``software`` has the single checks, ``own_folders`` the libraries in folders of
their own, ``diagnosis`` puts them together, and ``first_look`` shows what the first commands on a new machine print.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.doctor.diagnosis import PreflightError, diagnose, preflight
    from rocm_guide.observe.doctor.first_look import fields_of, tool_output, torch_checks

__all__, __getattr__, __dir__ = lazy_names(__name__)
