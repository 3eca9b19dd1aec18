# SPDX-License-Identifier: MIT
"""One process that trains, and whether the model learnt.

In reading order:

- ``lora``: LoRA by hand: a frozen linear layer plus a product of two thin matrices, and the tools to look at weight
  updates.
- ``sft``: Fine-tune with TRL's SFTTrainer on whatever device is there, and measure the run.
- ``spread``: TRL's trainer for a model whose layers lie on several GPUs.
- ``recompute``: Activation checkpointing by halves of a layer: attention in one piece, the MLP in tiles of tokens.
- ``step_clock``: When training began, was warm, and ended: the clock behind
  :func:`rocm_guide.training.sft.fine_tune`.
- ``job``: The settings of a whole fine-tuning job from a few numbers, and the figures that a trainer has
  written down.
- ``evaluation``: What a model answers, and how often that is right word for word.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.training.evaluation import answer, exact_match
    from rocm_guide.training.job import adapter_size, training_figures, whole_job
    from rocm_guide.training.recompute import recompute_halves
    from rocm_guide.training.sft import fine_tune, folder_bytes, recipe, sft_settings, trainable_parameters
    from rocm_guide.training.spread import across_devices

__all__ = [
    "across_devices",
    "adapter_size",
    "answer",
    "exact_match",
    "fine_tune",
    "folder_bytes",
    "recipe",
    "recompute_halves",
    "sft_settings",
    "trainable_parameters",
    "training_figures",
    "whole_job",
]

__getattr__, __dir__ = face(__name__, "sft", "spread", "recompute", "job", "evaluation")
