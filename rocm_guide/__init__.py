# SPDX-License-Identifier: MIT
"""Helpers of the ROCm LLM Guide. Importing this package imports no library and touches no device."""

__version__ = "0.1.0"
