# SPDX-License-Identifier: MIT
"""Fine-tuning: in one process, in several, with torchtune; runs that go through the notebooks.

In reading order: ``lora`` by hand; ``job_check``, ``rows_check``, ``job`` and ``sft`` with TRL; ``nodes``, ``watched``
and ``all_reduce`` in several processes; ``torchtune``; ``run_folder``, ``passport``, ``run_measurements`` and
``run_stages``, a model on its way through the notebooks.
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

__all__, __getattr__, __dir__ = lazy_names(__name__)
