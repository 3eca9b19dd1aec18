# SPDX-License-Identifier: MIT
"""torchtune's recipes: configure, run, read the results.

In reading order:

- ``config``: The input of a torchtune recipe: a YAML configuration, a model on disk, a JSON data set.
- ``tokenizer``: A part of ours for torchtune: in a configuration, `_component_` may name anything that can be
  imported.
- ``run``: Run torchtune's command line and its recipes, in processes of their own, and read what they measured.
"""

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

__all__ = [
    "ChatTokenizer",
    "TuneError",
    "gloo_recipe",
    "lora_config",
    "model_on_disk",
    "processes_for",
    "run_recipe",
    "split_epoch",
    "tune",
    "tune_line",
    "write_config",
    "write_rows",
]

__getattr__, __dir__ = lazy_names(__name__)
