# SPDX-License-Identifier: MIT
"""The command line: one file a command; ``main`` finds them by name.

In reading order:

- ``copy``: `rocm-guide copy`: take one helper along into another project.
- ``doctor``: `rocm-guide doctor`: is this machine ready for the course?
- ``examples``: The examples at the end of every `--help`: command path -> (command line, what it is for).
- ``faults``: `rocm-guide faults read | log | code | env`: from a crash to the instruction.
- ``hub``: `rocm-guide hub`: is this machine ready for a class, and for how many learners?
- ``kernels``: `rocm-guide kernels table`: what every kernel of the course takes on MI300X, compiled here.
- ``launch``: `rocm-guide launch`: files that start one training run on several machines.
- ``main``: The command `rocm-guide`: finds its commands by name, and turns a GuideError into one line and exit code
  2.
- ``options``: Options that several commands share: checked before any work is done, and completed by the shell at no
  cost.
- ``output``: Where the text that a command makes goes.
- ``plain_values``: Words of the command line that are plainly what their option wants, read without typer's general
  machinery.
- ``profile``: `rocm-guide profile SCRIPT` records a trace; `rocm-guide trace summary | compare | kernels | counters`
  read one.
- ``system``: `rocm-guide system check | set | reset`: what the guide's env_check.sh set out to do.

Commands of several files have folders: ``course`` (`list`, `run`, `lab`, `store`), ``fit``, ``inspect``, ``measure``,
``serving`` (`serve`, `bench`, `passport`), ``step`` and ``tunable``.
"""
