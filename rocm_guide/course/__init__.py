# SPDX-License-Identifier: MIT
"""The notebooks as a product: find, check, run, store, report.

In reading order:

- ``lessons``: The catalogue of notebooks: which there are, what they say about themselves, and whether their outputs
  are fresh.
- ``parameters``: Parameters given on the command line, checked against the notebooks' own parameters cells before
  anything runs.
- ``lint``: The rules of a notebook, checked without running it: `python -m rocm_guide.course.lint notebooks/*.ipynb`.
- ``memory_meter``: Peak memory and processor time of the processes that a notebook starts.
- ``worker``: One notebook in one process of its own: `python -m rocm_guide.course.worker`, started by `course_run`.
- ``pool``: Execute notebooks, several at a time, each in processes of its own that can be stopped without a trace.
- ``run``: `rocm-guide run`: execute chosen notebooks into a folder, keep a report, resume what an earlier run left
  open.
- ``report``: The record of a run: `report.json` for programs and for `--resume`, `report.html` for people.
- ``html``: A notebook as one HTML file that needs no network: pictures inside, formulae as MathML, which every
  browser draws.
- ``store``: `rocm-guide store`: execute notebooks cleanly on the CPU and keep their outputs in the repository,
  stamped.
- ``cpu_time``: Whether processes got the processor when they asked for it: on a busy machine everything takes longer.
- ``introductions``: Which notebook introduces a helper: the first one, in reading order, whose code cells import it.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.course.introductions import notebook_of
    from rocm_guide.course.lessons import Lesson, catalogue, find_lessons, notebooks_folder
    from rocm_guide.course.report import times_of
    from rocm_guide.course.run import check_runnable, run_course
    from rocm_guide.course.store import StoreError, store_course, update_readme

__all__ = [
    "Lesson",
    "StoreError",
    "catalogue",
    "check_runnable",
    "find_lessons",
    "notebook_of",
    "notebooks_folder",
    "run_course",
    "store_course",
    "times_of",
    "update_readme",
]

__getattr__, __dir__ = face(__name__, "lessons", "run", "report", "store", "introductions")
