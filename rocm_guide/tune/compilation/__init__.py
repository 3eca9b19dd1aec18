# SPDX-License-Identifier: MIT
"""torch.compile: a decoder, the kernels that inductor writes, its knobs.

In reading order:

- ``decoder``: Compile a language model's decoding step, and count what the compiler did: graphs, breaks, kernels,
  recompilations.
- ``divergence``: Does the compiled model write the same text, and if not: was the choice between two tokens open?
- ``inductor``: The Triton kernels that inductor writes for MI300X, made and compiled on a machine without a GPU.
- ``knobs``: The switches of inductor (torch.compile's code generator) that the ROCm LLM guide names, as one table to
  toggle.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.compilation.decoder import Decoder, count_compilation, decode_speed
    from rocm_guide.tune.compilation.divergence import first_divergence
    from rocm_guide.tune.compilation.inductor import extract_kernels, inductor_code, inspect_kernels
    from rocm_guide.tune.compilation.knobs import KNOBS, knob_table, measure_knobs

__getattr__, __dir__ = lazy_names(__name__)
