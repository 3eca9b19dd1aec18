# SPDX-License-Identifier: MIT
"""``cdna inspect``: what a Triton kernel becomes on MI300X.

In reading order:

- ``command``: `cdna inspect`: what a kernel becomes on MI300X, on a machine that has none.
- ``python_file``: From ``FILE.py[::KERNEL]`` to compiled kernels: by the file's own example, by a call, or by
  argument types.
- ``text``: The terminal form of an inspection: sections of plain lines that read the same when piped into a file.
- ``executed``: What one launch does when its gfx942 code is executed here: bytes, lines, conflicts, instructions.
- ``figures``: The figures of ``cdna inspect --html``, drawn in the house style and put inline as SVG.
- ``arguments``: What `cdna inspect` is told on the command line: arguments, constants and compile options as
  NAME=VALUE.
"""
