# SPDX-License-Identifier: MIT
"""A model or data set from one word; its sizes, the memory it needs, and where its layers lie.

In reading order: ``shapes``, ``sizes``, ``load``, ``columns``, ``course_data``, ``tiny``, ``sources``, ``hub``,
``real``, ``described``, ``families``, ``quantized``, ``states``, ``step``, ``work``, ``memory_planner``,
``placement``, ``pipeline_schedules``, ``evaluation``.
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
