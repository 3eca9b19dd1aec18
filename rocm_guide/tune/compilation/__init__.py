# SPDX-License-Identifier: MIT
"""torch.compile: ``decoder`` (a compiled decoding step, what the compiler did, and whether it writes the same text),
``inductor`` (the kernels that it writes for MI300X, without a GPU), ``knobs`` (its switches, measured).
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.compilation.decoder import Decoder, count_compilation, decode_speed, first_divergence
    from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, inspect_kernels
    from rocm_guide.tune.compilation.knobs import KNOBS, knob_table, measure_knobs

__all__, __getattr__, __dir__ = lazy_names(__name__)
