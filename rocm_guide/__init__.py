# SPDX-License-Identifier: MIT
"""Helpers of the ROCm LLM Guide. Importing this package imports no library and touches no device."""

import rocm_guide.moved  # noqa: F401 - says the new name of a module that has moved

__version__ = "0.1.0"
