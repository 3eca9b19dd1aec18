# SPDX-License-Identifier: MIT
"""torch.compile: a decoder, the kernels that inductor writes, its knobs.

In reading order: ``decoder``, ``divergence``, ``inductor``, ``knobs``.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.compilation.decoder import Decoder, count_compilation, decode_speed
    from rocm_guide.tune.compilation.divergence import first_divergence
    from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, inspect_kernels
    from rocm_guide.tune.compilation.knobs import KNOBS, knob_table, measure_knobs

__getattr__, __dir__ = lazy_names(__name__)
