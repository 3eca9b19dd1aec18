# SPDX-License-Identifier: MIT
"""The command line, `rocm-guide`: `main.py` is the application, one further file for each group of commands."""
