# SPDX-License-Identifier: MIT
"""Settings of an MI300X machine: ``machine`` (files and tools), ``audit`` (what is slow or unsteady), ``apply`` (set
and put back), ``pretend`` (a machine in a folder to try it on).
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.observe.system.apply import Outcome, apply_settings, load_state, reset_settings, state_path
    from rocm_guide.observe.system.audit import affinity_hints, check_system
    from rocm_guide.observe.system.machine import Machine, SystemSettingError, every_setting, wanted_settings
    from rocm_guide.observe.system.pretend import photograph, pretend_machine

__all__, __getattr__, __dir__ = lazy_names(__name__)
