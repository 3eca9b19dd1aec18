# SPDX-License-Identifier: MIT
"""For authors and CI: how notebooks are executed, stored, checked and reported. Readers need none of it.

In reading order:

- ``command``: `rocm-guide run`, and `python -m course store`.
- ``parameters``: Parameters given on the command line, checked against the notebooks' own parameters cells before
  anything runs.
- ``lint``: The rules of a notebook, checked without running it: `python -m course.lint notebooks/*.ipynb`.
- ``run``: Execute chosen notebooks into a folder, keep a report, resume what an earlier run left open.
- ``pool``: Execute notebooks, several at a time, each in processes of its own that can be stopped without a trace.
- ``worker``: One notebook in one process of its own: `python -m course.worker`, started by ``pool``.
- ``memory_meter``, ``cpu_time``: Peak memory and processor time of what a notebook starts.
- ``report``, ``html``, ``gpu_report``: The record of a run, the notebook as a page, the table of runs on GPUs.
- ``store``: Execute notebooks cleanly on the CPU and keep their outputs in the repository, stamped.
- ``kernel_table``: The registers of every kernel on MI300X: the rows of ``resource_table``, which ``table_measure``
  makes of ``rocm_guide.kernels.cases``.
- ``count``: Files and lines of every room. ``sbom``: What the course depends on, with licences.
"""
