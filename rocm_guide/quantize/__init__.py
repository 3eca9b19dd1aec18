# SPDX-License-Identifier: MIT
"""Weights in fewer bits: GPTQ, AWQ, NF4, INT8, FP8 and MX formats; ``smoothquant``: INT8 activations too.

In reading order: ``grid``, where every method starts; ``gptq``, ``awq``, ``int8``, ``nf4``, ``small_floats``;
``calibration``, ``layers`` and ``packing``, a whole model; ``held_out``, ``scores`` and ``budget``, what it costs and
still knows; ``libraries``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.quantize.awq import awq_grid, rounded, search_clip, search_scales
    from rocm_guide.quantize.budget import decode_bound, linear_weights, serving_bytes
    from rocm_guide.quantize.gptq import hessian
    from rocm_guide.quantize.grid import (
        QuantizationError,
        bits_per_weight,
        fit_grid,
        output_error,
        quantize_block,
        round_to_nearest,
    )
    from rocm_guide.quantize.held_out import divergence, drift, expectations, held_out_rows, perplexity
    from rocm_guide.quantize.int8 import format_errors, int8_linear, outlier_columns, quantize_rows
    from rocm_guide.quantize.nf4 import code_book, code_book_bits, dequantize_blocks, on_a_border, quantize_blocks
    from rocm_guide.quantize.scores import case_table, measure, model_bytes, table
    from rocm_guide.quantize.small_floats import (
        BLOCK_FLOATS,
        BlockFloat,
        decode_fp4,
        encode_fp4,
        scale_blocks,
        shared_exponent,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__)
