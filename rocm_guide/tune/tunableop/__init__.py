# SPDX-License-Identifier: MIT
"""TunableOp, PyTorch's tuner of GEMMs: plan, tune, read and merge its files.

In reading order:

- ``gemm``: One line of a TunableOp file, read, written and said in words.
- ``blas_calls``: The BLAS call that PyTorch makes of a matrix product, by the rules of platform and release.
- ``recorder``: Run a model without weights and write down every matrix product it asks BLAS for.
- ``generation``: One way to generate text that is the same on a GPU, on a CPU and on the meta device.
- ``planner``: Every matrix product that generation asks for, without weights or a GPU.
- ``own_kernels``: What the layers of a quantised checkpoint ask BLAS for.
- ``files``: Read, write, merge and subtract files, and say why PyTorch would refuse one.
- ``tuning``: Tune a list of products on one GPU or several, stop at any time, go on where it stopped.
- ``tuned_elsewhere``: What other tuners leave: hipBLASLt's tuning file, AITER's tuned GEMMs.
- ``coverage``: Which products of a model a tuned file covers, and which of its lines applies to each.
"""

from typing import TYPE_CHECKING

from rocm_guide.common.base import lazy_names

if TYPE_CHECKING:
    from rocm_guide.tune.tunableop.blas_calls import CUDA_RULES, BlasRules
    from rocm_guide.tune.tunableop.coverage import Coverage, covers
    from rocm_guide.tune.tunableop.files import (
        TuningFile,
        explain_validators,
        merge,
        missing,
        parse_text,
        read_file,
        write_file,
    )
    from rocm_guide.tune.tunableop.gemm import Gemm, TunableFileError, describe_gemm, parse_gemm
    from rocm_guide.tune.tunableop.generation import generate_fixed, padded_prompt
    from rocm_guide.tune.tunableop.planner import Plan, plan, plan_model
    from rocm_guide.tune.tunableop.recorder import record_gemms
    from rocm_guide.tune.tunableop.tuned_elsewhere import TunedElsewhere, read_tuned
    from rocm_guide.tune.tunableop.tuning import call_seconds, share_out, tune_file, tuning_seconds

__getattr__, __dir__ = lazy_names(__name__)
