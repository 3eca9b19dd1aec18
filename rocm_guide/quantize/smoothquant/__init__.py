# SPDX-License-Identifier: MIT
"""SmoothQuant: weights and activations in 8 bits, and a model on INT8 products. Notebook 14.

In reading order:

- ``folding``: Move a factor of each channel from a norm into the linear layers behind it: the function stays what it
  was.
- ``linear``: W8A8: linear layers whose weights and activations are both int8, with the scales that they share or have
  each.
- ``operators``: The five operators of the ROCm guide in one table: formula, types, Composable Kernel's names, and a
  way to run each.
- ``opt``: An OPT decoder layer on the five INT8 operators: attention's products are int8 too, only norms and softmax
  are not.
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

__all__ = [
    "OPERATORS",
    "SCHEMES",
    "Int8OPTLayer",
    "Scheme",
    "W8A8Linear",
    "add_outliers",
    "alpha_errors",
    "fold",
    "input_ranges",
    "load_compressed",
    "norm_groups",
    "operator_table",
    "opt_ranges",
    "quantization_config",
    "quantize_model",
    "quantize_weight",
    "run_operator",
    "save_compressed",
    "smooth_model",
]

__getattr__, __dir__ = lazy_names(__name__)
