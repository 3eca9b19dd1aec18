# SPDX-License-Identifier: MIT
"""torchtune's recipes: configure, run, read the results. In reading order: ``config``, ``tokenizer``, ``run``."""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.finetune.torchtune.config import lora_config, model_on_disk, write_config, write_rows
    from rocm_guide.finetune.torchtune.run import (
        TuneError,
        gloo_recipe,
        processes_for,
        run_recipe,
        split_epoch,
        tune,
        tune_line,
    )
    from rocm_guide.finetune.torchtune.tokenizer import ChatTokenizer

__all__, __getattr__, __dir__ = lazy_names(__name__)
