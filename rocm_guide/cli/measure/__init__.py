# SPDX-License-Identifier: MIT
"""The command `rocm-guide measure`."""
