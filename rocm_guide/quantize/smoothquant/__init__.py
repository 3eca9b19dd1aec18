# SPDX-License-Identifier: MIT
"""SmoothQuant: weights and activations in 8 bits, and a model on INT8 products. Notebook 14.

In reading order: ``folding``, ``linear``, ``operators``, ``opt``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.quantize.smoothquant.folding import add_outliers, fold, input_ranges, norm_groups, smooth_model
    from rocm_guide.quantize.smoothquant.linear import (
        SCHEMES,
        Scheme,
        W8A8Linear,
        alpha_errors,
        load_compressed,
        quantization_config,
        quantize_model,
        quantize_weight,
        save_compressed,
    )
    from rocm_guide.quantize.smoothquant.operators import OPERATORS, operator_table, run_operator
    from rocm_guide.quantize.smoothquant.opt import Int8OPTLayer, opt_ranges

__all__, __getattr__, __dir__ = lazy_names(__name__)
