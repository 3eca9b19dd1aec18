# SPDX-License-Identifier: MIT
"""Helpers of the ROCm LLM Guide. Importing this package imports no library and touches no device."""

from rocm_guide.moved import new_name as _new_name  # an import of an old name says the new one

__version__ = "0.1.0"
