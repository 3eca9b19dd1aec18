# SPDX-License-Identifier: MIT
"""The command `cdna`: one file or folder a command; `main` finds them."""
