# SPDX-License-Identifier: MIT
"""The command line: one file a command; ``main`` finds them by name.

In reading order:

- ``copy``: `rocm-guide copy`: take one helper along into another project.
- ``doctor``: `rocm-guide doctor`: is this machine ready for the course?
- ``examples``: The examples at the end of every `--help`: command path -> (command line, what it is for).
- ``faults``: `rocm-guide faults read | log | code | env`: from a crash to the instruction.
- ``launch``: `rocm-guide launch`: files that start one training run on several machines.
- ``main``: The command `rocm-guide`: finds its commands by name, and turns a GuideError into one line and exit code
  2.
- ``options``: Options that several commands share: checked before any work is done, and completed by the shell at no
  cost.
- ``notebooks``, ``lessons``, ``introductions``: `rocm-guide list` and `lab`: which notebooks there are, and which
  helper each introduces.
- ``system``: `rocm-guide system check | set | reset | class`: settings of an MI300X machine, and whether it can take a
  class.
- ``trace``: `rocm-guide trace record | summary | compare | kernels | counters`: profile a script, read what a profiler
  wrote.

Commands of several files have folders: ``copying``, ``fit``, ``measure``, ``serving`` (`serve`, `bench`, `passport`)
and ``tunable``. `rocm-guide run` is in ``course`` beside this package.
"""
