# SPDX-License-Identifier: MIT
"""A model or data set from one word; its sizes, the memory it needs, and where its layers lie.

In reading order:

- ``shapes``: Shapes of well-known models as data: enough to count, to plan, and to run with random weights, with no
  download.
- ``sizes``: The sizes of a model from its configuration alone: parameters, the KV cache, the matrices that LoRA can
  adapt.
- ``load``: Models and data sets by one word: ``tiny``, ``smollm2``, ``random:SHAPE`` (random weights), a hub id, or a
  path.
- ``columns``: The columns of a data set: the usual names are mapped to those that TRL trains on.
- ``course_data``: The course's own question-answer data: facts about MI300X and its software, asked in many ways, in
  Llama-2 format.
- ``tiny``: The tiny model of the course: a real Llama and its BPE tokenizer, trained on this machine in well under a
  minute.
- ``sources``: Where the weights or the config.json of a model, or the rows of a data set, lie that a reader names by
  one word.
- ``hub``: What a Hugging Face name is, whether the hub can be reached, and models with Python of their own: refused.
- ``real``: A real chat model by one word: ``smollm2``, 135 million parameters under Apache-2.0, small enough for a
  CPU.
- ``described``: The description of any model that transformers knows: its own class, built on the meta device, and what
  that holds.
- ``families``: The sizes of each family of models as config.json spells them, and the tensors that its layers hold.
- ``quantized``: The bytes that a checkpoint stores for a matrix, from the ``quantization_config`` of its config.json.
- ``states``: Memory arithmetic of training: what has to be stored for every weight, trained or frozen.
- ``step``: The peak of a training step: what is in memory at each moment that can be the largest, and which one is.
- ``work``: The work asked of a model: how it is trained or run, and on how much text.
- ``memory_planner``: Will it fit? The memory of one GPU at the peak of training, generating or serving, and the
  largest batch.
- ``placement``: Plan a device map: which module of a model goes to which device, for any model and any budgets,
  without weights.
- ``pipeline_schedules``: Schedules of the GPUs over which a model is spread, computed.
- ``evaluation``: A model's answers, and how often they are right word for word.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.models.columns import held_out_pair, training_rows
    from rocm_guide.models.course_data import chat
    from rocm_guide.models.evaluation import answer, exact_match
    from rocm_guide.models.layer import SizesError
    from rocm_guide.models.load import checkpoint, load_data, load_model, load_tokenizer, meta_model
    from rocm_guide.models.memory_planner import Fit, draw_fit, fit
    from rocm_guide.models.pipeline_schedules import busy_share, pipeline_schedule, sharded_schedule
    from rocm_guide.models.placement import (
        STRATEGIES,
        Placement,
        PlacementError,
        bytes_by_device,
        draw_placement,
        explain_placement,
        memory_table,
        pieces_of,
        plan_placement,
        runs_of,
    )
    from rocm_guide.models.shapes import SHAPES, config_of
    from rocm_guide.models.sizes import LORA_TARGETS, lora_parameters, sizes_of
    from rocm_guide.models.sources import config_fields
    from rocm_guide.models.states import training_state_bytes
    from rocm_guide.models.step import step_moments
    from rocm_guide.models.work import FitError, Workload

__getattr__, __dir__ = lazy_names(__name__)
