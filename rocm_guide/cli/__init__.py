# SPDX-License-Identifier: MIT
"""The command line: one file a command; ``main`` finds them by name.

Beside the commands: ``examples`` at the end of every `--help`, ``options`` that the shell completes, ``lessons`` (the
catalogue of notebooks), ``symptoms`` (their tables), ``copying``. `rocm-guide run` is in ``course``, beside this one.
"""
