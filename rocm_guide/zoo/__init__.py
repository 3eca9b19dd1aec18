# SPDX-License-Identifier: MIT
"""A model or a data set from one word, and its sizes.

In reading order:

- ``shapes``: Shapes of well-known models as data: enough to count, to plan, and to run with random weights, with no
  download.
- ``sizes``: The sizes of a model from its configuration alone: parameters, the KV cache, the matrices that LoRA can
  adapt.
- ``load``: Models and data sets by one word: ``tiny``, ``smollm2``, ``random:SHAPE`` (random weights), a hub id, or a
  path.
- ``columns``: The columns of a data set: the usual names are mapped to those that TRL trains on.
- ``data``: The course's own question-answer data: facts about MI300X and its software, asked in many ways, in Llama-2
  format.
- ``tiny``: The tiny model of the course: a real Llama and its BPE tokenizer, trained on this machine in well under a
  minute.
- ``real``: A real chat model by one word: ``smollm2``, 135 million parameters under Apache-2.0, small enough for a
  CPU.
- ``config_json``: The configuration of a model by one word, as plain fields: no weights, no torch, no transformers,
  no code of others.
- ``families``: How each family of models spells its sizes in config.json, and which tensors its layers hold.
- ``quantized``: How many bytes a checkpoint stores for a matrix, from the ``quantization_config`` of its config.json.
- ``trust``: Models that bring their own Python: refused before anything of them runs.
"""

from typing import TYPE_CHECKING

from rocm_guide.base import face

if TYPE_CHECKING:
    from rocm_guide.zoo.columns import held_out_pair, training_rows
    from rocm_guide.zoo.config_json import config_fields
    from rocm_guide.zoo.data import chat
    from rocm_guide.zoo.load import checkpoint, load_data, load_model, load_tokenizer, meta_model
    from rocm_guide.zoo.shapes import SHAPES, config_of
    from rocm_guide.zoo.sizes import LORA_TARGETS, SizesError, lora_parameters, sizes_of

__all__ = [
    "LORA_TARGETS",
    "SHAPES",
    "SizesError",
    "chat",
    "checkpoint",
    "config_fields",
    "config_of",
    "held_out_pair",
    "load_data",
    "load_model",
    "load_tokenizer",
    "lora_parameters",
    "meta_model",
    "sizes_of",
    "training_rows",
]

__getattr__, __dir__ = face(__name__, "shapes", "sizes", "load", "columns", "data", "config_json")
