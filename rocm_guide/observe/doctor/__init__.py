# SPDX-License-Identifier: MIT
"""Is this machine ready for the course?

In reading order:

- ``software``: The single checks behind `rocm-guide doctor`: each looks at one thing and says what to do about it.
- ``own_folders``: Libraries that lie in folders of their own: which, where, and how they get there.
- ``diagnosis``: Is this machine ready for the course? `preflight()` for notebooks, `diagnose()` for `rocm-guide
  doctor`.
- ``first_look``: The first commands on a new machine: their output if the tool is there, else a sample that is
  labelled as one.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.doctor.diagnosis import PreflightError, checks_as_dict, diagnose, preflight
    from rocm_guide.observe.doctor.first_look import fields_of, tool_output, torch_checks

__getattr__, __dir__ = lazy_names(__name__)
