# SPDX-License-Identifier: MIT
"""A GPU memory fault, from the debug agent's report to the lane that caused it.

In reading order:

- ``agent_log``: Read the report of the ROCm debug agent: which kernel faulted, at which instruction, with what in its
  registers.
- ``dmesg``: Read the other places where a fault leaves a trace: the kernel log (dmesg) and what the ROCm runtime
  prints.
- ``code_objects``: From the URI in a fault report to the machine code: find the code object, disassemble it, mark the
  instruction.
- ``verdict``: The short answer to a long report: which kernel, which instruction, which lanes, which addresses.
- ``hunting_env``: The environment for hunting a memory fault: kernels one at a time, no allocator that hides a stray
  access.
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

__getattr__, __dir__ = lazy_names(__name__)
