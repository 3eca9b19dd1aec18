# SPDX-License-Identifier: MIT
"""Fine-tuning: in one process, in several, with torchtune; runs that go through the notebooks.

In reading order:

- ``lora``: LoRA by hand: a frozen linear layer plus a product of two thin matrices, and the tools to look at weight
  updates.
- ``sft``: Fine-tune with TRL's SFTTrainer on whatever device is there, and measure the run.
- ``job``: The settings of a whole fine-tuning job from a few numbers, and the figures that a trainer has written
  down.
- ``all_reduce``: The time of an all-reduce: computed from the links between a machine's GPUs, and measured in
  several processes.
- ``nodes``: Launch files for several machines, and two "machines" on this one: each a torchrun agent that can be
  lost.
- ``watched``: A script as one process of several, watched from outside: what it holds, and what it sends in a step.
  Notebook 05.
- ``run_folder``: the folder of a run: what lies in it, written whole or not at all, and never mixed up with another
  model.
- ``passport``: ``passport.json``, one small file that says what the model is, what it learnt, its size and its speed;
  the same as text, and a stage of it as one line.
- ``run_measurements``: the figures of the passport, for any model and any data set.
- ``run_stages``: the fine-tuned model that a notebook starts from; it is made where an earlier notebook has not left
  it.
- ``job_check``: whether a model, a data set and the knobs fit together and into this machine, before any work.
- ``rows_check``: Check the rows of a data set as a trainer will see them, before it trains: what is learnt and what
  is cut; pairs of preferences too.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.finetune.all_reduce import AllReduce, LoopbackError, all_reduce_us, measure_all_reduce, ring_bytes
    from rocm_guide.finetune.job import adapter_size, training_figures, whole_job
    from rocm_guide.finetune.job_check import check_job, usual_group
    from rocm_guide.finetune.nodes import (
        LaunchError,
        agent_command,
        free_port,
        launch_file,
        read_losses,
        read_processes,
        start_node,
        wait_for,
    )
    from rocm_guide.finetune.passport import add_stage, passport_line, passport_text, read_passport
    from rocm_guide.finetune.rows_check import check_preferences, check_rows
    from rocm_guide.finetune.run_folder import RunError, RunFolder, open_run
    from rocm_guide.finetune.run_measurements import held_out_pairs, held_out_prompts, measure_stage
    from rocm_guide.finetune.run_stages import (
        adapter_folder,
        check_adapter,
        check_same,
        full_folder,
        merged_model,
        record,
    )
    from rocm_guide.finetune.sft import (
        across_devices,
        fine_tune,
        folder_bytes,
        recipe,
        sft_settings,
        trainable_parameters,
    )
    from rocm_guide.finetune.watched import read_watched

__all__ = [
    "AllReduce",
    "LaunchError",
    "LoopbackError",
    "RunError",
    "RunFolder",
    "across_devices",
    "adapter_folder",
    "adapter_size",
    "add_stage",
    "agent_command",
    "all_reduce_us",
    "check_adapter",
    "check_job",
    "check_preferences",
    "check_rows",
    "check_same",
    "fine_tune",
    "folder_bytes",
    "free_port",
    "full_folder",
    "held_out_pairs",
    "held_out_prompts",
    "launch_file",
    "measure_all_reduce",
    "measure_stage",
    "merged_model",
    "open_run",
    "passport_line",
    "passport_text",
    "read_losses",
    "read_passport",
    "read_processes",
    "read_watched",
    "recipe",
    "record",
    "ring_bytes",
    "sft_settings",
    "start_node",
    "trainable_parameters",
    "training_figures",
    "usual_group",
    "wait_for",
    "whole_job",
]

__getattr__, __dir__ = lazy_names(__name__)
