# SPDX-License-Identifier: MIT
"""A GPU memory fault, from the debug agent's report to the lane that caused it.

In reading order: ``agent_log`` (the report), ``dmesg`` (the kernel log, and what the runtime prints), ``code_objects``
(from a URI to the instruction), ``verdict`` (the short answer), ``hunting_env`` (variables under which a fault shows
where it is).
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.debugging.faults.agent_log import FaultError, read_report
    from rocm_guide.observe.debugging.faults.code_objects import (
        disassemble,
        extract_code,
        find_objdump,
        printed_listing,
        saved_name,
    )
    from rocm_guide.observe.debugging.faults.dmesg import read_log, scan_log
    from rocm_guide.observe.debugging.faults.hunting_env import HUNT, hunt_environment, hunting, shell_lines
    from rocm_guide.observe.debugging.faults.verdict import explain_report, lane_addresses

__all__, __getattr__, __dir__ = lazy_names(__name__)
