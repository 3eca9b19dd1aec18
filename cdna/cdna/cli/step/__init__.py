# SPDX-License-Identifier: MIT
"""``cdna step``: watch gfx942 code at work, one instruction at a time.

In reading order:

- ``command``: `cdna step`: execute a kernel's gfx942 code here and step through one wave of it.
- ``launch``: What is to be executed: a kernel with its grid and arguments, from a Python file, HIP or assembly.
- ``terminal``: The terminal form: frames of text, and keys on a terminal.
"""
