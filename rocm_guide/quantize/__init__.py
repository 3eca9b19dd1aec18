# SPDX-License-Identifier: MIT
"""Weights in fewer bits: GPTQ, AWQ, NF4, INT8, FP8 and MX formats; ``smoothquant``: INT8 activations too.

In reading order:

- ``grid``: Weights as small integers: the grid, rounding to it, and the error that this costs. The start of every
  method here.
- ``gptq``: GPTQ: round one column of weights at a time and let the columns still to come make up for the error.
- ``awq``: AWQ: make the important columns larger before rounding, and divide by the same factor afterwards.
- ``int8``: LLM.int8(): products of 8-bit integers for almost everything, 16 bits for the few columns with outliers.
- ``nf4``: Four-bit code books: NF4 and FP4, block by block, and the quantisation of their scales.
- ``small_floats``: Weights as small floating-point numbers in blocks that share a scale: FP8, MXFP8, MXFP4 and NVFP4.
  Notebook 13.
- ``layers``: Quantise a Llama layer by layer: what every linear layer sees on calibration data, and each method
  applied to it.
- ``packing``: Codes side by side in bytes, and a linear layer that stores only those.
- ``calibration``: Calibration data: checked samples, what every linear layer sees of them, and the error that a
  change makes there.
- ``held_out``: The distance of a changed model from the one before, on held-out rows of any data set: divergence
  and perplexity.
- ``scores``: The cost of a quantised model, and what it still knows: the tables at the end of notebooks 10, 11 and 12.
- ``budget``: The memory of a quantised model, computed from its shape: weights, embeddings, KV cache, and a
  bound on speed.
- ``libraries``: The maintained libraries, ready to use: GPTQModel (GPTQ and AWQ) and bitsandbytes.
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

__all__ = [
    "BLOCK_FLOATS",
    "BlockFloat",
    "QuantizationError",
    "awq_grid",
    "bits_per_weight",
    "case_table",
    "code_book",
    "code_book_bits",
    "decode_bound",
    "decode_fp4",
    "dequantize_blocks",
    "divergence",
    "drift",
    "encode_fp4",
    "expectations",
    "fit_grid",
    "format_errors",
    "held_out_rows",
    "hessian",
    "int8_linear",
    "linear_weights",
    "measure",
    "model_bytes",
    "on_a_border",
    "outlier_columns",
    "output_error",
    "perplexity",
    "quantize_block",
    "quantize_blocks",
    "quantize_rows",
    "round_to_nearest",
    "rounded",
    "scale_blocks",
    "search_clip",
    "search_scales",
    "serving_bytes",
    "shared_exponent",
    "table",
]

__getattr__, __dir__ = lazy_names(__name__)
