# SPDX-License-Identifier: MIT
"""One model on its way through the course: ``runs/my-model/``, what each notebook leaves there, and its passport.

In reading order:

- ``folder``: the folder of a run: what lies in it, written whole or not at all, and never mixed up with another model.
- ``passport``: ``passport.json``, one small file that says what the model is, what it learnt, its size and its speed.
- ``measure``: the figures of the passport, for any model and any data set.
- ``stages``: the fine-tuned model that a notebook starts from; it is made where an earlier notebook has not left it.
- ``job_check``: whether a model, a data set and the knobs fit together and into this machine, before any work.
- ``picture``: the passport as text and as a picture.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.runs.folder import RunError, RunFolder, newest_checkpoint, open_run
    from rocm_guide.runs.job_check import check_job
    from rocm_guide.runs.measure import held_out_pairs, held_out_prompts, measure_stage
    from rocm_guide.runs.passport import add_stage, read_passport
    from rocm_guide.runs.picture import draw_passport, passport_text
    from rocm_guide.runs.stages import adapter_folder, check_adapter, check_same, full_folder, merged_model, record

__all__ = [
    "RunError",
    "RunFolder",
    "adapter_folder",
    "add_stage",
    "check_adapter",
    "check_job",
    "check_same",
    "draw_passport",
    "full_folder",
    "held_out_pairs",
    "held_out_prompts",
    "measure_stage",
    "merged_model",
    "newest_checkpoint",
    "open_run",
    "passport_text",
    "read_passport",
    "record",
]

__getattr__, __dir__ = face(__name__, "folder", "job_check", "measure", "passport", "picture", "stages")
